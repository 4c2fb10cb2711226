//! The process: reads lines, keeps the state the real program keeps, carries out steps.
//!
//! One thread, everything over one channel, so a line of the client is seen wherever
//! the process waits. Answers to requests that are unknown, answered or taken back are
//! dropped in silence, as the real program drops them.

use std::{
    collections::VecDeque,
    io::Write,
    path::PathBuf,
    sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError},
    time::{Duration, Instant},
};

use serde_json::{Value, json, value::RawValue};
use uuid::Uuid;

use crate::{
    VERSION,
    conversation::Conversation,
    flags::Flags,
    ledger::{self, Became},
    script::{self, Ask, Death, Moment, Step, Withdraw},
    wire::{
        Answered, Asked, Called, CalledMessage, CanUseTool, Inbound, Order, Rule, ToolUse, Update, Verdict,
    },
};

const STREAM_CLOSED: &str =
    "Tool permission request failed: AbortError: Tool permission stream closed before response received";
const INTERRUPTED: &str = "[Request interrupted by user for tool use]";
const NOT_DONE: &str = "The user doesn't want to proceed with this tool use. The tool use was rejected.";
/// Tools that ask whatever the mode and the rules are.
const ALWAYS_ASK: &[&str] = &["AskUserQuestion", "ExitPlanMode", "EnterPlanMode"];

/// How a process begins.
#[derive(Debug)]
pub struct Setup {
    pub flags: Flags,
    pub conversation: Conversation,
    /// The mode it is really in.
    pub mode: String,
    /// An old program, whose `initialize` lists nothing.
    pub lists_nothing: bool,
    /// `session_state_changed` lines are written.
    pub tells_state: bool,
    pub folder: PathBuf,
}

/// Why steps are not gone on with.
enum Stop {
    Interrupted,
    Die(Death),
}

impl Stop {
    const fn exit(status: i32) -> Self {
        Self::Die(Death::Exit(status))
    }
}

/// A step and the book of its script.
struct Due(Step, Option<PathBuf>);

/// A prompt that has not begun.
struct Queued {
    /// The client's own id of it.
    id: Option<String>,
    steps: Vec<Due>,
}

enum Answer {
    Allowed(Option<Box<RawValue>>),
    Refused { words: String, interrupt: bool },
    Withdrawn,
}

/// A request nobody has answered.
struct Open {
    request_id: String,
    /// The whole request, as it was written.
    line: String,
    withdraw_at: Option<Instant>,
    withdraw_on: Option<u64>,
    answer: Option<Answer>,
    call: Call,
}

/// A call under way.
struct Call {
    ask: Ask,
    id: String,
    input: Box<RawValue>,
    ledger: Option<PathBuf>,
    request_id: Option<String>,
}

pub struct Process<W> {
    setup: Setup,
    inbox: Receiver<String>,
    out: W,
    mode: String,
    state: &'static str,
    rules: Vec<Rule>,
    queue: VecDeque<Queued>,
    /// Prompts of this turn: the one that began it, and those folded into it.
    opener: Option<String>,
    folded: Vec<String>,
    steps: VecDeque<Due>,
    background: VecDeque<Due>,
    open: Vec<Open>,
    denials: Vec<Value>,
    failed: Option<String>,
    initialized: bool,
    in_turn: bool,
    /// Lines of the client read so far.
    read: u64,
    results: u64,
    /// The client closed our input.
    gone: bool,
}

impl<W: Write> Process<W> {
    pub fn new(setup: Setup, inbox: Receiver<String>, out: W) -> Self {
        Self {
            mode: setup.mode.clone(),
            setup,
            inbox,
            out,
            state: "idle",
            rules: Vec::new(),
            queue: VecDeque::new(),
            opener: None,
            folded: Vec::new(),
            steps: VecDeque::new(),
            background: VecDeque::new(),
            open: Vec::new(),
            denials: Vec::new(),
            failed: None,
            initialized: false,
            in_turn: false,
            read: 0,
            results: 0,
            gone: false,
        }
    }

