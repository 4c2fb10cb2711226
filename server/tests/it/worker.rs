//! A worker of the tests: a link client that says exactly what a test wants said.

use std::time::Duration;

use domain::{
    agent::{Asks, Mode},
    approval::{AskOption, RequestKey},
    decision::Outcome,
    digest::{ActionDigest, ActionFields, AnswerDigest},
    event::EventBody,
    id::{ApprovalId, Incarnation, RunId, SessionId},
    run::RunStatus,
    time::Timestamp,
    worker::{Capabilities, HarnessOffer, Permissions, Supported},
};
use futures::{SinkExt as _, StreamExt as _};
use link::{
    frame::{Frame, Message as _, RpcError, body},
    message::{
        Acknowledge, Bytes, Effect, EffectKind, Environment, HeldSession, Hello, PendingRequest,
        PermissionRequest, PermissionStored, Prompt, PromptOutcome, PromptReply, Resolve, ResolveOutcome,
        ResolveReply, SessionEvent, Welcome, WorkerSelf,
    },
};
use tokio_tungstenite::tungstenite::{self, Message, client::IntoClientRequest as _};
use uuid::Uuid;

use crate::product::Product;

pub type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

/// How long anything the server owes may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than the two seconds after which the server looks by itself for what is due, and
/// for what has expired.
const QUIET: Duration = Duration::from_secs(3);

pub struct Worker {
    pub socket: Socket,
    pub epoch: i64,
    pub calls: u64,
}

/// Opens the socket and says nothing; or the status and words it is refused with.
pub async fn connect(p: &Product, token: &str) -> Result<Socket, (u16, String)> {
    connect_to(&p.address, token).await
}

pub async fn connect_to(address: &str, token: &str) -> Result<Socket, (u16, String)> {
    let mut request = format!("ws://{address}/link").into_client_request().expect("a request");
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse().expect("a value"));
    match tokio_tungstenite::connect_async(request).await {
        Ok((socket, _)) => Ok(socket),
        Err(tungstenite::Error::Http(answer)) => {
            let words = answer.body().as_ref().map(|b| String::from_utf8_lossy(b).into_owned());
            Err((answer.status().as_u16(), words.unwrap_or_default()))
        }
        Err(error) => Err((0, error.to_string())),
    }
}

pub fn hello(data_folder_id: Uuid) -> Hello {
    Hello {
        protocol_versions: vec![1],
        worker: WorkerSelf {
            data_folder_id,
            instance: Uuid::now_v7(),
            host: "here".into(),
            version: "0".into(),
        },
        environment: Environment { kind: "local".into() },
        harnesses: vec![HarnessOffer {
            id: "fake".into(),
            title: "Fake".into(),
            version: "0".into(),
            capabilities: Capabilities {
                permissions: Some(Permissions { native: true, held: true, ..Default::default() }),
                ..Default::default()
            },
            modes: vec![
                Mode { id: "ask".into(), title: "Asks".into(), asks: Asks::AsNeeded },
                Mode { id: "never".into(), title: "Never asks".into(), asks: Asks::Never },
            ],
            default_mode: "ask".into(),
            default_folder: "/w".into(),
            problem: None,
        }],
        sessions: Vec::new(),
    }
}

/// Hello of a worker whose harness takes every kind of answer.
pub fn taking_everything() -> Hello {
    let mut hello = hello(Uuid::nil());
    let capabilities = &mut hello.harnesses[0].capabilities;
    capabilities.questions = Some(Supported {});
    if let Some(permissions) = &mut capabilities.permissions {
        (permissions.updated_input, permissions.message, permissions.session_grants) = (true, true, true);
    }
    hello
}

/// Hello of a worker whose session still waits for an answer.
pub fn holding(key: SessionId, run: RunId, ask: &PermissionRequest) -> Hello {
    let mut hello = hello(Uuid::nil());
    hello.sessions.push(HeldSession {
        key,
        incarnation: Some(ask.request_key.incarnation),
        run: Some(run),
        sent_seq: 0,
        acked_seq: 0,
        pending: vec![PendingRequest {
            request_key: ask.request_key.clone(),
            action_digest: ask.action_digest,
        }],
    });
    hello
}

/// The plain action every test asks for.
pub const INPUT: &[u8] = br#"{"command":"echo hi","n":9007199254740993}"#;

