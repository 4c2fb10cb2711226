//! One HTTP/1.1 request over a connection of its own, with every header in sight.

use std::{fmt::Write as _, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (n, value) = line.split_once(':')?;
            n.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Sends `method path` with these headers and body to `address`.
pub async fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Response {
    try_send(address, method, path, headers, body).await.expect("a connection")
}

/// [`send`] to a server that may be away. A request it died over has status 0.
pub async fn try_send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Response> {
    tokio::time::timeout(PATIENCE, exchange(address, method, path, headers, body))
        .await
        .unwrap_or_else(|_| panic!("{method} {path} was not answered within {PATIENCE:?}"))
}

async fn exchange(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Option<Response> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let mut request = format!("{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
    if !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("connection")) {
        request.push_str("Connection: close\r\n");
    }
    if !headers.iter().any(|(n, _)| n.eq_ignore_ascii_case("host")) {
        let _ = write!(request, "Host: {address}\r\n");
    }
    for (name, value) in headers {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    request.push_str("\r\n");
    let _ = stream.write_all(request.as_bytes()).await;
    // A refused body may end the connection before all of it was taken.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Some(Response {
        status: head.get(9..12).and_then(|s| s.parse().ok()).unwrap_or(0),
        head: head.to_owned(),
        body: body.to_owned(),
    })
}

pub const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");
