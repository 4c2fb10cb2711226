//! The websocket to the server: opened, greeted, kept alive, opened again.
//!
//! While it is away the sessions keep holding what their harnesses ask. A link that
//! another one has replaced ends the worker at once: what it would still write could
//! contradict its successor.

use std::{collections::HashMap, io::Write as _, sync::Arc, time::Duration};

use domain::id::SessionId;
use futures::{SinkExt as _, StreamExt as _};
use link::{
    frame::{
        Frame, INVALID_PARAMS, MAX_FRAME, METHOD_NOT_FOUND, Message as _, REFUSED, RpcError, UNAVAILABLE,
        body, close,
    },
    message::{
        Acknowledge, Cancel, Close, Drain, Environment, Finish, Heartbeat, Hello, LEASE_TTL_S, Prompt,
        Resolve, SessionVerdict, Verdict, Welcome, WorkerSelf,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout},
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{
        self, Message,
        client::IntoClientRequest as _,
        http::{HeaderValue, header::AUTHORIZATION},
        protocol::WebSocketConfig,
    },
};
use url::Url;
use uuid::Uuid;

use crate::{
    journal::JournalError,
    session::{self, Handle, Order, Reply, Settings},
    uplink::Link,
};

/// The shortest and the longest wait between two tries.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));
/// How long opening the socket, and the answer to hello, may take.
const GREETING: Duration = Duration::from_secs(15);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why the worker ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Final {
    /// The server does not know the token.
    Unauthorized,
    /// A newer worker of the same data folder has taken over.
    Fenced,
    /// Server and worker have no protocol version in common.
    Version,
}

/// Why one link ended.
enum Over {
    Final(Final),
    /// Another data folder holds the lease.
    Leased,
    Lost(String),
}

/// A worker's end of the link, over all its lives.
#[derive(Debug)]
pub struct Connection {
    settings: Arc<Settings>,
    url: Url,
    token: HeaderValue,
    hello: WorkerSelf,
    environment: Environment,
    sessions: HashMap<SessionId, Handle>,
}