/// The digest of a request with what it carries now.
pub fn digest_of(ask: &PermissionRequest) -> ActionDigest {
    ActionDigest::of(ActionFields {
        request_key: &ask.request_key.to_string(),
        harness: &ask.harness,
        tool: &ask.tool,
        folder: &ask.folder,
        sub_agent: ask.sub_agent.as_deref(),
        input: &ask.input.0,
    })
}

/// The answers ACP agents offer.
pub fn options() -> Vec<AskOption> {
    vec![
        AskOption { id: "yes".into(), name: "Allow once".into(), kind: "allow_once".into() },
        AskOption { id: "always".into(), name: "Always allow".into(), kind: "allow_always".into() },
        AskOption { id: "no".into(), name: "Reject".into(), kind: "reject_once".into() },
    ]
}

impl Worker {
    pub async fn link(p: &Product, token: &str, folder: Uuid) -> Self {
        Self::link_with(p, token, &hello(folder)).await
    }

    pub async fn link_with(p: &Product, token: &str, hello: &Hello) -> Self {
        let socket = connect(p, token).await.expect("a socket");
        let mut worker = Self { socket, epoch: 0, calls: 0 };
        let welcome: Welcome = worker.call(hello).await.expect("welcome");
        worker.epoch = welcome.epoch;
        worker
    }

    pub async fn send(&mut self, frame: Frame) {
        // A link the server has ended is seen when it is read.
        let _ = self.socket.send(Message::text(frame.to_text())).await;
    }

    /// The next frame, or the code the server closed with.
    pub async fn next(&mut self) -> Result<Frame, u16> {
        loop {
            let message = tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("in time");
            match message {
                Some(Ok(Message::Text(text))) => return Ok(Frame::parse(&text).expect("a frame")),
                Some(Ok(Message::Close(Some(frame)))) => return Err(frame.code.into()),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(1006),
            }
        }
    }

    /// Calls and waits for the answer; other frames are dropped.
    pub async fn call<M: link::frame::Message>(&mut self, message: &M) -> Result<M::Reply, RpcError> {
        self.calls += 1;
        let mine = self.calls;
        self.send(Frame::call(mine, message)).await;
        loop {
            if let Frame::Answer { id, result } = self.next().await.expect("a frame")
                && id == mine
            {
                return result.map(|raw| body(&raw).expect("a reply"));
            }
        }
    }

    /// Waits for a call of the server; other frames are dropped.
    pub async fn called<M: link::frame::Message>(&mut self) -> (u64, M) {
        loop {
            if let Frame::Call { id, method, params } = self.next().await.expect("a frame")
                && method == M::METHOD
            {
                return (id, body(&params).expect("a message"));
            }
        }
    }

    pub async fn closed(&mut self) -> u16 {
        loop {
            if let Err(code) = self.next().await {
                return code;
            }
        }
    }

    /// What the server calls until it has looked by itself and found nothing more: the
    /// methods, oldest first. Then it answers a call of ours, so the link is one over which
    /// more could have come.
    pub async fn calls_until_quiet(&mut self) -> Vec<String> {
        let mut methods = Vec::new();
        let mut quiet = tokio::time::Instant::now() + QUIET;
        while let Ok(frame) = tokio::time::timeout_at(quiet, self.next()).await {
            if let Frame::Call { method, .. } = frame.expect("the link is open") {
                methods.push(method);
                quiet = tokio::time::Instant::now() + QUIET;
            }
        }
        self.calls += 1;
        let params = serde_json::value::RawValue::from_string("{}".into()).expect("JSON");
        self.send(Frame::Call { id: self.calls, method: "test/alive".into(), params }).await;
        loop {
            match self.next().await.expect("the link is open") {
                Frame::Answer { id, .. } if id == self.calls => return methods,
                Frame::Call { method, .. } => methods.push(method),
                Frame::Answer { .. } | Frame::Notify { .. } => {}
            }
        }
    }

    /// Takes a prompt that a person sends.
    pub async fn prompted(&mut self, p: &Product) -> (SessionId, RunId) {
        p.start_session(&p.admin, "").await;
        self.take_prompt().await
    }

    pub async fn take_prompt(&mut self) -> (SessionId, RunId) {
        let (id, prompt) = self.called::<Prompt>().await;
        self.reply(id, &PromptReply { outcome: PromptOutcome::Accepted, why: None }).await;
        (prompt.key, prompt.run)
    }

