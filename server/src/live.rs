//! `/live`: one websocket per browser tab. It carries version numbers by topic; the
//! page reads what changed. Origin **and** session are checked at the start, the
//! session again whenever access changed anywhere, and with every ping.

use std::{collections::BTreeMap, time::Duration};

use axum::{
    Extension,
    extract::{
        State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use store::{Topic, changes::Versions, login::Login};
use tokio::time::Instant;

use crate::state::AppState;

/// Under the 30 s at which proxies begin to cut idle sockets.
const PING: Duration = Duration::from_secs(20);
/// A peer that says nothing for so long is gone.
const DEAD: Duration = Duration::from_secs(45);
/// At most so many frames a second; changes in between are told together.
const COALESCE: Duration = Duration::from_millis(50);
const TOPICS: [Topic; 5] = [Topic::Approvals, Topic::Sessions, Topic::Workers, Topic::Agents, Topic::Users];

pub async fn live(
    State(state): State<AppState>,
    login: Option<Extension<Login>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let origin = headers.get(header::ORIGIN).and_then(|o| o.to_str().ok());
    if !origin.is_some_and(|o| state.reach.accepts_origin(o)) {
        return (StatusCode::FORBIDDEN, "This address may not listen here.\n").into_response();
    }
    let Some(Extension(login)) = login else {
        return (StatusCode::UNAUTHORIZED, "Sign in first.\n").into_response();
    };
    upgrade.max_message_size(4096).on_upgrade(move |socket| serve(socket, state, login))
}

async fn serve(mut socket: WebSocket, state: AppState, login: Login) {
    let mut changes = state.store.changes().subscribe();
    let mut ending = state.ending.clone();
    let mut told: Option<Versions> = None;
    let mut heard = Instant::now();
    let mut ping = tokio::time::interval(PING);
    let mut pings = 0_u64;
    // A sign-in that runs out changes nothing that could be told.
    let mut look = false;
    loop {
        let now: Versions = *changes.borrow_and_update();
        if let Some(frame) = difference(told.as_ref(), &now)
            && !say(&mut socket, frame).await
        {
            return;
        }
        let access = told.is_some_and(|t| t[Topic::Access as usize] != now[Topic::Access as usize]);
        if (access || std::mem::take(&mut look))
            && !matches!(store::login::is_good(&state.store, login.id).await, Ok(Some(_)) | Err(_))
        {
            close(&mut socket, 4401, "signed out").await;
            return;
        }
        told = Some(now);
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() { return; }
                tokio::time::sleep(COALESCE).await;
            }
            message = socket.recv() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => heard = Instant::now(),
            },
            () = tokio::time::sleep_until(heard + DEAD) => return,
            _ = ping.tick() => {
                look = pings > 0;
                pings += 1;
                if !say(&mut socket, format!("{{\"ping\":{pings}}}")).await {
                    return;
                }
            }
            _ = ending.changed() => {
                close(&mut socket, 1001, "the server ends").await;
                return;
            }
        }
    }
}

/// Sends a frame. A tab that takes nothing is as gone as one that says nothing.
async fn say(socket: &mut WebSocket, frame: String) -> bool {
    matches!(tokio::time::timeout(DEAD, socket.send(Message::text(frame))).await, Ok(Ok(())))
}

async fn close(socket: &mut WebSocket, code: u16, reason: &'static str) {
    let _ = socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
}

/// The topics whose version moved, as a frame; all of them on connect.
fn difference(told: Option<&Versions>, now: &Versions) -> Option<String> {
    let moved: BTreeMap<&str, u64> = TOPICS
        .into_iter()
        .filter(|t| told.is_none_or(|told| told[*t as usize] != now[*t as usize]))
        .map(|t| (t.as_str(), now[t as usize]))
        .collect();
    (!moved.is_empty()).then(|| serde_json::json!({ "versions": moved }).to_string())
}
