//! A worker process with its data folder, and the server it links to.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use domain::{
    agent::AgentSpec,
    approval::RequestKey,
    decision::{Answer, Outcome},
    digest::AnswerDigest,
    event::EventBody,
    id::{AgentId, ApprovalId, DecisionId, RunId, SessionId},
    run::RunStatus,
};
use link::{
    frame::UNAVAILABLE,
    message::{
        Cancel, CancelOutcome, EffectKind, PermissionRequest, Prompt, PromptReply, Resolve, ResolveReply,
    },
};
use tokio::{
    process::{Child, Command},
    time::timeout,
};
use uuid::Uuid;
use worker::{
    hold::wire::Held,
    journal::{Journal, State},
    uplink::CallError,
};

use crate::{
    process::{ends, is_holder_of, kill, pid},
    server::{Server, TOKEN},
};

pub struct World {
    pub server: Server,
    pub folder: PathBuf,
    /// The worker's data folder.
    pub data: PathBuf,
    pub session: SessionId,
    pub harness: &'static str,
    pub mode: String,
    pub asks_everything: bool,
    pub hitl_timeout_s: i64,
    pub env: Vec<(String, String)>,
    worker: Option<Child>,
    /// Removed at the end, besides the folder.
    pub litter: Vec<PathBuf>,
}

pub fn approve(option: Option<&str>) -> Answer {
    Answer { option_id: option.map(str::to_owned), ..Answer::plain(Outcome::Approve) }
}

pub fn reject(option: Option<&str>, message: Option<&str>) -> Answer {
    Answer { outcome: Outcome::Reject, message: message.map(str::to_owned), ..approve(option) }
}

impl World {
    /// A worker linked to a new server, offering the demo agent, in mode `ask`.
    pub async fn demo() -> Self {
        let demo =
            PathBuf::from(env!("CARGO_BIN_EXE_countersign-worker")).with_file_name("countersign-demo-agent");
        assert!(demo.is_file(), "build the demo agent first: cargo build -p demo-agent");
        Self::new("demo", "ask", Vec::new()).await
    }

    /// A worker whose demo agent is a shell script that has done the handshake; `body`
    /// goes on with the prompt in `$line`. `ask ID COMMAND` asks for permission, `result` and
    /// `refused` tell what became of a call.
    pub async fn scripted(body: &str) -> Self {
        let mut world = Self::scripted_without_worker(body).await;
        world.start().await;
        world
    }

    pub async fn scripted_without_worker(body: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cs-script-{}", Uuid::new_v4().simple()));
        let head = r#"#!/bin/sh
[ "$1" = --version ] && { echo 1; exit; }
ask() {
  echo '{"jsonrpc":"2.0","id":'$1',"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"c'$1'","kind":"execute","rawInput":{"command":"'$2'"}},"options":[{"optionId":"a","name":"A","kind":"allow_once"},{"optionId":"r","name":"R","kind":"reject_once"}]}}'
}
became() {
  echo '{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"'$1'","status":"'$2'","content":[]}}}'
}
result() { became $1 completed; }
refused() { became $1 failed; }
take() { read -r line && echo "$line" >> answers; }
over() { echo '{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn"}}'; }
read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}'
read -r line; echo '{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","modes":{"currentModeId":"ask"}}}'
read -r line; echo '{"jsonrpc":"2.0","id":3,"result":{}}'
read -r line || exit
"#;
        std::fs::write(&path, format!("{head}{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let env = vec![("COUNTERSIGN_DEMO_AGENT".to_owned(), path.display().to_string())];
        let mut world = Self::without_worker("demo", "ask", env).await;
        world.litter.push(path);
        world
    }

    pub async fn new(harness: &'static str, mode: &str, env: Vec<(String, String)>) -> Self {
        let mut world = Self::without_worker(harness, mode, env).await;
        world.start().await;
        world
    }

    pub async fn without_worker(harness: &'static str, mode: &str, env: Vec<(String, String)>) -> Self {
        let folder = std::env::temp_dir().join(format!("cs-worker-{}", Uuid::new_v4().simple()));
        std::fs::create_dir_all(folder.join("work")).unwrap();
        std::fs::write(folder.join("token"), format!("{TOKEN}\n")).unwrap();
        Self {
            server: Server::start().await,
            data: folder.join("data"),
            folder,
            session: SessionId(Uuid::now_v7()),
            harness,
            mode: mode.to_owned(),
            asks_everything: false,
            hitl_timeout_s: 900,
            env,
            worker: None,
            litter: Vec::new(),
        }
    }

    pub fn command(&self) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_countersign-worker")))
    }