    pub async fn reply<T: serde::Serialize>(&mut self, id: u64, reply: &T) {
        self.send(Frame::answer(id, Ok(reply))).await;
    }

    pub fn ask(
        &self,
        key: SessionId,
        run: RunId,
        native: &str,
        incarnation: Incarnation,
    ) -> PermissionRequest {
        let mut ask = PermissionRequest {
            key,
            epoch: self.epoch,
            run,
            request_key: RequestKey { incarnation, native_id: native.into() },
            after_seq: 0,
            harness: "fake".into(),
            tool: "Bash".into(),
            folder: "/w".into(),
            sub_agent: None,
            sub_agent_title: None,
            call_id: None,
            mode: "ask".into(),
            input: Bytes(INPUT.to_vec()),
            action_digest: ActionDigest([0; 32]),
            words: None,
            options: Vec::new(),
            grants: Vec::new(),
            native_deadline_ms: None,
        };
        ask.action_digest = digest_of(&ask);
        ask
    }

    /// A run of a new session, paused on one request.
    pub async fn paused(&mut self, p: &Product) -> Paused {
        let (key, run) = self.prompted(p).await;
        let ask = self.ask(key, run, "1", Incarnation(Uuid::now_v7()));
        let stored: PermissionStored = self.call(&ask).await.expect("stored");
        Paused { key, run, ask, id: stored.approval }
    }

    /// Takes a decision and says it was applied.
    pub async fn apply(&mut self) -> Resolve {
        let (id, resolve) = self.called::<Resolve>().await;
        assert_eq!(
            resolve.answer_digest,
            AnswerDigest::of(resolve.approval, resolve.decision, resolve.action_digest, &resolve.answer)
        );
        self.reply(id, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
        resolve
    }

    pub async fn effect(&mut self, of: &Paused, effect: EffectKind) -> Result<(), RpcError> {
        let seen = Effect { key: of.key, epoch: self.epoch, request_key: of.ask.request_key.clone(), effect };
        self.call(&seen).await
    }

    pub fn event(&self, key: SessionId, run: RunId, seq: i64, body: EventBody) -> Frame {
        Frame::notify(&SessionEvent { key, epoch: self.epoch, seq, run, at: Timestamp(0), body })
    }

    /// Sends an event and waits until it is acknowledged.
    pub async fn tell(&mut self, key: SessionId, run: RunId, seq: i64, told: EventBody) {
        self.send(self.event(key, run, seq, told)).await;
        loop {
            if let Frame::Notify { method, params } = self.next().await.expect("a frame")
                && method == Acknowledge::METHOD
                && body::<Acknowledge>(&params).expect("an acknowledgement").seq >= seq
            {
                return;
            }
        }
    }
}

/// A run that waits for one answer.
#[derive(Clone, Debug)]
pub struct Paused {
    pub key: SessionId,
    pub run: RunId,
    pub ask: PermissionRequest,
    pub id: ApprovalId,
}

pub fn said(text: &str) -> EventBody {
    EventBody::Said { text: text.into(), sub_agent: None }
}

pub fn ended(status: RunStatus) -> EventBody {
    EventBody::Ended { status, detail: None }
}

/// Where a link is cut, or a server killed: at one frame, counted from hello on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A frame is not sent; one that arrives is not read.
    Before(u32),
    /// A frame is sent, or read and acted on; nothing after it.
    After(u32),
}

/// How one link of a dialogue ended.
pub enum Over {
    /// All of it is said, and the server has confirmed it.
    Done,
    /// At the fault; the socket is still open.
    Fault(Box<Worker>),
    /// The server ended the link, or none could be made.
    Lost,
}

/// A worker that does everything right, and its memory, which outlives its links as a
/// journal does: one prompt, one request, what is decided, its effect and the end. What
/// the harness does is counted here, outside the product.
pub struct Dialogue {
    token: String,
    /// This dialogue's session: prompts of others are another's.
    session: SessionId,
    incarnation: Incarnation,
    run: Option<RunId>,
    events: Vec<EventBody>,
    acked: i64,
    asked: Option<PermissionRequest>,
    stored: Option<ApprovalId>,
    applied: Option<Resolve>,
    effect_told: bool,
    /// How often the prompt was written to the harness.
    pub prompted: u32,
    /// How often the answer was written to the harness.
    pub answered: u32,
    /// What the answer was.
    pub outcome: Option<Outcome>,
}

