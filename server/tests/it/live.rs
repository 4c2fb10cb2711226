//! `/live`.

use std::time::Duration;

use futures::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest as _};

use crate::product::Product;

pub type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

pub async fn open(p: &Product, cookie: &str, origin: Option<&str>) -> Result<Socket, u16> {
    let mut request = format!("ws://{}/live", p.address).into_client_request().expect("a request");
    if !cookie.is_empty() {
        request.headers_mut().insert("cookie", cookie.parse().expect("a value"));
    }
    if let Some(origin) = origin {
        request.headers_mut().insert("origin", origin.parse().expect("a value"));
    }
    match tokio_tungstenite::connect_async(request).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(answer)) => Err(answer.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// A tab of this server's own page.
pub async fn open_own(p: &Product, cookie: &str) -> Socket {
    open(p, cookie, Some(&format!("http://{}", p.address))).await.expect("open")
}

/// Answers a ping as the page does.
pub async fn answer(socket: &mut Socket, message: &Message) {
    if let Message::Text(text) = message
        && text.contains("\"ping\"")
    {
        let _ = socket.send(Message::text(text.replace("ping", "pong"))).await;
    }
}

/// The code the server closes with.
pub async fn closed(socket: &mut Socket) -> u16 {
    loop {
        if let Message::Close(Some(frame)) = next(socket).await {
            return frame.code.into();
        }
    }
}

pub async fn next(socket: &mut Socket) -> Message {
    let message = tokio::time::timeout(Duration::from_secs(30), socket.next()).await.expect("in time");
    message.expect("a message").expect("a message")
}

#[tokio::test]
async fn origin_and_session_are_both_needed() {
    let p = Product::with_admin().await;
    let own = format!("http://{}", p.address);
    assert_eq!(open(&p, "", Some(&own)).await.err(), Some(401));
    assert_eq!(open(&p, &p.admin, None).await.err(), Some(403));
    assert_eq!(open(&p, &p.admin, Some("null")).await.err(), Some(403));
    assert_eq!(open(&p, &p.admin, Some("https://evil.example")).await.err(), Some(403));
    assert!(open(&p, &p.admin, Some(&own)).await.is_ok());
}

#[tokio::test]
async fn a_change_moves_a_version_and_signing_out_closes_the_socket() {
    let p = Product::with_admin().await;
    let vic = p.person("Vic", "viewer").await;
    let own = format!("http://{}", p.address);
    let mut socket = open(&p, &vic, Some(&own)).await.expect("open");
    let first = next(&mut socket).await.into_text().expect("text");
    assert!(first.contains("\"approvals\""), "{first}");
    p.worker_token("studio").await;
    loop {
        let told = next(&mut socket).await.into_text().expect("text");
        if told.contains("\"workers\"") {
            break;
        }
    }
    assert_eq!(p.post(&vic, "/signout", "").await.status, 303);
    loop {
        if let Message::Close(Some(frame)) = next(&mut socket).await {
            assert_eq!(u16::from(frame.code), 4401);
            break;
        }
    }
}
