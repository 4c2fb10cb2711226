//! Just enough HTTP/1.1 to load a server without the client being the limit: one
//! connection kept alive, whole responses read, chunked or with a length.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::Result;

/// A request, ready to write.
#[derive(Clone, Debug)]
pub struct Request(String);

impl Request {
    pub fn get(path: &str, cookie: &str) -> Self {
        Self(format!("GET {path} HTTP/1.1\r\nHost: HOST\r\nCookie: {cookie}\r\nAccept: text/html\r\n\r\n"))
    }

    /// A form, answered as for fetch.
    pub fn post(path: &str, cookie: &str, form: &str) -> Self {
        Self(format!(
            "POST {path} HTTP/1.1\r\nHost: HOST\r\nCookie: {cookie}\r\nAccept: application/json\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        ))
    }
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

pub struct Connection {
    stream: TcpStream,
    host: String,
    buffer: Vec<u8>,
}

impl Connection {
    pub async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, host: address.to_owned(), buffer: Vec::with_capacity(64 * 1024) })
    }

    /// Sends and reads the whole answer. Statuses from 400 on are errors.
    pub async fn send(&mut self, request: &Request) -> Result<Response> {
        let response = self.exchange(request).await?;
        if !(200..400).contains(&response.status) {
            let words = String::from_utf8_lossy(&response.body);
            return Err(format!("{}: {words}", response.status).into());
        }
        Ok(response)
    }

    /// Sends and reads the whole answer, whatever it is.
    pub async fn exchange(&mut self, request: &Request) -> Result<Response> {
        self.stream.write_all(request.0.replacen("HOST", &self.host, 1).as_bytes()).await?;
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await?;
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        self.buffer.drain(..end);
        let status: u16 = head.get(9..12).and_then(|s| s.parse().ok()).unwrap_or(0);
        let lower = head.to_ascii_lowercase();
        let field =
            |name: &str| lower.lines().find_map(|l| l.strip_prefix(name).map(|v| v.trim().to_owned()));
        let body = if field("transfer-encoding:").is_some_and(|v| v.contains("chunked")) {
            self.chunks().await?
        } else {
            let length: usize = field("content-length:").and_then(|v| v.parse().ok()).unwrap_or(0);
            self.take(length).await?
        };
        Ok(Response { status, head, body })
    }

    async fn read_more(&mut self) -> Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err("the server closed the connection".into());
        }
        Ok(())
    }

    async fn take(&mut self, n: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < n {
            self.read_more().await?;
        }
        Ok(self.buffer.drain(..n).collect())
    }

    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = loop {
                if let Some(at) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                    break self.buffer.drain(..at + 2).collect::<Vec<u8>>();
                }
                self.read_more().await?;
            };
            let size = usize::from_str_radix(String::from_utf8_lossy(&line).trim(), 16)?;
            let chunk = self.take(size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
}

/// `text` as a value of a form.
pub fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