struct Gate {
    at: Option<Fault>,
    frame: u32,
}

impl Gate {
    fn before(&mut self) -> Result<(), ()> {
        self.frame += 1;
        if self.at == Some(Fault::Before(self.frame)) { Err(()) } else { Ok(()) }
    }

    fn after(&self) -> Result<(), ()> {
        if self.at == Some(Fault::After(self.frame)) { Err(()) } else { Ok(()) }
    }
}

impl Dialogue {
    pub fn new(token: &str, session: SessionId) -> Self {
        Self {
            token: token.to_owned(),
            session,
            incarnation: Incarnation(Uuid::now_v7()),
            run: None,
            events: Vec::new(),
            acked: 0,
            asked: None,
            stored: None,
            applied: None,
            effect_told: false,
            prompted: 0,
            answered: 0,
            outcome: None,
        }
    }

    pub fn approval(&self) -> ApprovalId {
        self.stored.expect("an approval")
    }

    fn is_done(&self) -> bool {
        self.effect_told && self.acked == i64::try_from(self.events.len()).expect("few")
    }

    fn hello(&self) -> Hello {
        let mut hello = hello(Uuid::nil());
        if let Some(run) = self.run {
            let waits = self.asked.as_ref().filter(|_| self.applied.is_none());
            hello.sessions.push(HeldSession {
                key: self.session,
                incarnation: Some(self.incarnation),
                run: Some(run),
                sent_seq: i64::try_from(self.events.len()).expect("few"),
                acked_seq: self.acked,
                pending: waits
                    .map(|ask| PendingRequest {
                        request_key: ask.request_key.clone(),
                        action_digest: ask.action_digest,
                    })
                    .into_iter()
                    .collect(),
            });
        }
        hello
    }

    /// One life of the link. Returns also how many frames went over it.
    pub async fn link(&mut self, address: &str, fault: Option<Fault>) -> (Over, u32) {
        let mut gate = Gate { at: fault, frame: 0 };
        let Ok(socket) = connect_to(address, &self.token).await else { return (Over::Lost, 0) };
        let mut worker = Worker { socket, epoch: 0, calls: 0 };
        let over = match self.talk(&mut worker, &mut gate).await {
            Ok(over) => over,
            Err(()) => Over::Fault(Box::new(worker)),
        };
        (over, gate.frame)
    }

    /// Links again and again until all is said. Panics when that takes too long.
    pub async fn finish(&mut self, p: &Product) {
        let began = std::time::Instant::now();
        loop {
            let address = p.address.clone();
            match tokio::time::timeout(PATIENCE, self.link(&address, None)).await {
                Ok((Over::Done, _)) => return,
                Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(_) => {}
            }
            assert!(began.elapsed() < 3 * PATIENCE, "the dialogue does not end: {self:?}\n{}", p.said());
        }
    }

