//! The agent side of ACP v1, as much as one session with one prompt at a time needs.
//!
//! Everything arrives over one channel, so a cancel is seen wherever the agent waits:
//! for an answer, for a command, for time to pass.

use std::{
    collections::BTreeMap,
    io::{Read as _, Write},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    place::Place,
    script::{self, GUIDE, Step},
};

/// The most bytes of a command's output that are told.
const OUTPUT_MAX: usize = 16 * 1024;
/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Ask,
    Auto,
}

impl Mode {
    const fn id(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Auto => "auto",
        }
    }

    fn named(id: &str) -> Option<Self> {
        [Self::Ask, Self::Auto].into_iter().find(|m| m.id() == id)
    }
}

/// Why a prompt ends before its last step.
enum Stop {
    Cancelled,
    /// The client closed our input.
    Gone,
}

/// What a permission request came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Rejected,
}

/// An act that needs permission.
struct Act {
    call: String,
    title: String,
    kind: &'static str,
    input: Value,
    what: What,
}

enum What {
    Append { place: Place, content: String },
    Run { command: String },
}

pub struct Agent<W: Write> {
    inbox: Receiver<String>,
    out: W,
    session: Option<String>,
    folder: PathBuf,
    mode: Mode,
    next_id: u64,
    calls: u64,
    /// Answers that came before anyone waited for them.
    answers: BTreeMap<u64, Value>,
    cancelled: bool,
    /// The client's open `session/prompt`.
    prompt: Option<Value>,
}

impl<W: Write> Agent<W> {
    pub fn new(inbox: Receiver<String>, out: W) -> Self {
        Self {
            inbox,
            out,
            session: None,
            folder: PathBuf::new(),
            mode: Mode::Ask,
            next_id: 0,
            calls: 0,
            answers: BTreeMap::new(),
            cancelled: false,
            prompt: None,
        }
    }

    /// Serves until the client is gone.
    pub fn serve(mut self) {
        while let Ok(line) = self.inbox.recv() {
            let Some((id, text)) = self.take(&line) else { continue };
            self.cancelled = false;
            self.prompt = Some(id.clone());
            let reason = match self.carry_out(&script::read(&text)) {
                Ok(()) => "end_turn",
                Err(Stop::Cancelled) => "cancelled",
                Err(Stop::Gone) => return,
            };
            self.prompt = None;
            self.answers.clear();
            self.send(&json!({"jsonrpc": "2.0", "id": id, "result": {"stopReason": reason}}));
        }
    }