    /// The worker's command, where its program lies elsewhere.
    pub fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .arg("run")
            .arg("--server")
            .arg(format!("http://127.0.0.1:{}", self.server.port))
            .arg("--token-file")
            .arg(self.folder.join("token"))
            .arg("--data")
            .arg(&self.data)
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null());
        command
    }

    pub async fn start(&mut self) {
        let links = self.server.seen.lock().unwrap().hellos.len();
        self.worker = Some(self.command().spawn().unwrap());
        self.linked(links + 1).await;
    }

    /// Starts the worker without waiting for its link. `more` is for this life only.
    pub fn spawn(&mut self, more: &[(&str, String)]) {
        let mut command = self.command();
        command.envs(more.iter().map(|(name, value)| (*name, value)));
        self.worker = Some(command.spawn().unwrap());
    }

    /// Starts the worker from a program that lies elsewhere.
    pub fn spawn_from(&mut self, program: &Path) {
        self.worker = Some(self.command_of(program).spawn().unwrap());
    }

    /// Starts the worker with its standard error in the file `stderr`.
    pub fn spawn_logged(&mut self) {
        let mut command = self.command();
        command.stderr(std::fs::File::create(self.folder.join("stderr")).unwrap());
        self.worker = Some(command.spawn().unwrap());
    }

    /// Whether the worker has ended by itself; it is gone afterwards.
    pub fn has_died(&mut self) -> bool {
        let died = self.worker.as_mut().is_some_and(|w| w.try_wait().unwrap().is_some());
        if died {
            self.worker = None;
        }
        died
    }

    pub fn worker_pid(&self) -> rustix::process::Pid {
        let id = self.worker.as_ref().and_then(Child::id).unwrap();
        rustix::process::Pid::from_raw(id.cast_signed()).unwrap()
    }

    pub async fn linked(&self, times: usize) {
        self.server.see("a link", |seen| (seen.hellos.len() >= times).then_some(())).await;
    }

    /// Ends the worker by a signal and gives its exit code.
    pub async fn end(&mut self, signal: rustix::process::Signal) -> Option<i32> {
        let mut worker = self.worker.take().unwrap();
        let pid = rustix::process::Pid::from_raw(worker.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        timeout(Duration::from_secs(20), worker.wait()).await.unwrap().unwrap().code()
    }

    pub async fn exit_code(&mut self) -> Option<i32> {
        let mut worker = self.worker.take().unwrap();
        timeout(Duration::from_secs(20), worker.wait()).await.unwrap().unwrap().code()
    }

    pub async fn kill(&mut self) {
        self.end(rustix::process::Signal::KILL).await;
    }

    pub fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join("work").join(name)).ok()
    }

    /// Waits until the agent has written to a file: an answer was handed over before it was
    /// read.
    pub async fn appears(&self, name: &str) {
        for _ in 0..800 {
            if self.file(name).is_some_and(|text| text.is_empty() || text.ends_with('\n')) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("{name} was never written");
    }

    pub async fn prompt(&self, run: RunId, text: &str) -> PromptReply {
        self.server.call(&self.prompting(run, text)).await.unwrap()
    }

    pub fn prompting(&self, run: RunId, text: &str) -> Prompt {
        let agent = AgentSpec {
            id: AgentId(Uuid::nil()),
            name: "Agent".into(),
            harness: self.harness.into(),
            folder: self.folder.join("work").display().to_string(),
            mode: self.mode.clone(),
            asks_everything: self.asks_everything,
            hitl_timeout_s: self.hitl_timeout_s,
        };
        Prompt {
            key: self.session,
            epoch: self.server.epoch(),
            run,
            agent,
            text: text.into(),
            native_session: None,
        }
    }

    pub async fn begin(&self, text: &str) -> RunId {
        let run = RunId(Uuid::now_v7());
        let reply = self.prompt(run, text).await;
        assert_eq!(reply.why, None);
        run
    }

    /// The `n`th stored request, from 0 on.
    pub async fn request(&self, n: usize) -> (PermissionRequest, ApprovalId) {
        self.server
            .see("a request", |seen| {
                let request = seen.requests.get(n)?.clone();
                let approval = seen.approvals.iter().find(|(k, _)| *k == request.request_key)?.1;
                Some((request, approval))
            })
            .await
    }

    pub fn decision(&self, asked: &(PermissionRequest, ApprovalId), answer: Answer) -> Resolve {
        let (request, approval) = asked;
        let decision = DecisionId(Uuid::now_v7());
        Resolve {
            key: self.session,
            epoch: self.server.epoch(),
            approval: *approval,
            request_key: request.request_key.clone(),
            decision,
            action_digest: request.action_digest,
            answer_digest: AnswerDigest::of(*approval, decision, request.action_digest, &answer),
            answer,
            decided_by: Some("Ada".into()),
        }
    }

    pub async fn resolve(&self, asked: &(PermissionRequest, ApprovalId), answer: Answer) -> ResolveReply {
        let decision = self.decision(asked, answer);
        for _ in 0..4 {
            match self.server.call(&decision).await {
                // A slow agent takes a large answer slowly.
                Err(CallError::Late) => {}
                reply => return reply.unwrap(),
            }
        }
        panic!("nobody says what became of the decision")
    }

    pub async fn cancel(&self, run: RunId) -> CancelOutcome {
        for _ in 0..100 {
            let cancel = Cancel { key: self.session, epoch: self.server.epoch(), run };
            match self.server.call(&cancel).await {
                // It may come before the session knows its link; the server asks again.
                Err(CallError::Refused(error)) if error.code == UNAVAILABLE => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                reply => return reply.unwrap().outcome,
            }
        }
        panic!("the worker does not take the cancel")
    }

    pub async fn ended(&self, run: RunId) -> (RunStatus, Option<String>) {
        self.server
            .see("the end of the run", |seen| {
                seen.events.iter().filter(|e| e.run == run).find_map(|e| match &e.body {
                    EventBody::Ended { status, detail } => Some((*status, detail.clone())),
                    _ => None,
                })
            })
            .await
    }

    pub async fn effect(&self, key: &RequestKey) -> EffectKind {
        self.server
            .see("an effect", |seen| seen.effects.iter().find(|(k, _)| k == key).map(|(_, e)| *e))
            .await
    }

    /// The process the newest run was started in.
    pub async fn pid(&self, run: RunId) -> u32 {
        self.server
            .see("a start", |seen| {
                seen.events.iter().filter(|e| e.run == run).find_map(|e| match &e.body {
                    EventBody::Started { pid, .. } => *pid,
                    _ => None,
                })
            })
            .await
    }

    /// The holders that run, as they describe themselves.
    pub fn holders(&self) -> Vec<Held> {
        let sessions = std::fs::read_dir(self.data.join("sessions")).into_iter().flatten().flatten();
        let folders = sessions.flat_map(|s| std::fs::read_dir(s.path()).into_iter().flatten().flatten());
        let described = folders.filter_map(|folder| {
            let text = std::fs::read(folder.path().join("holder.json")).ok()?;
            let held = serde_json::from_slice::<Held>(&text).ok()?;
            is_holder_of(held.holder, &folder.path()).then_some(held)
        });
        described.collect()
    }

    /// Kills every holder, and with it its harness.
    pub async fn kill_holders(&self) {
        for held in self.holders() {
            kill(held.holder);
            ends(held.holder).await;
            ends(held.pid).await;
        }
    }

    /// What the worker's journal comes to so far, read from a copy.
    pub fn journaled(&self) -> State {
        let journal = self.data.join("sessions").join(self.session.to_string()).join("journal.jsonl");
        let copy = self.folder.join(format!("journal-{}", Uuid::new_v4().simple()));
        if std::fs::copy(journal, &copy).is_err() {
            return State::default();
        }
        Journal::open(&copy).unwrap().1
    }

    /// Waits until the worker has journalled something.
    pub async fn journals(&self, what: &str, look: impl Fn(&State) -> bool) {
        for _ in 0..1200 {
            if look(&self.journaled()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!("never journalled: {what}");
    }

    pub fn no_gap(&self) {
        assert_eq!(self.server.seen.lock().unwrap().gaps, 0);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(worker) = &mut self.worker {
            let _ = worker.start_kill();
        }
        // What a killed worker left: its holders.
        for held in self.holders() {
            let _ = rustix::process::kill_process(pid(held.holder), rustix::process::Signal::TERM);
        }
        // Its own socket folder and no other: by name, and only what is in it of ours.
        if let Ok(data) = self.data.canonicalize() {
            let _ = std::fs::remove_dir_all(worker::folder::socket_folder_of(&data));
        }
        if std::thread::panicking() {
            eprintln!("left for a look: {}", self.folder.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
            for path in &self.litter {
                let _ = std::fs::remove_dir_all(path).or_else(|_| std::fs::remove_file(path));
            }
        }
    }
}