    async fn talk(&mut self, w: &mut Worker, gate: &mut Gate) -> Result<Over, ()> {
        pass(w, gate, Frame::call(1, &self.hello())).await?;
        w.calls = 1;
        loop {
            match w.next().await {
                Ok(Frame::Answer { id: 1, result }) => {
                    gate.before()?;
                    let Ok(raw) = result else { return Ok(Over::Lost) };
                    let welcome: Welcome = body(&raw).expect("welcome");
                    w.epoch = welcome.epoch;
                    if let Some(verdict) = welcome.sessions.iter().find(|s| s.key == self.session) {
                        assert_eq!(verdict.verdict, link::message::Verdict::Resume);
                        assert!(verdict.acked_seq >= self.acked, "what was acknowledged is lost");
                        self.acked = verdict.acked_seq;
                    }
                    gate.after()?;
                    break;
                }
                Ok(_) => {}
                Err(_) => return Ok(Over::Lost),
            }
        }
        let mut told = self.acked;
        let (mut asking, mut effecting) = (None, None);
        loop {
            while usize::try_from(told).expect("few") < self.events.len() {
                let body = self.events[usize::try_from(told).expect("few")].clone();
                told += 1;
                let frame = w.event(self.session, self.run.expect("a run"), told, body);
                pass(w, gate, frame).await?;
            }
            if let Some(ask) = &self.asked
                && self.stored.is_none()
                && asking.is_none()
            {
                w.calls += 1;
                asking = Some(w.calls);
                let ask = PermissionRequest { epoch: w.epoch, ..ask.clone() };
                pass(w, gate, Frame::call(w.calls, &ask)).await?;
            }
            if let Some(applied) = &self.applied
                && !self.effect_told
                && effecting.is_none()
            {
                w.calls += 1;
                effecting = Some(w.calls);
                let refused = applied.answer.outcome != Outcome::Approve;
                let effect = Effect {
                    key: self.session,
                    epoch: w.epoch,
                    request_key: applied.request_key.clone(),
                    effect: if refused { EffectKind::Refused } else { EffectKind::Ran },
                };
                pass(w, gate, Frame::call(w.calls, &effect)).await?;
            }
            if self.is_done() {
                return Ok(Over::Done);
            }
            let Ok(frame) = w.next().await else { return Ok(Over::Lost) };
            match frame {
                Frame::Answer { id, result } if Some(id) == asking => {
                    gate.before()?;
                    match result {
                        Ok(raw) => {
                            let stored: PermissionStored = body(&raw).expect("a reply");
                            assert!(self.stored.is_none_or(|s| s == stored.approval));
                            self.stored = Some(stored.approval);
                        }
                        Err(error) => {
                            assert_eq!(error.code, link::frame::UNAVAILABLE, "{error}");
                            asking = None;
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    }
                    gate.after()?;
                }
                Frame::Answer { id, result } if Some(id) == effecting => {
                    gate.before()?;
                    match result {
                        Ok(_) => self.effect_told = true,
                        Err(error) => {
                            assert_eq!(error.code, link::frame::UNAVAILABLE, "{error}");
                            effecting = None;
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    }
                    gate.after()?;
                }
                Frame::Notify { method, params } if method == Acknowledge::METHOD => {
                    let ack: Acknowledge = body(&params).expect("an acknowledgement");
                    if ack.key == self.session {
                        gate.before()?;
                        self.acked = self.acked.max(ack.seq);
                        gate.after()?;
                    }
                }
                Frame::Call { id, method, params } => {
                    gate.before()?;
                    let reply = self.order(w, id, &method, &params);
                    gate.after()?;
                    if let Some(reply) = reply {
                        pass(w, gate, reply).await?;
                    }
                }
                Frame::Answer { .. } | Frame::Notify { .. } => {}
            }
        }
    }

    /// Acts on an order of the server; what is to be said to it.
    fn order(
        &mut self,
        w: &Worker,
        id: u64,
        method: &str,
        params: &serde_json::value::RawValue,
    ) -> Option<Frame> {
        match method {
            Prompt::METHOD => {
                let prompt: Prompt = body(params).expect("a prompt");
                if prompt.key != self.session {
                    return None;
                }
                let outcome = if self.run == Some(prompt.run) {
                    PromptOutcome::AlreadyAccepted
                } else {
                    assert_eq!(self.run, None, "another prompt for the same session");
                    self.run = Some(prompt.run);
                    self.prompted += 1;
                    self.events.push(EventBody::Started { native_session: Some("n".into()), pid: None });
                    self.events.push(EventBody::Called {
                        call_id: "c".into(),
                        tool: "Bash".into(),
                        summary: "echo hi".into(),
                        input: "{}".into(),
                        sub_agent: None,
                    });
                    let mut ask = w.ask(self.session, prompt.run, "1", self.incarnation);
                    ask.after_seq = 2;
                    self.asked = Some(ask);
                    PromptOutcome::Accepted
                };
                Some(Frame::answer(id, Ok(PromptReply { outcome, why: None })))
            }
            Resolve::METHOD => {
                let resolve: Resolve = body(params).expect("a decision");
                let held = self.asked.as_ref().expect("a request");
                assert_eq!(
                    (&resolve.request_key, resolve.action_digest),
                    (&held.request_key, held.action_digest)
                );
                let digest = AnswerDigest::of(
                    resolve.approval,
                    resolve.decision,
                    resolve.action_digest,
                    &resolve.answer,
                );
                assert_eq!(resolve.answer_digest, digest);
                // An answer to its own call may be lost; the decision names the approval too.
                self.stored = Some(resolve.approval);
                let outcome = if let Some(before) = &self.applied {
                    assert_eq!(before.decision, resolve.decision, "two decisions of one request");
                    ResolveOutcome::AlreadyApplied
                } else {
                    self.answered += 1;
                    self.outcome = Some(resolve.answer.outcome);
                    self.events.push(EventBody::Returned {
                        call_id: "c".into(),
                        output: "hi".into(),
                        is_error: false,
                        left_out: 0,
                    });
                    self.events.push(ended(RunStatus::Completed));
                    self.applied = Some(resolve);
                    ResolveOutcome::Applied
                };
                Some(Frame::answer(id, Ok(ResolveReply { outcome, why: None })))
            }
            other => panic!("unexpected call {other}"),
        }
    }

    /// What must hold once all is said, in memory and in the database.
    pub async fn holds(&self, p: &Product, what: &str) {
        assert_eq!((self.prompted, self.answered), (1, 1), "{what}");
        let id = self.approval();
        let decisions: Vec<(String, String)> =
            sqlx::query_as("select outcome, delivery from decisions where approval_id = $1")
                .bind(id.0)
                .fetch_all(&p.pool)
                .await
                .expect("decisions");
        let outcome = self.outcome.expect("an outcome");
        assert_eq!(decisions, [(outcome.to_string(), "effect".to_owned())], "{what}");
        let run = self.run.expect("a run");
        let state: (String, i32) = sqlx::query_as("select status, open_approvals from runs where id = $1")
            .bind(run.0)
            .fetch_one(&p.pool)
            .await
            .expect("a run");
        assert_eq!(state, ("completed".to_owned(), 0), "{what}");
        let approvals: i64 = sqlx::query_scalar("select count(*) from approvals where run_id = $1")
            .bind(run.0)
            .fetch_one(&p.pool)
            .await
            .expect("a count");
        assert_eq!(approvals, 1, "{what}");
        let seqs: Vec<i64> = sqlx::query_scalar("select seq from run_events where run_id = $1 order by seq")
            .bind(run.0)
            .fetch_all(&p.pool)
            .await
            .expect("events");
        let all: Vec<i64> = (1..=i64::try_from(self.events.len()).expect("few")).collect();
        assert_eq!(seqs, all, "{what}");
    }
}

impl std::fmt::Debug for Dialogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialogue")
            .field("session", &self.session)
            .field("run", &self.run)
            .field("events", &self.events.len())
            .field("acked", &self.acked)
            .field("stored", &self.stored)
            .field("answered", &self.answered)
            .field("effect_told", &self.effect_told)
            .finish_non_exhaustive()
    }
}