    /// Serves until the client is gone or the process is to end; its exit status.
    pub fn serve(mut self) -> i32 {
        loop {
            let stopped = match self.inbox.recv() {
                Ok(line) => self.take(&line),
                Err(_) => return 0,
            };
            let stopped = stopped.and_then(|()| self.turns());
            match stopped {
                Ok(()) | Err(Stop::Interrupted) if self.gone => return 0,
                Ok(()) | Err(Stop::Interrupted) => {}
                Err(Stop::Die(Death::Exit(status))) => return status,
                Err(Stop::Die(Death::Kill(_))) => {
                    let _ = rustix::process::kill_process(
                        rustix::process::getpid(),
                        rustix::process::Signal::KILL,
                    );
                    // The signal has no effect later than this.
                    return 137;
                }
            }
        }
    }

    // ---- lines out

    fn write(&mut self, line: &str) {
        // One write a line; a client that is gone shows on the input.
        let _ = self.out.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.out.flush());
    }

    fn send(&mut self, mut line: Value) {
        if let Some(map) = line.as_object_mut() {
            map.insert("session_id".to_owned(), json!(self.setup.conversation.id));
            map.insert("uuid".to_owned(), json!(Uuid::new_v4()));
        }
        self.write(&line.to_string());
    }

    fn respond(&mut self, id: &str, response: &Value) {
        let line = json!({"type": "control_response",
                          "response": {"subtype": "success", "request_id": id, "response": response}});
        self.write(&line.to_string());
    }

    fn refuse_order(&mut self, id: &str, error: &str, code: &str) {
        let line = json!({"type": "control_response", "response":
            {"subtype": "error", "request_id": id, "error": error, "error_code": code}});
        self.write(&line.to_string());
    }

    fn tell_state(&mut self, state: &'static str) {
        if state != self.state {
            self.state = state;
            if self.setup.tells_state {
                self.send(json!({"type": "system", "subtype": "session_state_changed", "state": state}));
            }
        }
    }

    fn tell_mode(&mut self, mode: &str) {
        mode.clone_into(&mut self.mode);
        self.send(json!({"type": "system", "subtype": "status", "status": null, "permissionMode": mode}));
    }

    fn say(&mut self, text: &str, agent: Option<&str>) {
        let content = json!([{"type": "text", "text": text}]);
        self.send(json!({"type": "assistant", "message": {"role": "assistant", "content": content},
                         "parent_tool_use_id": agent.map(parent)}));
    }

    fn init(&mut self) {
        let (mode, cwd) = (self.mode.clone(), self.setup.folder.display().to_string());
        self.send(json!({"type": "system", "subtype": "init", "cwd": cwd, "permissionMode": mode,
                         "tools": ["Bash", "Read", "Write", "Edit", "AskUserQuestion", "ExitPlanMode"],
                         "model": "scripted", "claude_code_version": VERSION, "capabilities": []}));
    }

    fn result(&mut self, subtype: &str, text: &str, reason: &str) {
        self.results += 1;
        let denials = std::mem::take(&mut self.denials);
        self.send(json!({"type": "result", "subtype": subtype, "is_error": subtype != "success",
            "duration_ms": 1, "duration_api_ms": 1, "num_turns": 1, "result": text,
            "stop_reason": "end_turn", "terminal_reason": reason, "permission_denials": denials,
            "result_index": self.results, "queued_turn_count": 0, "total_cost_usd": 0, "usage": {}}));
    }

    // ---- lines in

    fn take(&mut self, line: &str) -> Result<(), Stop> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let Ok(inbound) = serde_json::from_str::<Inbound<'_>>(line) else {
            eprintln!("Error parsing streaming input line");
            return Err(Stop::exit(1));
        };
        self.read += 1;
        match inbound.kind.as_str() {
            "control_request" => self.ordered(&inbound),
            "control_response" => {
                if let Some(raw) = inbound.response {
                    self.answered(raw);
                }
                Ok(())
            }
            "user" => self.prompted(&inbound),
            _ => Ok(()),
        }
    }

    fn prompted(&mut self, inbound: &Inbound<'_>) -> Result<(), Stop> {
        if self.setup.flags.await_initialize && !self.initialized {
            eprintln!("A prompt came before initialize.");
            return Err(Stop::exit(1));
        }
        let message: Value =
            inbound.message.and_then(|m| serde_json::from_str(m.get()).ok()).unwrap_or_default();
        let text = match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Array(blocks) => {
                blocks.iter().filter_map(|b| b["text"].as_str()).collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        self.setup.conversation.keep(&text);
        if self.setup.flags.replay {
            let content = json!({"role": "user", "content": text});
            self.send(json!({"type": "user", "message": content, "isReplay": true}));
        }
        let mut steps = Vec::new();
        match script::read(&text) {
            Ok(Some(script)) => {
                steps.extend(script.steps.into_iter().map(|step| Due(step, script.ledger.clone())));
            }
            Ok(None) => steps.push(Due(Step::Say(format!("You wrote: {text}")), None)),
            Err(why) => steps.push(Due(Step::Fail(why.to_string()), None)),
        }
        self.lifecycle(inbound.uuid.as_deref(), "queued");
        self.queue.push_back(Queued { id: inbound.uuid.clone(), steps });
        Ok(())
    }

    fn lifecycle(&mut self, id: Option<&str>, state: &str) {
        if let Some(id) = id {
            self.send(json!({"type": "command_lifecycle", "command_uuid": id, "state": state}));
        }
    }

    fn ordered(&mut self, inbound: &Inbound<'_>) -> Result<(), Stop> {
        let order: Order =
            inbound.request.and_then(|r| serde_json::from_str(r.get()).ok()).unwrap_or_default();
        let id = inbound.request_id.as_str();
        match order.subtype.as_str() {
            "initialize" => {
                self.initialized = true;
                self.initialize(id);
            }
            "interrupt" => {
                self.cancel_all();
                let queued: Vec<&String> = self.queue.iter().filter_map(|q| q.id.as_ref()).collect();
                let told = json!({ "still_queued": queued });
                self.respond(id, &told);
                if self.in_turn {
                    self.interrupt_all();
                    return Err(Stop::Interrupted);
                }
            }
            "end_session" => {
                self.respond(id, &json!({}));
                self.cancel_all();
                return Err(Stop::exit(i32::from(self.in_turn)));
            }
            "set_permission_mode" if order.mode == "bypassPermissions" && !self.setup.flags.may_bypass => {
                self.refuse_order(id, "Bypassing permissions was not launched for.", "bypass_not_launched");
            }
            "set_permission_mode" => {
                let mode = if order.mode == "manual" { "default".to_owned() } else { order.mode };
                self.respond(id, &json!({ "mode": mode }));
                // Settles nothing that is already pending.
                self.tell_mode(&mode);
            }
            "list_permission_rules" => {
                let rules: Vec<Value> = self
                    .rules
                    .iter()
                    .map(|r| json!({"rule": r.written(), "behavior": "allow", "source": "session"}))
                    .collect();
                self.respond(id, &json!({ "rules": rules }));
            }
            other => {
                let words = format!("Unsupported control request subtype: {other}");
                self.refuse_order(id, &words, "unsupported_request");
            }
        }
        Ok(())
    }

    fn initialize(&mut self, id: &str) {
        let body = json!({"session_state": self.state, "current_permission_mode": self.mode,
            "pid": std::process::id(), "claude_code_version": VERSION, "hooks_applied": true,
            "hook_on_failure_supported": true, "commands": [], "agents": [], "models": [],
            "output_style": "default", "account": {}});
        let id = Value::from(id);
        if self.setup.lists_nothing {
            let line = json!({"type": "control_response", "response":
                {"subtype": "success", "request_id": id, "response": {"pid": std::process::id()}}});
            return self.write(&line.to_string());
        }
        // Put together as text: the pending requests' bytes stay as they were written.
        let waits: Vec<&str> =
            self.open.iter().filter(|o| o.answer.is_none()).map(|o| o.line.as_str()).collect();
        let line = format!(
            r#"{{"type":"control_response","response":{{"subtype":"success","request_id":{id},"response":{body},"pending_permission_requests":[{}],"pending_user_dialog_requests":[]}}}}"#,
            waits.join(",")
        );
        self.write(&line);
    }

    fn answered(&mut self, raw: &RawValue) {
        let Ok(response) = serde_json::from_str::<Answered>(raw.get()) else { return };
        let Some(at) =
            self.open.iter().position(|o| o.answer.is_none() && o.request_id == response.request_id)
        else {
            return;
        };
        let refused = |words: String| Answer::Refused { words, interrupt: false };
        let answer = if response.subtype == "error" {
            refused(format!("Tool permission request failed: Error: {}", response.error))
        } else {
            let body = response.response.as_ref().map_or("null", |r| r.get());
            match serde_json::from_str::<Verdict>(body) {
                Ok(verdict) if verdict.behavior == "allow" => {
                    self.update(&verdict.updated_permissions);
                    // An empty object is not an edit.
                    let edited = verdict.updated_input.filter(|input| {
                        !serde_json::from_str::<Value>(input.get()).is_ok_and(|v| v == json!({}))
                    });
                    Answer::Allowed(edited)
                }
                Ok(Verdict { behavior, message: Some(words), interrupt, .. })
                    if behavior == "deny" && !words.is_empty() =>
                {
                    Answer::Refused { words, interrupt }
                }
                _ => refused("The canUseTool callback returned an invalid permission result.".to_owned()),
            }
        };
        self.open[at].answer = Some(answer);
    }

    fn update(&mut self, updates: &[Update]) {
        for update in updates {
            match (update.kind.as_str(), update.destination.as_str()) {
                ("addRules", "session") if update.behavior == "allow" => {
                    self.rules.extend(update.rules.iter().cloned());
                }
                ("addRules", "localSettings") => {
                    let rules: Vec<String> = update.rules.iter().map(Rule::written).collect();
                    let folder = self.setup.folder.join(".claude");
                    let text = json!({"permissions": {"allow": rules}}).to_string();
                    let written = std::fs::create_dir_all(&folder)
                        .and_then(|()| std::fs::write(folder.join("settings.local.json"), text));
                    if let Err(why) = written {
                        eprintln!("settings.local.json cannot be written: {why}");
                    }
                    self.rules.extend(update.rules.iter().cloned());
                }
                ("setMode", _) => self.tell_mode(&update.mode.clone()),
                _ => {}
            }
        }
    }

    /// Takes every open request back.
    fn cancel_all(&mut self) {
        let open = self.open.iter().filter(|o| o.answer.is_none());
        let lines: Vec<Value> =
            open.map(|o| json!({"type": "control_cancel_request", "request_id": o.request_id})).collect();
        for line in lines {
            self.write(&line.to_string());
        }
    }

    fn interrupt_all(&mut self) {
        for open in std::mem::take(&mut self.open) {
            self.interrupted(&open.call);
        }
    }

    /// A call that is not gone on with. Every call gets a result, also such a one.
    fn interrupted(&mut self, call: &Call) {
        note(call, Became::Refused, &call.input, Some("interrupted"));
        self.returned(call, NOT_DONE, true, "reject");
    }

    // ---- turns

    /// Turns until no prompt waits. A prompt that was queued when a turn was interrupted
    /// begins the next one at once.
    fn turns(&mut self) -> Result<(), Stop> {
        while let Some(prompt) = self.queue.pop_front() {
            self.turn(prompt)?;
        }
        if self.in_turn {
            self.in_turn = false;
            self.tell_state("idle");
        }
        Ok(())
    }

    fn turn(&mut self, prompt: Queued) -> Result<(), Stop> {
        self.in_turn = true;
        self.tell_state("running");
        self.lifecycle(prompt.id.as_deref(), "started");
        self.opener = prompt.id;
        self.steps.extend(prompt.steps);
        self.init();
        let done = self.carry_out();
        self.close_turn(done)?;
        if !self.background.is_empty() {
            let task = Uuid::new_v4().simple().to_string();
            self.send(json!({"type": "system", "subtype": "background_tasks_changed",
                             "tasks": [{"task_id": task, "task_type": "local_agent"}]}));
            self.steps.append(&mut self.background);
            let done = self.carry_out();
            self.send(json!({"type": "system", "subtype": "background_tasks_changed", "tasks": []}));
            self.init();
            self.close_turn(done)?;
        }
        Ok(())
    }

    fn close_turn(&mut self, done: Result<(), Stop>) -> Result<(), Stop> {
        let state = if done.is_ok() { "completed" } else { "cancelled" };
        for id in std::mem::take(&mut self.folded) {
            self.lifecycle(Some(&id), state);
        }
        match (done, self.failed.take()) {
            (Ok(()), None) => self.result("success", "The script is over.", "completed"),
            (Ok(()), Some(why)) => self.result("error_during_execution", &why, "completed"),
            (Err(Stop::Interrupted), _) => {
                self.steps.clear();
                self.background.clear();
                let content = json!([{"type": "text", "text": INTERRUPTED}]);
                self.send(json!({"type": "user", "message": {"role": "user", "content": content},
                                 "parent_tool_use_id": null}));
                self.result("error_during_execution", "", "aborted_tools");
            }
            (Err(stop), _) => return Err(stop),
        }
        let opener = self.opener.take();
        self.lifecycle(opener.as_deref(), state);
        Ok(())
    }

    fn carry_out(&mut self) -> Result<(), Stop> {
        loop {
            // What has arrived by now is seen before the next step.
            self.listen(Some(Instant::now()))?;
            // A prompt that came during a turn is folded into it, after what went on then.
            while let Some(prompt) = self.queue.pop_front() {
                self.lifecycle(prompt.id.as_deref(), "started");
                self.folded.extend(prompt.id);
                self.steps.extend(prompt.steps);
            }
            let Some(Due(step, ledger)) = self.steps.pop_front() else { return Ok(()) };
            match step {
                Step::Ask(ask) => self.calls(vec![*ask], ledger.as_ref(), false)?,
                Step::Run(ask) => self.calls(vec![*ask], ledger.as_ref(), true)?,
                Step::Asks(asks) => self.calls(asks, ledger.as_ref(), false)?,
                Step::Say(text) => self.say(&text, None),
                Step::Burst(times, text) => {
                    for i in 0..times {
                        self.say(&format!("{text} {i}"), None);
                    }
                }
                Step::Huge(bytes) => self.say(&"x".repeat(bytes), None),
                Step::Wait(ms) => self.listen(Some(Instant::now() + Duration::from_millis(ms)))?,
                Step::Line(line) => self.write(&line),
                Step::Retry(times) => {
                    for attempt in 1..=times {
                        self.send(json!({"type": "system", "subtype": "api_retry", "attempt": attempt,
                            "max_retries": 10, "retry_delay_ms": 500, "error_status": 529,
                            "error": "overloaded"}));
                    }
                }
                Step::Mode(mode) => self.tell_mode(&mode),
                Step::Die(death) => return Err(Stop::Die(death)),
                Step::Fail(words) => {
                    self.failed = Some(words);
                    self.steps.clear();
                }
                Step::Background(steps) => {
                    self.background.extend(steps.into_iter().map(|step| Due(step, ledger.clone())));
                }
            }
        }
    }

    /// Takes lines of the client until then; without a time, one line. Open requests are
    /// taken back when their time has come.
    fn listen(&mut self, until: Option<Instant>) -> Result<(), Stop> {
        loop {
            self.withdraw_due();
            let withdraw =
                self.open.iter().filter(|o| o.answer.is_none()).filter_map(|o| o.withdraw_at).min();
            let line = match (until, withdraw) {
                (None, None) => self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                (Some(until), _) if until <= Instant::now() => match self.inbox.try_recv() {
                    Ok(line) => Ok(line),
                    Err(TryRecvError::Empty) => return Ok(()),
                    Err(TryRecvError::Disconnected) => Err(RecvTimeoutError::Disconnected),
                },
                (until, withdraw) => {
                    let next = until.into_iter().chain(withdraw).min().unwrap_or_else(Instant::now);
                    self.inbox.recv_timeout(next.saturating_duration_since(Instant::now()))
                }
            };
            match line {
                Ok(line) => {
                    self.take(&line)?;
                    self.withdraw_due();
                    if until.is_none() {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if until.is_none() {
                        self.withdraw_due();
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // The real program refuses what is pending and goes on unattended.
                    self.gone = true;
                    for open in self.open.iter_mut().filter(|o| o.answer.is_none()) {
                        open.answer =
                            Some(Answer::Refused { words: STREAM_CLOSED.to_owned(), interrupt: false });
                    }
                    if let Some(until) = until {
                        std::thread::sleep(until.saturating_duration_since(Instant::now()));
                    }
                    return Ok(());
                }
            }
        }
    }

    fn withdraw_due(&mut self) {
        let (now, read) = (Instant::now(), self.read);
        let mut lines = Vec::new();
        for open in self.open.iter_mut().filter(|o| o.answer.is_none()) {
            if open.withdraw_at.is_some_and(|t| t <= now) || open.withdraw_on.is_some_and(|n| n <= read) {
                lines.push(json!({"type": "control_cancel_request", "request_id": open.request_id}));
                open.answer = Some(Answer::Withdrawn);
            }
        }
        for line in lines {
            self.write(&line.to_string());
        }
    }

    // ---- calls

    /// Shows the calls, asks where that is due, and goes on when each is over.
    fn calls(&mut self, asks: Vec<Ask>, ledger: Option<&PathBuf>, free: bool) -> Result<(), Stop> {
        for ask in asks {
            let text = ask.input();
            // A script that parsed holds only valid inputs, and none has a line feed.
            let Ok(input) = RawValue::from_string(text) else { continue };
            let id = ask.call.clone().unwrap_or_else(|| format!("toolu_{}", Uuid::new_v4().simple()));
            let mut call = Call { ask, id, input, ledger: ledger.cloned(), request_id: None };
            self.show(&call);
            self.die(&call, Moment::Before)?;
            match self.gate(&call, free) {
                Gate::Free => self.perform(&call, None)?,
                Gate::Refused(words) => {
                    self.send(json!({"type": "system", "subtype": "permission_denied",
                                     "tool_name": call.ask.tool(), "tool_use_id": call.id}));
                    self.refused(&call, &words);
                }
                Gate::Ask => {
                    let request_id = call.ask.id.clone().unwrap_or_else(|| Uuid::new_v4().to_string());
                    call.request_id = Some(request_id.clone());
                    let line = self.request(&call, &request_id);
                    let withdraw_at = match call.ask.withdraw {
                        Some(Withdraw::AfterMs(ms)) => Some(Instant::now() + Duration::from_millis(ms)),
                        _ => None,
                    };
                    let withdraw_on = match call.ask.withdraw {
                        Some(Withdraw::OnLine(k)) => Some(self.read + k),
                        _ => None,
                    };
                    for _ in 0..=call.ask.again {
                        self.write(&line);
                    }
                    self.die(&call, Moment::Asked)?;
                    let answer = self
                        .gone
                        .then(|| Answer::Refused { words: STREAM_CLOSED.to_owned(), interrupt: false });
                    self.open.push(Open { request_id, line, withdraw_at, withdraw_on, answer, call });
                }
            }
        }
        if self.open.is_empty() {
            return Ok(());
        }
        self.tell_state("requires_action");
        while !self.open.is_empty() {
            let Some(at) = self.open.iter().position(|o| o.answer.is_some()) else {
                self.listen(None)?;
                continue;
            };
            let open = self.open.remove(at);
            if self.open.is_empty() {
                self.tell_state("running");
            }
            self.settle(&open.call, open.answer)?;
        }
        Ok(())
    }

    /// Ends the process where the script says so. The ledger then names every call that
    /// goes down with it.
    fn die(&self, call: &Call, moment: Moment) -> Result<(), Stop> {
        let Some(death) = call.ask.dies(moment) else { return Ok(()) };
        for call in self.open.iter().map(|open| &open.call).chain([call]) {
            note(call, Became::Died, &call.input, None);
        }
        Err(Stop::Die(death))
    }

    fn settle(&mut self, call: &Call, answer: Option<Answer>) -> Result<(), Stop> {
        self.die(call, Moment::Answered)?;
        match answer {
            Some(Answer::Allowed(edited)) => self.perform(call, edited.as_deref())?,
            Some(Answer::Refused { interrupt: true, .. }) => {
                // The words are dropped, and every sibling is refused.
                self.interrupted(call);
                self.cancel_all();
                self.interrupt_all();
                return Err(Stop::Interrupted);
            }
            Some(Answer::Refused { words, .. }) => self.refused(call, &words),
            Some(Answer::Withdrawn) | None => self.refused(call, "The request was taken back."),
        }
        Ok(())
    }

    fn gate(&self, call: &Call, free: bool) -> Gate {
        let tool = call.ask.tool();
        if !ALWAYS_ASK.contains(&tool) && !self.setup.flags.asks_all {
            let is_edit = matches!(tool, "Write" | "Edit");
            let free = free
                || self.mode == "bypassPermissions"
                || (self.mode == "acceptEdits" && is_edit)
                || self.rules.iter().any(|rule| rule.covers(tool, call.input.get()));
            if free {
                return Gate::Free;
            }
            if self.mode == "dontAsk" {
                return Gate::Refused("This mode asks nobody.".to_owned());
            }
        }
        if self.setup.flags.prompts {
            Gate::Ask
        } else {
            Gate::Refused("No approval surface exists.".to_owned())
        }
    }

    fn show(&mut self, call: &Call) {
        let session = self.setup.conversation.id.clone();
        if let Some(agent) = &call.ask.agent {
            self.send(json!({"type": "system", "subtype": "task_started", "task_id": agent,
                             "tool_use_id": parent(agent)}));
        }
        let line = Called {
            kind: "assistant",
            message: CalledMessage {
                role: "assistant",
                content: [ToolUse {
                    kind: "tool_use",
                    id: &call.id,
                    name: call.ask.tool(),
                    input: &call.input,
                }],
            },
            parent_tool_use_id: call.ask.agent.as_deref().map(parent),
            session_id: &session,
            uuid: Uuid::new_v4().to_string(),
        };
        if let Ok(line) = serde_json::to_string(&line) {
            self.write(&line);
        }
    }

    fn request(&self, call: &Call, id: &str) -> String {
        let input: Value = serde_json::from_str(call.input.get()).unwrap_or_default();
        let request = Asked {
            kind: "control_request",
            request_id: id,
            request: CanUseTool {
                subtype: "can_use_tool",
                tool_name: call.ask.tool(),
                display_name: call.ask.tool(),
                input: &call.input,
                description: input["description"].as_str().map(str::to_owned),
                permission_suggestions: call.ask.suggestions.as_deref(),
                decision_reason_type: self.setup.flags.asks_all.then_some("rule"),
                requires_user_interaction: ALWAYS_ASK.contains(&call.ask.tool()).then_some(true),
                tool_use_id: &call.id,
                agent_id: call.ask.agent.as_deref(),
            },
        };
        serde_json::to_string(&request).unwrap_or_default()
    }

    fn perform(&mut self, call: &Call, edited: Option<&RawValue>) -> Result<(), Stop> {
        let input = edited.unwrap_or(&call.input);
        let value: Value = serde_json::from_str(input.get()).unwrap_or_default();
        if call.ask.tool() == "Bash" && !value["command"].is_string() {
            note(call, Became::Refused, input, Some("the input lacks a command"));
            let words = "<tool_use_error>InputValidationError: command is required</tool_use_error>";
            self.returned(call, words, true, "accept");
            return Ok(());
        }
        if call.ask.takes > 0 {
            let waited = self.listen(Some(Instant::now() + Duration::from_millis(call.ask.takes)));
            if matches!(waited, Err(Stop::Interrupted)) {
                self.interrupted(call);
            }
            waited?;
        }
        note(call, Became::Ran, input, None);
        self.die(call, Moment::Effect)?;
        let text = match call.ask.tool() {
            "AskUserQuestion" => answers(&value),
            "ExitPlanMode" => {
                if self.mode == "plan" {
                    self.tell_mode("default");
                }
                "The plan was approved.".to_owned()
            }
            "EnterPlanMode" => {
                self.tell_mode("plan");
                "Plan mode was entered.".to_owned()
            }
            tool => format!("{tool} ran."),
        };
        self.returned(call, &text, false, "accept");
        Ok(())
    }

    fn refused(&mut self, call: &Call, words: &str) {
        let denial = json!({"tool_name": call.ask.tool(), "tool_use_id": call.id});
        self.denials.push(denial);
        note(call, Became::Refused, &call.input, Some(words));
        self.returned(call, words, true, "reject");
    }

    fn returned(&mut self, call: &Call, text: &str, is_error: bool, decision: &str) {
        let source = if decision == "accept" { "user_temporary" } else { "user_reject" };
        let block = json!([{"type": "tool_result", "content": text, "is_error": is_error,
                            "tool_use_id": call.id}]);
        self.send(json!({"type": "user", "message": {"role": "user", "content": block},
            "parent_tool_use_id": call.ask.agent.as_deref().map(parent), "tool_use_result": text,
            "tool_result_meta": [{"id": call.id,
                "permission_decision": {"decision": decision, "source": source}}]}));
    }
}

/// Writes a call into the ledger.
fn note(call: &Call, became: Became, input: &RawValue, reason: Option<&str>) {
    let Some(ledger) = &call.ledger else { return };
    let line = ledger::Line {
        became,
        tool_use_id: &call.id,
        request_id: call.request_id.as_deref(),
        tool: call.ask.tool(),
        input,
        reason,
        pid: std::process::id(),
        at: ledger::now(),
    };
    if let Err(why) = ledger::append(ledger, &line) {
        eprintln!("{} cannot be written: {why}", ledger.display());
    }
}

/// Whether a call needs a person.
enum Gate {
    Free,
    Ask,
    Refused(String),
}

/// The call that started a sub-agent.
fn parent(agent: &str) -> String {
    format!("toolu_parent_{agent}")
}

fn answers(input: &Value) -> String {
    if let Some(text) = input["response"].as_str() {
        return format!("The user responded: {text}");
    }
    match input["answers"].as_object() {
        Some(all) if !all.is_empty() => {
            let all: Vec<String> =
                all.iter().map(|(q, a)| format!("{q} = {}", a.as_str().unwrap_or_default())).collect();
            format!("The user answered: {}", all.join("; "))
        }
        _ => "The user did not answer the questions.".to_owned(),
    }
}
