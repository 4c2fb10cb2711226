//! A server of the link, in the test: it stores what arrives and says when to fail.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    approval::RequestKey,
    event::EventBody,
    id::{ApprovalId, SessionId},
};
use futures::{SinkExt as _, StreamExt as _};
use link::{
    frame::{Frame, Message as LinkMessage, RpcError, UNAVAILABLE, body},
    message::{
        Acknowledge, Effect, EffectKind, Heartbeat, Hello, PermissionRequest, PermissionStored, SessionEvent,
        SessionVerdict, Verdict, WINDOW, Welcome, Withdrawn,
    },
    sequence::{Arrival, arrival},
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, mpsc},
    time::timeout,
};
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::StatusCode,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};
use uuid::Uuid;
use worker::uplink::{CallError, Link};

pub const TOKEN: &str = "cs_worker_good";
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the server cuts a link, counted over all links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Instead of taking the nth frame of the worker.
    BeforeTaking(u32),
    /// After the nth frame was stored, before anything is said about it.
    AfterTaking(u32),
    /// Instead of sending the nth frame.
    BeforeSending(u32),
    /// After the nth frame was sent.
    AfterSending(u32),
}

/// What a test may look at and change.
#[derive(Default)]
pub struct Seen {
    pub hellos: Vec<Hello>,
    pub events: Vec<SessionEvent>,
    /// Events that came although one before them was missing.
    pub gaps: u32,
    pub repeated: u32,
    pub requests: Vec<PermissionRequest>,
    pub approvals: Vec<(RequestKey, ApprovalId)>,
    pub withdrawn: Vec<Withdrawn>,
    pub effects: Vec<(RequestKey, EffectKind)>,
    pub refuse_to_store: bool,
    pub keep_acks: bool,
    pub verdict: Option<Verdict>,
    pub refuse_links: bool,
    /// How often that was done.
    pub links_refused: u32,
    /// Requests that were not stored.
    pub not_taken: u32,
    /// Where the next link is cut; gone once it was.
    pub cut: Option<Cut>,
    /// Frames taken and sent over all links.
    taken: u32,
    sent: u32,
    pub lease_ttl_s: Option<u64>,
    link: Option<Link>,
    close: Option<mpsc::UnboundedSender<u16>>,
}

impl Seen {
    fn next_taken(&mut self) -> u32 {
        self.taken += 1;
        self.taken
    }

    fn next_sent(&mut self) -> u32 {
        self.sent += 1;
        self.sent
    }

    /// Whether the link is cut here.
    fn cuts(&mut self, here: Cut) -> bool {
        self.cut.take_if(|cut| *cut == here).is_some()
    }

    pub fn stored(&self, key: SessionId) -> i64 {
        self.events.iter().filter(|e| e.key == key).map(|e| e.seq).max().unwrap_or_default()
    }

    pub fn said(&self) -> String {
        let said = self.events.iter().filter_map(|e| match &e.body {
            EventBody::Said { text, .. } => Some(text.as_str()),
            _ => None,
        });
        said.collect()
    }
}