async fn pass(w: &mut Worker, gate: &mut Gate, frame: Frame) -> Result<(), ()> {
    gate.before()?;
    w.send(frame).await;
    gate.after()
}

/// A person who decides a session's first open request as soon as it shows, whatever the
/// server and its database go through meanwhile. Ends when it is decided.
pub async fn person(address: String, cookie: String, session: SessionId, outcome: Outcome) {
    let headers = [("Cookie", cookie.as_str()), ("Accept", "application/json")];
    let began = std::time::Instant::now();
    loop {
        assert!(began.elapsed() < 4 * PATIENCE, "no request of session {session} could be decided");
        tokio::time::sleep(Duration::from_millis(10)).await;
        let path = format!("/api/session/read?id={session}");
        let read = crate::http::try_send(&address, "GET", &path, &headers, b"").await;
        let Some(read) = read.filter(|r| r.status == 200) else { continue };
        let read: serde_json::Value = serde_json::from_str(&read.body).unwrap_or_default();
        let items = read["turns"].as_array().and_then(|t| t.last()).and_then(|t| t["items"].as_array());
        let asked = items.into_iter().flatten().find_map(|i| i["approval"]["approval"].as_object());
        let Some(asked) = asked else { continue };
        if asked["row"]["status"] != "pending" {
            return;
        }
        let (id, digest) = (&asked["row"]["id"], &asked["digest"]);
        let form = format!(
            "id={}&digest={}&outcome={outcome}",
            id.as_str().expect("an id"),
            digest.as_str().expect("a digest")
        );
        let headers = [crate::http::FORM, headers[0], headers[1]];
        crate::http::try_send(&address, "POST", "/api/approval/resolve", &headers, form.as_bytes()).await;
    }
}