impl Connection {
    pub fn new(
        settings: Arc<Settings>,
        url: Url,
        token: HeaderValue,
        environment: String,
        sessions: HashMap<SessionId, Handle>,
    ) -> Self {
        let hello = WorkerSelf {
            data_folder_id: settings.data.id(),
            instance: Uuid::now_v7(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Self { settings, url, token, hello, environment: Environment { kind: environment }, sessions }
    }

    /// Keeps the link until `stop` is asked for, or for ever. With `stop` every harness
    /// is ended first.
    pub async fn run(&mut self, mut stop: mpsc::Receiver<Stop>) -> Option<Final> {
        let mut wait = BACKOFF.0;
        let mut told = String::new();
        loop {
            let linked_at = Instant::now();
            let over = self.link(&mut stop).await;
            for handle in self.sessions.values() {
                handle.unlinked();
            }
            match over {
                None => return None,
                Some(Over::Final(end)) => return Some(end),
                Some(Over::Leased) => {
                    say(&format!(
                        "Another worker with its own data folder holds this token's place. Stop it, or make a token for each worker. Trying again every {} s.",
                        BACKOFF.1.as_secs()
                    ));
                    wait = BACKOFF.1;
                }
                Some(Over::Lost(why)) => {
                    // The same reason is told once, not with every try.
                    if why != told {
                        say(&format!("Not linked to {}: {why}. Trying again.", self.url));
                        told = why;
                    }
                }
            }
            if linked_at.elapsed() > Duration::from_secs(30) {
                (wait, told) = (BACKOFF.0, String::new());
            }
            let jitter = 0.5 + f64::from(Uuid::new_v4().as_bytes()[0]) / 512.0;
            tokio::select! {
                () = sleep(wait.mul_f64(jitter)) => {}
                asked = stop.recv() => return self.stopped(asked).await,
            }
            wait = (wait * 2).min(BACKOFF.1);
        }
    }

    /// One life of the link. `None`: it was asked to stop.
    async fn link(&mut self, stop: &mut mpsc::Receiver<Stop>) -> Option<Over> {
        let greeted = tokio::select! {
            greeted = self.greeted() => greeted,
            asked = stop.recv() => return self.stopped(asked).await,
        };
        let (socket, welcome) = match greeted {
            Ok(greeted) => greeted,
            Err(over) => return Some(over),
        };
        say(&format!("Linked to {} as \"{}\".", self.url, welcome.worker_name));
        let (out, mut frames) = mpsc::unbounded_channel();
        let link = Link::new(out).with_epoch(welcome.epoch);
        if let Some(over) = self.hand_out(&link, &welcome.sessions) {
            return Some(over);
        }
        let ttl = Duration::from_secs(welcome.lease_ttl_s.clamp(2, LEASE_TTL_S));
        let mut beat = interval(Duration::from_secs(welcome.heartbeat_s.max(1)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut heard = Instant::now();
        let mut ending: Option<tokio::task::JoinHandle<()>> = None;
        let (mut sink, mut stream) = socket.split();
        let over = loop {
            let is_ending = ending.is_some();
            tokio::select! {
                frame = frames.recv() => {
                    let Some(frame) = frame else { break Some(Over::Lost("it was closed".to_owned())) };
                    if frame.len() > MAX_FRAME {
                        tracing::error!(bytes = frame.len(), "a frame is too large and was left out");
                        continue;
                    }
                    // A server that does not take our frames shows by not being heard.
                    match timeout(ttl, sink.send(Message::text(frame))).await {
                        Ok(Ok(())) => {}
                        Ok(Err(error)) => break Some(Over::Lost(error.to_string())),
                        Err(_) => break Some(Over::Lost("the server takes nothing".to_owned())),
                    }
                }
                message = stream.next() => {
                    if heard.elapsed() > ttl {
                        // This process was stopped meanwhile, and its place may be another's by
                        // now. What was sent to it before that is not acted on any more.
                        break Some(Over::Lost("the server was not heard any more".to_owned()));
                    }
                    heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => if let Some(over) = self.frame(&link, &text) {
                            break Some(over);
                        },
                        Some(Ok(Message::Close(frame))) => {
                            break Some(over_of_close(frame.map(|f| (u16::from(f.code), f.reason.to_string()))));
                        }
                        Some(Ok(_)) => {}
                        Some(Err(error)) => break Some(Over::Lost(error.to_string())),
                        None => break Some(Over::Lost("the server closed it".to_owned())),
                    }
                }
                _ = beat.tick() => {
                    if heard.elapsed() > ttl {
                        break Some(Over::Lost("the server was not heard any more".to_owned()));
                    }
                    self.sessions.retain(|_, handle| !handle.orders.is_closed());
                    link.notify(&Heartbeat {});
                }
                asked = stop.recv(), if !is_ending => match asked {
                    // The link stays while the harnesses end, so that the server learns it.
                    Some(Stop { end_harnesses: true }) => ending = Some(self.ending()),
                    _ => break None,
                },
                () = done(&mut ending), if is_ending => break None,
            }
        };
        link.close();
        let _ = timeout(Duration::from_secs(1), sink.close()).await;
        over
    }

    async fn greeted(&self) -> Result<(Socket, Welcome), Over> {
        let mut socket = self.open().await?;
        match timeout(GREETING, self.greet(&mut socket)).await {
            Ok(welcome) => Ok((socket, welcome?)),
            Err(_) => Err(Over::Lost("the server does not answer".to_owned())),
        }
    }

    async fn open(&self) -> Result<Socket, Over> {
        let lost = |error: &dyn std::fmt::Display| Over::Lost(error.to_string());
        let mut request = self.url.as_str().into_client_request().map_err(|e| lost(&e))?;
        request.headers_mut().insert(AUTHORIZATION, self.token.clone());
        let config =
            WebSocketConfig::default().max_message_size(Some(MAX_FRAME)).max_frame_size(Some(MAX_FRAME));
        match timeout(GREETING, connect_async_with_config(request, Some(config), true)).await {
            Err(_) => Err(Over::Lost("the server does not answer".to_owned())),
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(tungstenite::Error::Http(answer))) => match answer.status().as_u16() {
                401 | 403 => Err(Over::Final(Final::Unauthorized)),
                status => Err(Over::Lost(format!("the server answered with HTTP status {status}"))),
            },
            Ok(Err(error)) => Err(lost(&error)),
        }
    }

    async fn greet(&self, socket: &mut Socket) -> Result<Welcome, Over> {
        let hello = Hello {
            protocol_versions: link::frame::PROTOCOL_VERSIONS.to_vec(),
            worker: self.hello.clone(),
            environment: self.environment.clone(),
            harnesses: self.settings.offers.iter().map(|o| o.told.clone()).collect(),
            sessions: self.sessions.values().filter_map(Handle::held).collect(),
        };
        // Ids from 1 on are the sessions' calls.
        let text = Frame::call(0, &hello).to_text();
        socket.send(Message::text(text)).await.map_err(|e| Over::Lost(e.to_string()))?;
        loop {
            match socket.next().await {
                Some(Ok(Message::Text(text))) => match Frame::parse(&text) {
                    Ok(Frame::Answer { id: 0, result: Ok(raw) }) => {
                        return body(&raw).map_err(|e: RpcError| Over::Lost(e.to_string()));
                    }
                    Ok(Frame::Answer { id: 0, result: Err(error) }) => {
                        return Err(Over::Lost(error.to_string()));
                    }
                    _ => {}
                },
                Some(Ok(Message::Close(frame))) => {
                    return Err(over_of_close(frame.map(|f| (u16::from(f.code), f.reason.to_string()))));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Over::Lost(error.to_string())),
                None => return Err(Over::Lost("the server closed it".to_owned())),
            }
        }
    }

    /// Gives the link to the sessions, as the server has judged each.
    fn hand_out(&mut self, link: &Link, verdicts: &[SessionVerdict]) -> Option<Over> {
        if verdicts.iter().any(|v| v.verdict == Verdict::Fenced) {
            return Some(Over::Final(Final::Fenced));
        }
        self.sessions.retain(|_, handle| !handle.orders.is_closed());
        for (key, handle) in &self.sessions {
            match verdicts.iter().find(|v| v.key == *key) {
                Some(SessionVerdict { verdict: Verdict::Unknown, .. }) => {
                    let _ = handle.orders.send(Order::Forget);
                }
                Some(verdict) => handle.linked(link.clone(), verdict.acked_seq),
                // Nothing was told of it, so nothing of it is in doubt.
                None => handle.linked(link.clone(), 0),
            }
        }
        None
    }

    fn frame(&mut self, link: &Link, text: &str) -> Option<Over> {
        match Frame::parse(text) {
            Ok(Frame::Answer { id, result }) => link.answered(id, result),
            Ok(Frame::Notify { method, params }) => match method.as_str() {
                Acknowledge::METHOD => self.acknowledge(&params),
                Drain::METHOD => return Some(Over::Lost("the server is being stopped".to_owned())),
                _ => {}
            },
            Ok(Frame::Call { id, method, params }) => match method.as_str() {
                Prompt::METHOD => self.ordered(
                    link,
                    id,
                    &params,
                    |p: &Prompt| p.key,
                    |h, p, reply| {
                        let _ = h.orders.send(Order::Prompt(p, reply));
                    },
                ),
                Cancel::METHOD => {
                    self.ordered(link, id, &params, |c: &Cancel| c.key, Handle::cancel);
                }
                Resolve::METHOD => self.ordered(
                    link,
                    id,
                    &params,
                    |r: &Resolve| r.key,
                    |h, r, reply| {
                        let _ = h.orders.send(Order::Resolve(r, reply));
                    },
                ),
                Finish::METHOD => self.ordered(
                    link,
                    id,
                    &params,
                    |f: &Finish| f.key,
                    |h, f, reply: Reply<()>| {
                        let _ = h.orders.send(Order::Finish(f.run));
                        let _ = reply.send(Ok(()));
                    },
                ),
                Close::METHOD => self.ordered(
                    link,
                    id,
                    &params,
                    |c: &Close| c.key,
                    |h, _, reply: Reply<()>| {
                        let _ = h.orders.send(Order::Close);
                        let _ = reply.send(Ok(()));
                    },
                ),
                Acknowledge::METHOD => {
                    self.acknowledge(&params);
                    link.send(Frame::answer(id, Ok(())));
                }
                Heartbeat::METHOD | Drain::METHOD => link.send(Frame::answer(id, Ok(()))),
                _ => {
                    let error = RpcError::new(METHOD_NOT_FOUND, "This is not known here.");
                    link.send(Frame::answer::<()>(id, Err(error)));
                }
            },
            Err(error) => tracing::warn!(%error, "a frame of the server could not be read"),
        }
        None
    }

    fn acknowledge(&self, params: &RawValue) {
        if let Ok(Acknowledge { key, seq }) = body(params)
            && let Some(handle) = self.sessions.get(&key)
        {
            let _ = handle.orders.send(Order::Acked(seq));
        }
    }

    /// Passes an order to its session and the session's answer to the server.
    fn ordered<M: DeserializeOwned, R: Serialize + Send + 'static>(
        &mut self,
        link: &Link,
        id: u64,
        params: &RawValue,
        key: impl Fn(&M) -> SessionId,
        give: impl FnOnce(&Handle, M, Reply<R>),
    ) {
        let message: M = match body(params) {
            Ok(message) => message,
            Err(error) => {
                let error = RpcError::new(INVALID_PARAMS, error);
                return link.send(Frame::answer::<()>(id, Err(error)));
            }
        };
        let handle = match self.session(key(&message), link) {
            Ok(handle) => handle,
            Err(error) => return link.send(Frame::answer::<()>(id, Err(error))),
        };
        let (reply, answer) = oneshot::channel();
        give(&handle, message, reply);
        let link = link.clone();
        tokio::spawn(async move {
            let answer = answer
                .await
                .unwrap_or_else(|_| Err(RpcError::new(UNAVAILABLE, "The session was being closed.")));
            link.send(Frame::answer(id, answer));
        });
    }

    fn session(&mut self, key: SessionId, link: &Link) -> Result<Handle, RpcError> {
        if let Some(handle) = self.sessions.get(&key).filter(|h| !h.orders.is_closed()) {
            return Ok(handle.clone());
        }
        let handle = session::open(key, &self.settings).map_err(|error| {
            tracing::error!(%error, "a session cannot be opened");
            // What is damaged stays so; a file that cannot be read now may be later.
            let code = if matches!(error, JournalError::Damaged { .. }) { REFUSED } else { UNAVAILABLE };
            RpcError::new(code, error)
        })?;
        handle.linked(link.clone(), 0);
        self.sessions.insert(key, handle.clone());
        Ok(handle)
    }

    /// Ends every harness; done when all have ended and the server had a moment to
    /// store what was said last.
    fn ending(&self) -> tokio::task::JoinHandle<()> {
        let sessions: Vec<Handle> = self.sessions.values().cloned().collect();
        tokio::spawn(async move {
            let mut all = Vec::new();
            for handle in &sessions {
                let (done, told) = oneshot::channel();
                if handle.orders.send(Order::Shutdown(done)).is_ok() {
                    all.push(told);
                }
            }
            for told in all {
                let _ = timeout(Duration::from_secs(8), told).await;
            }
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until && sessions.iter().any(|h| h.held().is_some()) {
                sleep(Duration::from_millis(20)).await;
            }
        })
    }

    /// Ends while there is no link. The journals keep what the server has not heard.
    async fn stopped<T>(&self, asked: Option<Stop>) -> Option<T> {
        if asked.is_some_and(|s| s.end_harnesses) {
            let ending = self.ending();
            // With nobody to tell, only the harnesses are waited for.
            let _ = timeout(Duration::from_secs(8), ending).await;
        }
        None
    }
}

/// Tells a person. Whoever started the worker may have closed the pipe: that is no
/// reason to end.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

async fn done(task: &mut Option<tokio::task::JoinHandle<()>>) {
    if let Some(task) = task {
        let _ = task.await;
    }
}

/// The worker is asked to stop.
#[derive(Clone, Copy, Debug)]
pub struct Stop {
    pub end_harnesses: bool,
}

fn over_of_close(frame: Option<(u16, String)>) -> Over {
    match frame {
        Some((close::UNAUTHORIZED, _)) => Over::Final(Final::Unauthorized),
        Some((close::SUPERSEDED, _)) => Over::Final(Final::Fenced),
        Some((close::VERSION, _)) => Over::Final(Final::Version),
        Some((close::LEASED, _)) => Over::Leased,
        Some((code, reason)) if reason.is_empty() => Over::Lost(format!("the server closed it ({code})")),
        Some((_, reason)) => Over::Lost(format!("the server closed it: {reason}")),
        None => Over::Lost("the server closed it".to_owned()),
    }
}