#[derive(Clone)]
pub struct Server {
    pub port: u16,
    pub seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, seen: Arc::default(), changed: Arc::default() };
        let accepting = server.clone();
        tokio::spawn(async move {
            let mut epoch = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let refused = {
                    let mut seen = accepting.seen.lock().unwrap();
                    seen.links_refused += u32::from(seen.refuse_links);
                    seen.refuse_links
                };
                if refused {
                    accepting.changed.notify_waiters();
                    continue;
                }
                epoch += 1;
                let server = accepting.clone();
                tokio::spawn(async move { server.link(stream, epoch).await });
            }
        });
        server
    }

    async fn link(&self, stream: TcpStream, epoch: i64) -> Option<()> {
        stream.set_nodelay(true).unwrap();
        #[expect(clippy::result_large_err, reason = "the type is the library's")]
        let check = |request: &Request, response: Response| {
            let good = format!("Bearer {TOKEN}");
            if request.uri().path() == "/link"
                && request.headers().get("authorization").is_some_and(|h| h == good.as_str())
            {
                return Ok(response);
            }
            let mut refused = ErrorResponse::new(None);
            *refused.status_mut() = StatusCode::UNAUTHORIZED;
            Err(refused)
        };
        let socket = accept_hdr_async(stream, check).await.ok()?;
        let (mut sink, mut stream) = socket.split();
        let (out, mut frames) = mpsc::unbounded_channel::<String>();
        let (close, mut closes) = mpsc::unbounded_channel::<u16>();
        let link = Link::new(out).with_epoch(epoch);
        let seen = Arc::clone(&self.seen);
        let mut writing = tokio::spawn(async move {
            loop {
                tokio::select! {
                    frame = frames.recv() => {
                        let Some(frame) = frame else { return };
                        let n = seen.lock().unwrap().next_sent();
                        let is_cut = seen.lock().unwrap().cuts(Cut::BeforeSending(n));
                        if is_cut || sink.send(Message::text(frame)).await.is_err() {
                            return;
                        }
                        let is_cut = seen.lock().unwrap().cuts(Cut::AfterSending(n));
                        if is_cut {
                            return;
                        }
                    }
                    Some(code) = closes.recv() => {
                        if code > 0 {
                            let frame = CloseFrame { code: CloseCode::from(code), reason: "".into() };
                            let _ = sink.send(Message::Close(Some(frame))).await;
                        }
                        return;
                    }
                }
            }
        });
        self.seen.lock().unwrap().close = Some(close);
        loop {
            let message = tokio::select! {
                message = stream.next() => message,
                _ = &mut writing => break,
            };
            let Some(Ok(message)) = message else { break };
            let Message::Text(text) = message else { continue };
            let n = self.seen.lock().unwrap().next_taken();
            if self.seen.lock().unwrap().cuts(Cut::BeforeTaking(n)) {
                break;
            }
            match Frame::parse(&text).unwrap() {
                Frame::Answer { id, result } => link.answered(id, result),
                Frame::Notify { method, params } => {
                    if method == SessionEvent::METHOD {
                        self.event(&link, body(&params).unwrap());
                    } else if method == Heartbeat::METHOD {
                        link.notify(&Heartbeat {});
                    }
                }
                Frame::Call { id, method, params } => self.called(&link, id, &method, &params),
            }
            self.changed.notify_waiters();
            if self.seen.lock().unwrap().cuts(Cut::AfterTaking(n)) {
                break;
            }
        }
        writing.abort();
        link.close();
        let mut seen = self.seen.lock().unwrap();
        seen.link = seen.link.take().filter(|l| l.epoch != epoch);
        self.changed.notify_waiters();
        Some(())
    }

    fn event(&self, link: &Link, event: SessionEvent) {
        let mut seen = self.seen.lock().unwrap();
        assert_eq!(event.epoch, link.epoch);
        let (key, seq) = (event.key, event.seq);
        match arrival(seen.stored(key), seq) {
            Arrival::Next => seen.events.push(event),
            Arrival::Repeated => seen.repeated += 1,
            Arrival::Gap => seen.gaps += 1,
        }
        if !seen.keep_acks {
            link.notify(&Acknowledge { key, seq: seen.stored(key) });
        }
    }

    fn called(&self, link: &Link, id: u64, method: &str, params: &serde_json::value::RawValue) {
        let mut seen = self.seen.lock().unwrap();
        let frame = match method {
            Hello::METHOD => {
                let hello: Hello = body(params).unwrap();
                let verdict = seen.verdict.unwrap_or(Verdict::Resume);
                let sessions = hello
                    .sessions
                    .iter()
                    .map(|s| SessionVerdict { key: s.key, verdict, acked_seq: seen.stored(s.key) })
                    .collect();
                seen.hellos.push(hello);
                seen.link = Some(link.clone());
                let welcome = Welcome {
                    protocol_version: 1,
                    epoch: link.epoch,
                    worker_name: "test".into(),
                    lease_ttl_s: seen.lease_ttl_s.unwrap_or(45),
                    heartbeat_s: 15,
                    max_frame: link::frame::MAX_FRAME,
                    window: WINDOW,
                    sessions,
                };
                Frame::answer(id, Ok(welcome))
            }
            PermissionRequest::METHOD if seen.refuse_to_store => {
                seen.not_taken += 1;
                Frame::answer::<()>(id, Err(RpcError::new(UNAVAILABLE, "no")))
            }
            PermissionRequest::METHOD => {
                let request: PermissionRequest = body(params).unwrap();
                let key = request.request_key.clone();
                let known = seen.approvals.iter().find(|(k, _)| *k == key).map(|(_, a)| *a);
                let approval = known.unwrap_or_else(|| {
                    let approval = ApprovalId(Uuid::now_v7());
                    seen.approvals.push((key, approval));
                    seen.requests.push(request);
                    approval
                });
                Frame::answer(id, Ok(PermissionStored { approval, remaining_ms: 900_000 }))
            }
            Withdrawn::METHOD => {
                seen.withdrawn.push(body(params).unwrap());
                Frame::answer(id, Ok(()))
            }
            Effect::METHOD => {
                let effect: Effect = body(params).unwrap();
                seen.effects.push((effect.request_key, effect.effect));
                Frame::answer(id, Ok(()))
            }
            other => panic!("unexpected call {other}"),
        };
        link.send(frame);
    }

    /// Waits until `look` finds something.
    pub async fn see<T>(&self, what: &str, mut look: impl FnMut(&Seen) -> Option<T>) -> T {
        let found = timeout(PATIENCE, async {
            loop {
                let changed = self.changed.notified();
                if let Some(found) = look(&self.seen.lock().unwrap()) {
                    return found;
                }
                changed.await;
            }
        });
        if let Ok(found) = found.await {
            return found;
        }
        let seen = self.seen.lock().unwrap();
        panic!("never seen: {what}; events: {:#?}; withdrawn: {:?}", seen.events, seen.withdrawn)
    }

    pub fn set(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock().unwrap());
    }

    pub fn epoch(&self) -> i64 {
        self.seen.lock().unwrap().link.as_ref().map_or(0, |l| l.epoch)
    }

    pub async fn call<M: LinkMessage>(&self, message: &M) -> Result<M::Reply, CallError> {
        let link = self.seen.lock().unwrap().link.clone().expect("a worker is linked");
        link.call(message).await
    }

    /// A call as the real server makes it: given up with its link, to be made again.
    pub async fn try_call<M: LinkMessage>(&self, message: &M) -> Option<Result<M::Reply, CallError>> {
        let link = self.seen.lock().unwrap().link.clone()?;
        timeout(Duration::from_secs(3), link.call(message)).await.ok()
    }

    /// Waits until something has happened, or a moment has passed.
    pub async fn changed(&self) {
        let _ = timeout(Duration::from_millis(20), self.changed.notified()).await;
    }

    /// Ends the present link, with a close code or without a word.
    pub fn cut(&self, code: u16) {
        if let Some(close) = &self.seen.lock().unwrap().close {
            let _ = close.send(code);
        }
    }
}
