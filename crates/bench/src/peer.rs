//! A worker of our own over a real link: takes prompts and asks for permission as fast
//! as the server stores.

use std::time::{Duration, Instant};

use domain::{
    agent::{Asks, Mode},
    approval::RequestKey,
    digest::{ActionDigest, ActionFields},
    id::{ApprovalId, Incarnation, RunId, SessionId},
    worker::{Capabilities, HarnessOffer, Permissions},
};
use futures::{SinkExt as _, StreamExt as _};
use link::{
    frame::{Frame, Message as _, body},
    message::{
        Bytes, Environment, Heartbeat, Hello, PermissionRequest, PermissionStored, Prompt, PromptOutcome,
        PromptReply, Resolve, ResolveOutcome, ResolveReply, Welcome, WorkerSelf,
    },
};
use tokio::{net::TcpStream, task::JoinHandle};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, tungstenite::Message};
use uuid::Uuid;

use crate::{
    Result,
    http::{self, Connection},
    load,
    product::Server,
};

/// Requests of one run, and requests under way at once.
const PER_RUN: usize = 500;
const UNDER_WAY: usize = 16;

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What was stored, and the link that answers for it until closed.
pub struct Stored {
    pub rps: f64,
    pub asked: Vec<(ApprovalId, ActionDigest)>,
    answering: JoinHandle<()>,
}

impl Stored {
    pub async fn close(self) {
        self.answering.abort();
        let _ = self.answering.await;
    }
}

/// Links, starts sessions, and stores `n` permission requests over them.
pub async fn store(server: &Server, n: usize) -> Result<Stored> {
    let (mut socket, epoch) = link(server).await?;
    let agent = server.agent("Bench").await?;
    let mut http = Connection::open(&server.address).await?;
    for i in 0..n.div_ceil(PER_RUN) {
        let form = format!("agent={agent}&prompt={}", http::encoded(&format!("Bench session {i}")));
        http.send(&http::Request::post("/api/session/start", &server.cookie, &form)).await?;
    }
    let incarnation = Incarnation(Uuid::now_v7());
    let mut runs: Vec<(SessionId, RunId)> = Vec::new();
    while runs.len() < n.div_ceil(PER_RUN) {
        if let Frame::Call { id, method, params } = next(&mut socket).await?
            && method == Prompt::METHOD
        {
            let prompt: Prompt = body(&params)?;
            let reply = PromptReply { outcome: PromptOutcome::Accepted, why: None };
            send(&mut socket, Frame::answer(id, Ok(reply))).await?;
            runs.push((prompt.key, prompt.run));
        }
    }
    let mut asked = vec![None; n];
    let began = Instant::now();
    let (mut sent, mut stored) = (0, 0);
    while stored < n {
        while sent < n && sent - stored < UNDER_WAY {
            let (key, run) = runs[sent / PER_RUN];
            let ask = request(key, run, epoch, incarnation, sent);
            asked[sent] = Some((ApprovalId(Uuid::nil()), ask.action_digest));
            send(&mut socket, Frame::call(sent as u64, &ask)).await?;
            sent += 1;
        }
        if let Frame::Answer { id, result } = next(&mut socket).await? {
            let reply: PermissionStored = body(&result?)?;
            let place = usize::try_from(id)?;
            if let Some(Some(entry)) = asked.get_mut(place) {
                entry.0 = reply.approval;
            }
            stored += 1;
        }
    }
    let rps = (load::float(n) / began.elapsed().as_secs_f64()).round();
    let answering = tokio::spawn(async move {
        let mut beat = tokio::time::interval(Duration::from_secs(10));
        loop {
            tokio::select! {
                frame = next(&mut socket) => match frame {
                    Ok(Frame::Call { id, method, .. }) if method == Resolve::METHOD => {
                        let reply = ResolveReply { outcome: ResolveOutcome::Applied, why: None };
                        if send(&mut socket, Frame::answer(id, Ok(reply))).await.is_err() { return; }
                    }
                    Ok(_) => {}
                    Err(_) => return,
                },
                _ = beat.tick() => {
                    if send(&mut socket, Frame::notify(&Heartbeat {})).await.is_err() { return; }
                }
            }
        }
    });
    Ok(Stored { rps, asked: asked.into_iter().flatten().collect(), answering })
}

fn request(key: SessionId, run: RunId, epoch: i64, incarnation: Incarnation, i: usize) -> PermissionRequest {
    let request_key = RequestKey { incarnation, native_id: i.to_string() };
    let input = format!(r#"{{"command":"echo {i} >> /srv/bench/out.txt","description":"Note a number"}}"#);
    let action_digest = ActionDigest::of(ActionFields {
        request_key: &request_key.to_string(),
        harness: "bench",
        tool: "Bash",
        folder: "/srv/bench",
        sub_agent: None,
        input: input.as_bytes(),
    });
    PermissionRequest {
        key,
        epoch,
        run,
        request_key,
        after_seq: 0,
        harness: "bench".into(),
        tool: "Bash".into(),
        folder: "/srv/bench".into(),
        sub_agent: None,
        sub_agent_title: None,
        call_id: Some(i.to_string()),
        mode: "default".into(),
        input: Bytes(input.into_bytes()),
        action_digest,
        words: Some("Note a number".into()),
        options: Vec::new(),
        grants: Vec::new(),
        native_deadline_ms: None,
    }
}

async fn link(server: &Server) -> Result<(Socket, i64)> {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let token = server.worker_token("bench").await?;
    let mut request = format!("ws://{}/link", server.address).into_client_request()?;
    request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
    let (mut socket, _) = tokio_tungstenite::connect_async_with_config(request, None, true).await?;
    let offer = HarnessOffer {
        id: "bench".into(),
        title: "Bench".into(),
        version: String::new(),
        capabilities: Capabilities {
            permissions: Some(Permissions { native: true, held: true, ..Default::default() }),
            ..Default::default()
        },
        modes: vec![Mode { id: "default".into(), title: "Asks".into(), asks: Asks::AsNeeded }],
        default_mode: "default".into(),
        default_folder: "/srv/bench".into(),
        problem: None,
    };
    let hello = Hello {
        protocol_versions: vec![1],
        worker: WorkerSelf {
            data_folder_id: Uuid::now_v7(),
            instance: Uuid::now_v7(),
            host: "bench".into(),
            version: "0".into(),
        },
        environment: Environment { kind: "local".into() },
        harnesses: vec![offer],
        sessions: Vec::new(),
    };
    send(&mut socket, Frame::call(0, &hello)).await?;
    loop {
        if let Frame::Answer { result, .. } = next(&mut socket).await? {
            let welcome: Welcome = body(&result?)?;
            return Ok((socket, welcome.epoch));
        }
    }
}

async fn next(socket: &mut Socket) -> Result<Frame> {
    loop {
        match socket.next().await.ok_or("the link closed")?? {
            Message::Text(text) => return Ok(Frame::parse(&text)?),
            Message::Close(why) => return Err(format!("the link closed: {why:?}").into()),
            _ => {}
        }
    }
}

async fn send(socket: &mut Socket, frame: Frame) -> Result<()> {
    Ok(socket.send(Message::text(frame.to_text())).await?)
}
