//! `/link`: the websockets of workers.
//!
//! Each link is one task that owns its socket. It reads frames in batches (events of a
//! session are stored together), and it is a reconciler for what the worker should
//! have: prompts, cancels, decisions. That part has no input but the tables; it is
//! woken by a change of the outbox and by a timer, and repeats itself harmlessly.
//!
//! A worker's token opens nothing but this. No message of a worker can decide anything.

mod outbox;
mod peer;

use std::{
    collections::HashMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    extract::{
        State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use domain::id::WorkerId;
use link::{
    frame::{Frame, MAX_FRAME, Message as _, PROTOCOL_VERSIONS, RpcError, close},
    message::{HEARTBEAT_S, Hello, LEASE_TTL_S, SessionVerdict, Verdict, WINDOW, Welcome},
};
use store::{Token, approval::Takes, worker};
use tokio::sync::oneshot;

use crate::{routes::failed, state::AppState};

/// How long a worker may take to say hello.
const HELLO: Duration = Duration::from_secs(10);

/// The links of this server: at most one a worker.
#[derive(Debug, Default)]
pub struct Links {
    open: Mutex<HashMap<WorkerId, (u64, oneshot::Sender<()>)>>,
    next: AtomicU64,
}

impl Links {
    /// Registers a link; an older one of the same worker is told to close.
    fn enter(&self, worker: WorkerId) -> (u64, oneshot::Receiver<()>) {
        let (superseded, told) = oneshot::channel();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if let Ok(mut open) = self.open.lock()
            && let Some((_, older)) = open.insert(worker, (number, superseded))
        {
            let _ = older.send(());
        }
        (number, told)
    }

    fn leave(&self, worker: WorkerId, number: u64) {
        if let Ok(mut open) = self.open.lock()
            && open.get(&worker).is_some_and(|(n, _)| *n == number)
        {
            open.remove(&worker);
        }
    }
}

/// Checks the token, then upgrades. A browser never gets here: it cannot set the header.
pub async fn link(State(state): State<AppState>, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer "))
        .map(Token::presented);
    let found = match token {
        Some(token) => store::worker::find(&state.store, &token).await,
        None => Ok(None),
    };
    match found {
        Ok(Some(worker)) => upgrade
            .max_message_size(MAX_FRAME)
            .max_frame_size(MAX_FRAME)
            .on_upgrade(move |socket| serve(socket, state, worker)),
        Ok(None) => (
            StatusCode::UNAUTHORIZED,
            "The worker's token is unknown or revoked. An admin makes a new one under Agents & workers.\n",
        )
            .into_response(),
        Err(error) => failed(error.into_failure()),
    }
}

/// Why a link ends: the close frame it gets.
#[derive(Clone, Copy, Debug)]
struct End(u16, &'static str);

async fn serve(mut socket: WebSocket, state: AppState, worker: WorkerId) {
    let mut epoch = None;
    let end = match hello(&mut socket, &state, worker).await {
        Ok(welcomed) => {
            epoch = Some(welcomed.epoch);
            let (number, superseded) = state.links.enter(worker);
            let end = peer::run(&mut socket, &state, worker, welcomed, superseded).await;
            state.links.leave(worker, number);
            end
        }
        Err(end) => end,
    };
    if let Some(epoch) = epoch
        && let Err(error) = store::worker::unlink(&state.store, worker, epoch).await
    {
        tracing::warn!(%worker, %error, "the end of a link could not be stored; its lease will lapse");
    }
    let End(code, reason) = end;
    tracing::info!(%worker, code, reason, "a link ended");
    let _ = socket.send(Message::Close(Some(CloseFrame { code, reason: reason.into() }))).await;
}

/// What a link knows of its worker.
struct Welcomed {
    epoch: i64,
    /// The harnesses offered, and what each takes as an answer.
    takes: HashMap<String, Takes>,
}

/// Reads hello, takes the lease, compares what is pending, welcomes.
async fn hello(socket: &mut WebSocket, state: &AppState, worker: WorkerId) -> Result<Welcomed, End> {
    let frame = match tokio::time::timeout(HELLO, socket.recv()).await {
        Ok(Some(Ok(Message::Text(text)))) => Frame::parse(&text),
        _ => return Err(End(close::PROTOCOL, "hello is expected first")),
    };
    let Ok(Frame::Call { id, method, params }) = frame else {
        return Err(End(close::PROTOCOL, "hello is expected first"));
    };
    if method != Hello::METHOD {
        return Err(End(close::PROTOCOL, "hello is expected first"));
    }
    let hello: Hello = match link::frame::body(&params) {
        Ok(hello) => hello,
        Err(error) => {
            answer(socket, id, Err::<(), _>(error)).await;
            return Err(End(close::PROTOCOL, "hello could not be read"));
        }
    };
    let Some(version) =
        PROTOCOL_VERSIONS.iter().copied().filter(|v| hello.protocol_versions.contains(v)).max()
    else {
        let why = format!("this server speaks the link's versions {PROTOCOL_VERSIONS:?}");
        answer(socket, id, Err::<(), _>(RpcError::new(link::frame::REFUSED, why))).await;
        return Err(End(close::VERSION, "no protocol version in common"));
    };
    let unavailable = |error: store::Error| {
        tracing::warn!(%worker, %error, "a hello could not be stored");
        End(1013, "the server cannot store now; try again")
    };
    let linked = worker::link(
        &state.store,
        worker,
        worker::Hello {
            data_folder_id: hello.worker.data_folder_id,
            instance: hello.worker.instance,
            host: &hello.worker.host,
            version: &hello.worker.version,
            environment: &hello.environment.kind,
            offers: &hello.harnesses,
        },
    )
    .await
    .map_err(unavailable)?;
    let (epoch, name) = match linked {
        worker::Linked::Yes { epoch, name } => (epoch, name),
        worker::Linked::Leased { host } => {
            let why = format!("another data folder, on {host}, holds this worker's lease");
            answer(socket, id, Err::<(), _>(RpcError::new(link::frame::REFUSED, why))).await;
            return Err(End(close::LEASED, "another data folder holds the lease"));
        }
        worker::Linked::Revoked => return Err(End(close::UNAUTHORIZED, "the token is revoked")),
    };
    let sessions = verdicts(state, worker, &hello).await.map_err(unavailable)?;
    let welcome = Welcome {
        protocol_version: version,
        epoch,
        worker_name: name,
        lease_ttl_s: LEASE_TTL_S,
        heartbeat_s: HEARTBEAT_S,
        max_frame: MAX_FRAME,
        window: WINDOW,
        sessions,
    };
    tracing::info!(%worker, epoch, version = %hello.worker.version, "a worker linked");
    answer(socket, id, Ok(welcome)).await;
    let takes = hello
        .harnesses
        .into_iter()
        .map(|h| {
            let permissions = h.capabilities.permissions.unwrap_or_default();
            let takes = Takes {
                message: permissions.message,
                edit: permissions.updated_input,
                answers: h.capabilities.questions.is_some(),
                grants: permissions.session_grants,
            };
            (h.id, takes)
        })
        .collect();
    Ok(Welcomed { epoch, takes })
}

/// What is to become of each announced session, and of what it does not announce.
async fn verdicts(state: &AppState, worker: WorkerId, hello: &Hello) -> store::Result<Vec<SessionVerdict>> {
    let announced: Vec<worker::Announced> = hello
        .sessions
        .iter()
        .map(|s| worker::Announced {
            session: s.key,
            pending: s.pending.iter().map(|p| p.request_key.to_string()).collect(),
        })
        .collect();
    let known = worker::reconcile(&state.store, worker, &announced).await?;
    let known: HashMap<_, _> = known.into_iter().map(|k| (k.session, k)).collect();
    Ok(hello
        .sessions
        .iter()
        .map(|s| {
            let (verdict, acked_seq) = match known.get(&s.key) {
                Some(k) if k.ours => (Verdict::Resume, k.stored_seq),
                Some(k) => (Verdict::Fenced, k.stored_seq),
                None => (Verdict::Unknown, 0),
            };
            SessionVerdict { key: s.key, verdict, acked_seq }
        })
        .collect())
}

async fn answer<T: serde::Serialize>(socket: &mut WebSocket, id: u64, result: Result<T, RpcError>) {
    let _ = socket.send(Message::text(Frame::answer(id, result).to_text())).await;
}