    /// Handles one line. A prompt is given back, to be carried out by the caller.
    fn take(&mut self, line: &str) -> Option<(Value, String)> {
        let message: Value = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(error) => {
                if !line.trim().is_empty() {
                    let error = json!({"code": -32700, "message": error.to_string()});
                    self.send(&json!({"jsonrpc": "2.0", "id": null, "error": error}));
                }
                return None;
            }
        };
        let id = message.get("id").cloned();
        let params = &message["params"];
        let Some(method) = message["method"].as_str() else {
            if let Some(id) = id.and_then(|id| id.as_u64()) {
                self.answers.insert(id, message["result"]["outcome"].clone());
            }
            return None;
        };
        let Some(id) = id else {
            if method == "session/cancel" {
                self.cancelled = true;
            }
            return None;
        };
        let result = match method {
            "initialize" => Ok(json!({
                "protocolVersion": 1,
                "agentCapabilities": {"loadSession": false, "promptCapabilities": {}},
                "agentInfo": {"name": "countersign-demo-agent", "title": "Demo agent",
                              "version": env!("CARGO_PKG_VERSION")},
                "authMethods": [],
            })),
            "session/new" => self.new_session(params),
            "session/set_mode" => self.set_mode(params),
            "session/prompt" => match self.prompt_text(params) {
                Ok(text) => return Some((id, text)),
                Err(error) => Err(error),
            },
            _ => Err((-32601, format!("\"{method}\" is not known here."))),
        };
        match result {
            Ok(result) => self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result})),
            Err((code, message)) => {
                let error = json!({"code": code, "message": message});
                self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
            }
        }
        None
    }

    fn new_session(&mut self, params: &Value) -> Result<Value, (i32, String)> {
        if self.session.is_some() {
            return Err((-32000, "This agent serves one session.".to_owned()));
        }
        let cwd = PathBuf::from(params["cwd"].as_str().unwrap_or_default());
        if !cwd.is_absolute() || !cwd.is_dir() {
            return Err((-32602, "cwd must be an absolute path of a folder.".to_owned()));
        }
        self.folder = cwd;
        let session = uuid::Uuid::new_v4().to_string();
        self.session = Some(session.clone());
        Ok(json!({
            "sessionId": session,
            "modes": {
                "currentModeId": self.mode.id(),
                "availableModes": [
                    {"id": "ask", "name": "Ask", "description": "Asks before every write"},
                    {"id": "auto", "name": "Auto", "description": "Writes without asking"},
                ],
            },
        }))
    }

    fn set_mode(&mut self, params: &Value) -> Result<Value, (i32, String)> {
        let id = params["modeId"].as_str().unwrap_or_default();
        let mode = Mode::named(id).ok_or_else(|| (-32602, format!("There is no mode \"{id}\".")))?;
        self.check_session(params)?;
        self.mode = mode;
        self.update(&json!({"sessionUpdate": "current_mode_update", "currentModeId": mode.id()}));
        Ok(json!({}))
    }

    fn prompt_text(&self, params: &Value) -> Result<String, (i32, String)> {
        self.check_session(params)?;
        if self.prompt.is_some() {
            return Err((-32000, "Another prompt is still going on.".to_owned()));
        }
        let blocks = params["prompt"].as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<&str> = blocks.iter().filter_map(|b| b["text"].as_str()).collect();
        Ok(texts.join("\n"))
    }

    fn check_session(&self, params: &Value) -> Result<(), (i32, String)> {
        if params["sessionId"].as_str().is_some_and(|s| self.session.as_deref() == Some(s)) {
            return Ok(());
        }
        Err((-32002, "There is no such session.".to_owned()))
    }

    fn send(&mut self, message: &Value) {
        // A client that is gone shows on the input; nothing is to be done here.
        let _ = writeln!(self.out, "{message}").and_then(|()| self.out.flush());
    }

    fn update(&mut self, update: &Value) {
        let session = self.session.clone();
        self.send(&json!({"jsonrpc": "2.0", "method": "session/update",
                          "params": {"sessionId": session, "update": update}}));
    }

    fn say(&mut self, text: &str) {
        let content = json!({"type": "text", "text": format!("{text}\n")});
        self.update(&json!({"sessionUpdate": "agent_message_chunk", "content": content}));
    }

    /// Waits until `ready` says so, the time is up, or the prompt is to stop. `look` is
    /// how often to ask `ready` where no line of the client would make it so.
    fn wait(
        &mut self,
        until: Option<Instant>,
        look: Option<Duration>,
        mut ready: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), Stop> {
        loop {
            if self.cancelled {
                return Err(Stop::Cancelled);
            }
            if ready(self) || until.is_some_and(|t| t <= Instant::now()) {
                return Ok(());
            }
            let left = until.map(|t| t.saturating_duration_since(Instant::now()));
            let line = match left.into_iter().chain(look).min() {
                Some(time) => self.inbox.recv_timeout(time),
                None => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match line {
                Ok(line) => {
                    self.take(&line);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(Stop::Gone),
            }
        }
    }

    fn carry_out(&mut self, steps: &[Step]) -> Result<(), Stop> {
        if steps.is_empty() {
            self.say(GUIDE);
        }
        for step in steps {
            // A cancel that has already arrived is seen before the next step.
            self.wait(Some(Instant::now()), None, |_| false)?;
            match step {
                Step::Help => self.say(GUIDE),
                Step::Say(text) => self.say(text),
                Step::Wait(time) => {
                    self.say(&format!("I wait {} s.", time.as_secs_f64()));
                    self.wait(Some(Instant::now() + *time), None, |_| false)?;
                }
                Step::Both(steps) => self.act_on(steps)?,
                Step::Append { .. } | Step::Run { .. } => self.act_on(std::slice::from_ref(step))?,
            }
        }
        Ok(())
    }

    /// Asks for all of `steps` at once, and does each when it is allowed.
    fn act_on(&mut self, steps: &[Step]) -> Result<(), Stop> {
        let mut open: BTreeMap<u64, Act> = BTreeMap::new();
        for step in steps {
            let act = match self.act(step) {
                Ok(act) => act,
                Err(why) => {
                    self.say(&why);
                    continue;
                }
            };
            self.update(&json!({"sessionUpdate": "tool_call", "toolCallId": act.call, "title": act.title,
                                "kind": act.kind, "status": "pending", "rawInput": act.input}));
            if self.mode == Mode::Auto {
                self.perform(&act)?;
            } else {
                open.insert(self.ask(&act), act);
            }
        }
        while !open.is_empty() {
            let waiting: Vec<u64> = open.keys().copied().collect();
            let mut answered = None;
            let waited = self.wait(None, None, |agent| {
                answered = waiting.iter().find_map(|id| agent.answers.remove(id).map(|a| (*id, a)));
                answered.is_some()
            });
            let stopped = matches!(waited, Err(Stop::Cancelled))
                || answered.as_ref().is_some_and(|(_, answer)| answer["outcome"] == "cancelled");
            if stopped {
                // Also of one whose answer came too late to be acted on: it was not done.
                self.leave(&open);
                return Err(Stop::Cancelled);
            }
            waited?;
            let Some((id, answer)) = answered else { continue };
            let Some(act) = open.remove(&id) else { continue };
            match verdict(&answer) {
                Verdict::Allowed => {
                    if let Err(stop) = self.perform(&act) {
                        if matches!(stop, Stop::Cancelled) {
                            self.leave(&open);
                        }
                        return Err(stop);
                    }
                }
                Verdict::Rejected => {
                    self.finish(&act, "failed", "Not allowed.");
                    let said = match &act.what {
                        What::Append { place, .. } => {
                            format!("I did not write to {}: it was not allowed.", name_of(place))
                        }
                        What::Run { .. } => "I did not run the command: it was not allowed.".to_owned(),
                    };
                    self.say(&said);
                }
            }
        }
        Ok(())
    }

    /// Says of acts that they will not be done.
    fn leave(&mut self, acts: &BTreeMap<u64, Act>) {
        for act in acts.values() {
            self.finish(act, "failed", "Not done: the turn was stopped.");
        }
    }

    /// Makes an act of a step and says what it will do.
    fn act(&mut self, step: &Step) -> Result<Act, String> {
        self.calls += 1;
        let call = format!("call_{}", self.calls);
        match step {
            Step::Append { file, text } => {
                let place = Place::of(&self.folder, file)?;
                let content = format!("{text}\n");
                self.say(&format!("I will append {} bytes to {}.", content.len(), name_of(&place)));
                Ok(Act {
                    call,
                    title: format!("Append to {file}"),
                    kind: "edit",
                    input: json!({"path": place.path(), "content": content}),
                    what: What::Append { place, content },
                })
            }
            Step::Run { command } => {
                self.say("I will run a command.");
                Ok(Act {
                    call,
                    title: command.clone(),
                    kind: "execute",
                    input: json!({"command": command, "cwd": self.folder}),
                    what: What::Run { command: command.clone() },
                })
            }
            _ => Err("I can only ask for writes and commands.".to_owned()),
        }
    }

    fn ask(&mut self, act: &Act) -> u64 {
        self.next_id += 1;
        let id = self.next_id;
        let params = json!({
            "sessionId": self.session,
            "toolCall": {"toolCallId": act.call, "title": act.title, "kind": act.kind,
                         "status": "pending", "rawInput": act.input},
            "options": [
                {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"},
                {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"},
            ],
        });
        self.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params}),
        );
        id
    }

    fn finish(&mut self, act: &Act, status: &str, text: &str) {
        let content = json!([{"type": "content", "content": {"type": "text", "text": text}}]);
        self.update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": act.call,
                            "status": status, "content": content}));
    }

    fn perform(&mut self, act: &Act) -> Result<(), Stop> {
        self.update(&json!({"sessionUpdate": "tool_call_update", "toolCallId": act.call,
                            "status": "in_progress"}));
        match &act.what {
            What::Append { place, content } => match place.append(content) {
                Ok(()) => {
                    self.finish(act, "completed", &format!("Appended {} bytes.", content.len()));
                    self.say(&format!("Done. I wrote to {}:\n{}", name_of(place), content.trim_end()));
                }
                Err(error) => {
                    self.finish(act, "failed", &error.to_string());
                    self.say(&format!("I could not write to {}: {error}.", name_of(place)));
                }
            },
            What::Run { command } => self.run(act, command)?,
        }
        Ok(())
    }

    fn run(&mut self, act: &Act, command: &str) -> Result<(), Stop> {
        let started = Command::new("sh")
            .arg("-c")
            .arg(format!("exec 2>&1\n{command}"))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                self.finish(act, "failed", &error.to_string());
                self.say(&format!("The command could not be started: {error}."));
                return Ok(());
            }
        };
        let output = child.stdout.take().map(|mut pipe| {
            thread::spawn(move || {
                let (mut kept, mut left_out, mut buffer) = (Vec::new(), 0_usize, [0; 4096]);
                while let Ok(n @ 1..) = pipe.read(&mut buffer) {
                    let room = n.min(OUTPUT_MAX - kept.len());
                    kept.extend_from_slice(&buffer[..room]);
                    left_out += n - room;
                }
                (String::from_utf8_lossy(&kept).into_owned(), left_out)
            })
        });
        let mut status = None;
        let waited = self.wait(None, Some(POLL), |_| {
            status = child.try_wait().ok().flatten();
            status.is_some()
        });
        if let Err(stop) = waited {
            end(&mut child);
            if matches!(stop, Stop::Cancelled) {
                self.finish(act, "failed", "The command was stopped.");
            }
            return Err(stop);
        }
        // What the command left running may hold the pipe: tell what came until now.
        let reading = output.filter(|thread| {
            let until = Instant::now() + Duration::from_millis(300);
            while !thread.is_finished() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            thread.is_finished()
        });
        let (mut text, left_out) = reading.and_then(|t| t.join().ok()).unwrap_or_default();
        if left_out > 0 {
            text = format!("{text}\n[{left_out} bytes left out]");
        }
        let ok = status.is_some_and(|s| s.success());
        self.finish(act, if ok { "completed" } else { "failed" }, &text);
        let how = status.map_or_else(|| "with no status".to_owned(), |s| s.to_string());
        self.say(&format!("The command ended ({how})."));
        Ok(())
    }
}

/// Ends a command and whatever it started in its group.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        // It may have ended in this moment; then there is nothing to end.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.wait();
}

/// Only the very option that allows is an allowance.
fn verdict(answer: &Value) -> Verdict {
    if answer["outcome"] == "selected" && answer["optionId"] == "allow-once" {
        Verdict::Allowed
    } else {
        Verdict::Rejected
    }
}

fn name_of(place: &Place) -> String {
    place.path().file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}
