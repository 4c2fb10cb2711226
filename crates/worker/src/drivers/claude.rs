//! Claude Code over its control protocol: `stream-json` both ways, permission requests
//! as `can_use_tool` on standard output.
//!
//! What this rests on, all seen with 2.1.332: `initialize` may be sent at any time and
//! lists what is pending; an answer to an unknown or settled request is dropped in
//! silence; `result` does not mean idle, `session_state_changed: idle` does, and not even
//! that while a command goes on in the background (when it ends, a turn begins by
//! itself); an edited input replaces the whole input and the model is not told; a refusal
//! must have words, and an interrupt sent before its result is seen replaces them;
//! `EnterPlanMode` is not asked, the mode just changes.

use std::borrow::Cow;

use domain::{
    action,
    approval::{GRANT_MAX, GRANTS_MAX, Grant},
    decision::{Answer, Outcome},
    edit,
    event::{EventBody, cut},
    id::{DecisionId, RunId},
    question::Questions,
    run::RunStatus,
};
use link::message::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::bounds::is_name;

use super::{
    Answered, Ask, Step, head::Head, notice, quoted, returned, said, shorten, thought, unreadable, words_of,
};

/// The oldest version whose every `initialize` lists what is pending.
pub const OLDEST: (u64, u64, u64) = (2, 1, 268);

/// A question is answered, not allowed: a plain yes would tell the model that the person
/// answered nothing.
const QUESTION: &str = "AskUserQuestion";
/// Allowing it leaves plan mode.
const PLAN: &str = "ExitPlanMode";
const UNREADABLE: &str = "This request could not be read, so nobody was asked.";
/// The mode a person may grant until the process ends. It still asks for commands, save
/// those that only move files of its folders: `mkdir`, `touch`, `rm`, `mv`, `cp`, `sed`.
const EDITS: &str = "acceptEdits";
/// The part of an edited input that the model is told.
const TOLD_MAX: usize = 16 * 1024;
/// Sub-agents and background tasks that are remembered by name.
const TASKS_MAX: usize = 64;

/// The state of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claude {
    /// The session id it was started with.
    session: String,
    /// The permission mode it was started with.
    mode: String,
    folder: String,
    #[serde(default)]
    asks_everything: bool,
    /// The mode it has gone over to by order of a person; none: the one it was started with.
    #[serde(default)]
    changed_mode: Option<String>,
    /// Modes that answers have allowed and that were not seen yet.
    #[serde(default)]
    allowed_modes: Vec<String>,
    /// The changed mode is a person's grant until the process ends.
    #[serde(default)]
    granted: bool,
    /// The agent has called `EnterPlanMode`.
    #[serde(default)]
    entering_plan: bool,
    /// Sub-agents that were started, the newest last.
    #[serde(default)]
    sub_agents: Vec<SubAgent>,
    /// What goes on in the background, in the agent's words.
    #[serde(default)]
    background: Vec<String>,
    /// The turn is over and only background work goes on, or did until just now.
    #[serde(default)]
    left_to_background: bool,
    /// Lines to the model that it has not taken up yet, by id.
    #[serde(default)]
    untold: Vec<String>,
    /// A turn goes on, as far as was told.
    #[serde(default)]
    working: bool,
    /// The prompt, while a turn goes on that began without one.
    #[serde(default)]
    behind: Option<String>,
    /// The endpoint did not accept the account, in its words.
    #[serde(default)]
    signed_out: bool,
    /// The number of the newest `initialize`; answers to older ones are out of date.
    initialized: u64,
    ready: bool,
    /// A prompt was handed over and its turn has not ended.
    prompted: bool,
    /// The last result since the prompt.
    result: Option<(RunStatus, Option<String>)>,
}

/// A sub-agent, as it was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SubAgent {
    /// What a request names.
    id: String,
    /// What its lines name: the call that started it.
    call_id: Option<String>,
    title: String,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    subtype: Option<Cow<'a, str>>,
    #[serde(default)]
    request_id: Option<String>,
    #[serde(default, borrow)]
    request: Option<&'a RawValue>,
    #[serde(default, borrow)]
    response: Option<&'a RawValue>,
    #[serde(default, borrow)]
    message: Option<&'a RawValue>,
    #[serde(default)]
    parent_tool_use_id: Option<String>,
    #[serde(default, borrow)]
    error: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    state: Option<Cow<'a, str>>,
    #[serde(default)]
    command_uuid: Option<String>,
}

#[derive(Deserialize)]
struct Subtype<'a> {
    #[serde(borrow)]
    subtype: Cow<'a, str>,
}

#[derive(Deserialize)]
struct CanUseTool<'a> {
    tool_name: String,
    #[serde(borrow)]
    input: &'a RawValue,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    tool_use_id: Option<String>,
    #[serde(default)]
    agent_id: Option<String>,
    #[serde(default, borrow)]
    permission_suggestions: Option<&'a RawValue>,
    #[serde(default)]
    suppress_always_allow_rule: bool,
}

#[derive(Deserialize)]
struct Request<'a> {
    request_id: String,
    #[serde(borrow)]
    request: &'a RawValue,
}

#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    subtype: Cow<'a, str>,
    request_id: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default, rename = "response")]
    body: Option<Value>,
    #[serde(default, borrow)]
    pending_permission_requests: Option<Vec<Request<'a>>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Block<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default, borrow)]
    input: Option<&'a RawValue>,
    #[serde(default)]
    tool_use_id: Option<String>,
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    is_error: Option<bool>,
}

impl Claude {
    pub const fn new(session: String, mode: String, folder: String, asks_everything: bool) -> Self {
        Self {
            session,
            mode,
            folder,
            asks_everything,
            changed_mode: None,
            allowed_modes: Vec::new(),
            granted: false,
            entering_plan: false,
            sub_agents: Vec::new(),
            background: Vec::new(),
            left_to_background: false,
            untold: Vec::new(),
            working: false,
            behind: None,
            signed_out: false,
            initialized: 0,
            ready: false,
            prompted: false,
            result: None,
        }
    }

    /// The arguments it is started with; `resume` takes up its session.
    pub fn args(&self, resume: bool) -> Vec<String> {
        let mut args: Vec<String> = [
            "-p",
            "--input-format",
            "stream-json",
            "--output-format",
            "stream-json",
            "--verbose",
            "--permission-prompt-tool",
            "stdio",
            "--permission-mode",
            &self.mode,
            // A repository's own settings could approve its own calls.
            "--setting-sources=",
            "--strict-mcp-config",
        ]
        .map(str::to_owned)
        .into();
        if self.asks_everything {
            args.extend(["--settings".to_owned(), r#"{"permissions":{"ask":["*"]}}"#.to_owned()]);
        }
        args.extend([if resume { "--resume" } else { "--session-id" }.to_owned(), self.session.clone()]);
        args
    }

    pub fn initialize(&mut self) -> Vec<String> {
        self.initialized += 1;
        let id = self.initialize_id();
        vec![
            json!({"type": "control_request", "request_id": id, "request": {"subtype": "initialize"}})
                .to_string(),
        ]
    }

    fn initialize_id(&self) -> String {
        format!("countersign-initialize-{}", self.initialized)
    }

    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    pub fn prompt(&mut self, run: RunId, text: &str) -> String {
        self.prompted = true;
        self.result = None;
        self.left_to_background = false;
        self.behind = self.working.then(|| run.to_string());
        message(&run.to_string(), text)
    }

    /// An answer is about to be handed over.
    pub fn answering(&mut self, intent: &crate::journal::Intent) {
        self.allowed_modes.extend(intent.modes.iter().cloned());
        let id = intent.decision.to_string();
        if intent.follow_up.is_some() && !self.untold.contains(&id) {
            self.untold.push(id);
        }
    }

    pub fn cancel(&mut self, run: RunId) -> Vec<String> {
        self.untold.clear();
        self.behind = None;
        vec![interrupt(run)]
    }

    /// The mode it should be in now.
    fn present_mode(&self) -> &str {
        self.changed_mode.as_deref().unwrap_or(&self.mode)
    }

    pub fn suits(&self) -> bool {
        self.granted || self.present_mode() == self.mode
    }

    pub fn in_background(&self) -> Option<(RunStatus, Option<String>)> {
        self.result.clone().filter(|_| self.left_to_background)
    }

    pub fn settles(&self) -> Option<(RunStatus, Option<String>)> {
        self.in_background().filter(|_| self.background.is_empty())
    }

    pub const fn rests(&self) -> bool {
        self.background.is_empty() && !self.prompted
    }

    /// The run was ended while background work went on.
    pub fn let_go(&mut self) {
        self.prompted = false;
        self.left_to_background = false;
        self.result = None;
    }

    /// What a sub-agent is called, by the id in its requests or in its lines.
    fn sub_agent(&self, id: &str) -> Option<&str> {
        let named = |a: &&SubAgent| a.id == id || a.call_id.as_deref() == Some(id);
        self.sub_agents.iter().rev().find(named).map(|a| a.title.as_str())
    }

    pub fn line(&mut self, text: &str) -> Vec<Step> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            return Self::refuse_unreadable(text);
        };
        match (&*line.kind, line.subtype.as_deref()) {
            ("control_request", _) => self.request(line.request_id, line.request),
            ("control_cancel_request", _) => line
                .request_id
                .map(|native_id| Step::Withdrawn {
                    native_id,
                    reason: "The agent took its request back.".to_owned(),
                })
                .into_iter()
                .collect(),
            ("control_response", _) => line.response.map_or_else(Vec::new, |r| self.response(r)),
            ("command_lifecycle", _) => {
                if let Some(id) = line.command_uuid {
                    self.taken_up(&id, line.state.as_deref().unwrap_or_default());
                }
                Vec::new()
            }
            (kind @ ("assistant" | "user"), _) => {
                if line.error.as_deref() == Some("authentication_failed") {
                    self.signed_out = true;
                }
                let told = line
                    .message
                    .map_or_else(Vec::new, |m| self.message(m, line.parent_tool_use_id.as_deref()));
                // Text to the model is not the agent's: a sub-agent's prompt, a remark of the program.
                let to_model = kind == "user";
                told.into_iter()
                    .filter(|step| !(to_model && matches!(step, Step::Event(EventBody::Said { .. }))))
                    .collect()
            }
            ("system", Some(subtype)) => self.system(subtype, text),
            ("result", subtype) => {
                self.result(subtype.unwrap_or_default(), text);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// A request that cannot be read must still be refused, or the agent waits for ever.
    fn refuse_unreadable(text: &str) -> Vec<Step> {
        let refusal = match serde_json::from_str::<Value>(text) {
            Ok(value) if value["type"] == "control_request" => {
                value["request_id"].as_str().map(|id| deny(id, UNREADABLE))
            }
            Ok(_) => None,
            Err(_) => refuse_left_out(text, UNREADABLE),
        };
        refusal.map(Step::Write).into_iter().chain([unreadable()]).collect()
    }

    fn request(&self, id: Option<String>, request: Option<&RawValue>) -> Vec<Step> {
        let (Some(id), Some(request)) = (id, request) else { return vec![unreadable()] };
        let subtype = serde_json::from_str::<Subtype<'_>>(request.get());
        if subtype.as_ref().is_ok_and(|s| s.subtype == "can_use_tool") {
            return match self.ask(id.clone(), request) {
                Some(ask) => vec![Step::Ask(Box::new(ask))],
                None => vec![Step::Write(deny(&id, UNREADABLE)), unreadable()],
            };
        }
        let error = json!({"subtype": "error", "request_id": id, "error": "This request is not supported."});
        vec![Step::Write(json!({"type": "control_response", "response": error}).to_string())]
    }

    fn response(&mut self, response: &RawValue) -> Vec<Step> {
        let Ok(response) = serde_json::from_str::<Response<'_>>(response.get()) else {
            return vec![unreadable()];
        };
        if response.request_id != self.initialize_id() {
            return Vec::new();
        }
        if response.subtype != "success" {
            let why = response.error.unwrap_or_default();
            return vec![Step::Fatal(format!("Claude Code refused to start: {why}"))];
        }
        let body = response.body.unwrap_or_default();
        let (Some(pending), Some(_)) = (response.pending_permission_requests, body["session_state"].as_str())
        else {
            return vec![Step::Fatal(format!(
                "This Claude Code does not list what it waits for. Version {}.{}.{} or newer is needed.",
                OLDEST.0, OLDEST.1, OLDEST.2
            ))];
        };
        self.working = body["session_state"] != "idle";
        let mode = body["current_permission_mode"].as_str().unwrap_or_default();
        let mut steps = self.reported_mode(mode);
        if matches!(steps[..], [Step::Fatal(_)]) {
            return steps;
        }
        if !self.ready {
            self.ready = true;
            steps.push(Step::NativeSession(self.session.clone()));
            steps.push(Step::Ready);
        }
        let mut listed = Vec::new();
        for request in pending {
            if let Some(ask) = self.ask(request.request_id.clone(), request.request) {
                listed.push(ask);
            } else {
                steps.push(Step::Write(deny(&request.request_id, UNREADABLE)));
                steps.push(unreadable());
            }
        }
        steps.push(Step::Listed(listed));
        steps
    }

    /// A mode other than the ordered one is not gone on with. It may change where a
    /// person's answer has allowed it, and to plan mode, which only asks for more.
    fn reported_mode(&mut self, reported: &str) -> Vec<Step> {
        let plain = |mode: &str| if mode == "manual" { "default".to_owned() } else { mode.to_owned() };
        let reported = plain(reported);
        if reported == plain(self.present_mode()) {
            return Vec::new();
        }
        let allowed = self.allowed_modes.iter().any(|m| plain(m) == reported)
            || (reported == "plan" && self.entering_plan);
        if !allowed {
            return vec![Step::Fatal(format!(
                "Claude Code reports the permission mode \"{reported}\" where \"{}\" was ordered. It was stopped.",
                self.present_mode()
            ))];
        }
        self.entering_plan = false;
        self.granted = allowed && reported == EDITS;
        self.allowed_modes.clear();
        self.changed_mode = (reported != plain(&self.mode)).then(|| reported.clone());
        vec![Step::Event(EventBody::Mode { mode: reported })]
    }

    fn system(&mut self, subtype: &str, text: &str) -> Vec<Step> {
        let line: Value = serde_json::from_str(text).unwrap_or_default();
        match subtype {
            "init" => {
                let mode = line["permissionMode"].as_str().unwrap_or_default();
                let mut steps = self.reported_mode(mode);
                if steps.is_empty() {
                    steps.push(Step::Event(EventBody::Mode { mode: mode.to_owned() }));
                }
                if matches!(steps[..], [Step::Fatal(_)]) {
                    return steps;
                }
                let session = line["session_id"].as_str().filter(|s| is_name(s));
                if let Some(session) = session.filter(|s| *s != self.session) {
                    session.clone_into(&mut self.session);
                    steps.push(Step::NativeSession(session.to_owned()));
                }
                steps
            }
            "status" => {
                match &line["permissionMode"] {
                    Value::Null if line.is_object() => Vec::new(),
                    // One that cannot be read is not the ordered one.
                    mode => self.reported_mode(mode.as_str().unwrap_or_default()),
                }
            }
            "session_state_changed" => {
                let idle = line["state"] == "idle";
                self.working = !idle;
                if self.prompted { self.state(idle) } else { Vec::new() }
            }
            "background_tasks_changed" => {
                let tasks = line["tasks"].as_array().map_or(&[][..], Vec::as_slice);
                let named = |task: &Value| {
                    let mut words = task["description"].as_str().unwrap_or("a task").to_owned();
                    cut(&mut words, 200);
                    words
                };
                self.background = tasks.iter().take(TASKS_MAX).map(named).collect();
                Vec::new()
            }
            "task_started" => {
                self.started(&line);
                Vec::new()
            }
            "api_retry" => {
                let number = |name: &str| line[name].as_u64().unwrap_or_default();
                vec![notice(
                    format!(
                        "The model's endpoint did not answer (status {}). Try {} of {} follows in {} s.",
                        line["error_status"],
                        number("attempt"),
                        number("max_retries"),
                        number("retry_delay_ms").div_ceil(1000),
                    ),
                    false,
                )]
            }
            "permission_denied" => {
                vec![notice("Claude Code refused a call by itself, by its own rules.", false)]
            }
            _ => Vec::new(),
        }
    }

    /// A line to the model is taken up, or was.
    fn taken_up(&mut self, id: &str, state: &str) {
        if state == "completed" || state == "cancelled" {
            self.untold.retain(|untold| untold != id);
        }
        if state != "queued" && self.behind.take_if(|prompt| prompt == id).is_some() && state == "started" {
            // Whatever result there was is that of the turn before.
            self.result = None;
        }
    }

    /// The session is idle, or works.
    fn state(&mut self, idle: bool) -> Vec<Step> {
        if !idle {
            let was = std::mem::take(&mut self.left_to_background);
            return was
                .then(|| Step::Event(EventBody::Background { tasks: Vec::new() }))
                .into_iter()
                .collect();
        }
        // Idle before any result is from before the prompt was taken up; idle with words
        // to the model under way is from before those.
        let awaits = !self.untold.is_empty() || self.behind.is_some();
        let Some((status, detail)) = self.result.clone().filter(|_| !awaits) else {
            return Vec::new();
        };
        if self.background.is_empty() {
            self.prompted = false;
            self.result = None;
            return vec![Step::Idle { status, detail }];
        }
        self.left_to_background = true;
        vec![Step::Event(EventBody::Background { tasks: self.background.clone() })]
    }

    /// A sub-agent, or a command in the background, was started.
    fn started(&mut self, line: &Value) {
        let name = |member: &str| line[member].as_str().filter(|name| is_name(name));
        let (Some(id), "local_agent") = (name("task_id"), line["task_type"].as_str().unwrap_or_default())
        else {
            return;
        };
        let mut title = match (line["subagent_type"].as_str(), line["description"].as_str()) {
            (Some(kind), Some(words)) => format!("{kind}: {words}"),
            (Some(one), None) | (None, Some(one)) => one.to_owned(),
            (None, None) => return,
        };
        cut(&mut title, 200);
        let call_id = name("tool_use_id").map(str::to_owned);
        if self.sub_agents.len() == TASKS_MAX {
            self.sub_agents.remove(0);
        }
        self.sub_agents.push(SubAgent { id: id.to_owned(), call_id, title });
    }

    fn result(&mut self, subtype: &str, text: &str) {
        let line: Value = serde_json::from_str(text).unwrap_or_default();
        let failed = subtype != "success" || line["is_error"] == true;
        let detail = failed.then(|| {
            let said = line["result"].as_str().filter(|r| !r.is_empty()).map(str::to_owned);
            let listed = || {
                let errors = line["errors"].as_array()?;
                let all: Vec<&str> = errors.iter().filter_map(Value::as_str).collect();
                (!all.is_empty()).then(|| all.join("; "))
            };
            let mut detail = said
                .or_else(listed)
                .unwrap_or_else(|| format!("Claude Code ended the turn with \"{subtype}\"."));
            cut(&mut detail, 1000);
            detail
        });
        let detail =
            detail.map(|said| if std::mem::take(&mut self.signed_out) { not_signed_in(&said) } else { said });
        self.result = Some((if failed { RunStatus::Error } else { RunStatus::Completed }, detail));
    }

    fn message(&mut self, message: &RawValue, sub_agent: Option<&str>) -> Vec<Step> {
        let Ok(message) = serde_json::from_str::<Message<'_>>(message.get()) else {
            return vec![unreadable()];
        };
        let content = whole_characters(message.content.get());
        let Ok(blocks) = serde_json::from_str::<Vec<Block<'_>>>(&content) else {
            // A plain text is the prompt or a remark of the program itself, not the agent's.
            let is_text = content.starts_with('"');
            return (!is_text).then(unreadable).into_iter().collect();
        };
        self.entering_plan |= blocks.iter().any(|b| b.name.as_deref() == Some("EnterPlanMode"));
        let sub_agent = sub_agent.map(|id| self.sub_agent(id).unwrap_or(id).to_owned());
        blocks.into_iter().flat_map(|block| self.block(block, sub_agent.as_deref())).collect()
    }

    fn block(&self, block: Block<'_>, sub_agent: Option<&str>) -> Vec<Step> {
        let kind = block.kind.clone();
        match (&*kind, block) {
            ("thinking", Block { thinking: Some(text), .. }) if !text.is_empty() => vec![thought(text)],
            ("tool_use", Block { id: Some(call_id), name: Some(tool), input, .. }) => {
                let input = input.map_or("{}", RawValue::get);
                let summary = action::view(&tool, &self.folder, input.as_bytes()).title();
                let mut input = input.to_owned();
                shorten(&mut input);
                let sub_agent = sub_agent.map(str::to_owned);
                vec![Step::Event(EventBody::Called { call_id, tool, summary, input, sub_agent })]
            }
            ("tool_result", Block { tool_use_id: Some(call_id), content, is_error, .. }) => {
                vec![returned(call_id, text_of(content.as_ref()), is_error == Some(true))]
            }
            ("text", Block { text: Some(text), .. }) => said(text, sub_agent),
            _ => Vec::new(),
        }
    }
}

/// JSON in which each half of a character, as is left where output is cut in the middle
/// of one, became a replacement character. Halves are no text, and a reader refuses the whole.
fn whole_characters(json: &str) -> Cow<'_, str> {
    let half = |from: usize| {
        let unit = json.get(from..from + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(unit, 16).ok().filter(|unit| matches!(unit, 0xd800..=0xdfff))
    };
    let mut out: Option<String> = None;
    let (mut at, mut kept) = (0, 0);
    while let Some(found) = json[at..].find('\\') {
        at += found;
        match half(at) {
            Some(0xd800..=0xdbff) if half(at + 6).is_some_and(|low| low >= 0xdc00) => at += 12,
            Some(_) => {
                let out = out.get_or_insert_default();
                out.push_str(&json[kept..at]);
                out.push_str("\\ufffd");
                at += 6;
                kept = at;
            }
            // The character after it stands for itself, or begins an escape of its own kind.
            None => at += 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    match out {
        None => Cow::Borrowed(json),
        Some(mut out) => {
            out.push_str(&json[kept..]);
            Cow::Owned(out)
        }
    }
}

fn text_of(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(blocks)) => blocks
            .iter()
            .map(|b| match b["text"].as_str() {
                Some(text) => text.to_owned(),
                None => format!("[{}]", b["type"].as_str().unwrap_or("something")),
            })
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

impl Claude {
    fn ask(&self, native_id: String, request: &RawValue) -> Option<Ask> {
        let request: CanUseTool<'_> = serde_json::from_str(request.get()).ok()?;
        if native_id.is_empty() {
            return None;
        }
        let input = request.input.get().as_bytes();
        // `description` repeats the path or the address for files and fetches: then it is
        // no word of the agent.
        let words = action::words_in(input).or_else(|| {
            let value: Value = serde_json::from_slice(input).ok()?;
            let repeats =
                |text: &str| value.as_object().is_some_and(|o| o.values().any(|v| v.as_str() == Some(text)));
            request.description.filter(|text| !text.is_empty() && !repeats(text))
        });
        let grants = match (request.permission_suggestions, &*request.tool_name) {
            (_, QUESTION) => Vec::new(),
            // The program itself offers this with a plan, but does not say so.
            (_, PLAN) => grants(&format!(r#"[{{"type":"setMode","mode":"{EDITS}"}}]"#)),
            (Some(suggested), _) if !request.suppress_always_allow_rule => grants(suggested.get()),
            _ => Vec::new(),
        };
        Some(Ask {
            native_id,
            tool: request.tool_name,
            input: Bytes(input.to_vec()),
            sub_agent_title: request.agent_id.as_deref().and_then(|id| self.sub_agent(id)).map(str::to_owned),
            sub_agent: request.agent_id,
            call_id: request.tool_use_id,
            words,
            options: Vec::new(),
            grants,
        })
    }

    /// The answer, as one line. Its input is the one asked for, byte for byte, unless a
    /// person edited it.
    pub fn answer(&self, ask: &Ask, decision: DecisionId, answer: &Answer) -> Result<Answered, String> {
        if answer.option_id.is_some() {
            return Err("Claude Code offers no answers to choose from.".to_owned());
        }
        if answer.outcome != Outcome::Approve {
            return Ok(deny(&ask.native_id, words_of(answer)).into());
        }
        let original = std::str::from_utf8(&ask.input.0).map_err(|_| "The input is not text.".to_owned())?;
        let is_dialog = matches!(&*ask.tool, QUESTION | PLAN);
        let input = match (&answer.content, &answer.edited_input) {
            (Some(content), None) if ask.tool == QUESTION => answered_questions(original, content)?,
            (None, None) if ask.tool != QUESTION => original.to_owned(),
            (None, Some(edited)) if !is_dialog => {
                edit::check(edited).map_err(|e| e.to_string())?;
                // Outside of strings, where JSON allows no line feed, it is only white space.
                edited.replace(['\n', '\r'], " ")
            }
            _ => return Err("This kind of answer does not fit what Claude Code asked.".to_owned()),
        };
        if answer.grants.iter().any(|grant| !ask.grants.iter().any(|g| g.native == *grant)) {
            return Err("Claude Code did not suggest the rule that was allowed.".to_owned());
        }
        let mut modes: Vec<String> = answer.grants.iter().filter_map(|grant| mode_of(grant)).collect();
        if ask.tool == PLAN && modes.is_empty() {
            modes = vec!["default".to_owned(), self.mode.clone()];
        }
        let permissions = match answer.grants.as_slice() {
            [] => String::new(),
            grants => format!(r#","updatedPermissions":[{}]"#, grants.join(",")),
        };
        let line = respond(
            &ask.native_id,
            &format!(r#"{{"behavior":"allow","updatedInput":{input}{permissions}}}"#),
        );
        let follow_up = answer.edited_input.as_ref().map(|edited| {
            let mut told = edited.clone();
            let left_out = cut(&mut told, TOLD_MAX);
            let rest = if left_out > 0 { format!(" ({left_out} more bytes)") } else { String::new() };
            let text = format!(
                "A person changed your {} call before allowing it. Its result is that of the changed call. This ran instead of what you asked for:\n{told}{rest}",
                ask.tool
            );
            message(&decision.to_string(), &text)
        });
        Ok(Answered { line, follow_up, modes })
    }
}

/// The input of a question with its answers, everything else as it came.
fn answered_questions(input: &str, content: &str) -> Result<String, String> {
    let fits = Questions::read(input.as_bytes()).is_some_and(|q| q.are_answered_by(content));
    let known = serde_json::from_str::<Value>(input).is_ok_and(|v| v.get("answers").is_none());
    let (head, inner) = (input.trim_end().strip_suffix('}'), content.trim().strip_prefix('{'));
    match (head, inner) {
        (Some(head), Some(inner)) if fits && known => Ok(format!("{head},{inner}")),
        _ => Err("The answers do not fit the questions.".to_owned()),
    }
}

/// The mode a grant goes over to, if it is of that kind.
fn mode_of(grant: &str) -> Option<String> {
    let value: Value = serde_json::from_str(grant).ok()?;
    (value["type"] == "setMode").then(|| value["mode"].as_str().map(str::to_owned))?
}

/// The suggestions a person may give until the process ends. Each is limited to the
/// session: never a rule written into the repository or the account. What is not of a
/// known shape is left out, and so is every mode but the one that still asks for commands.
fn grants(suggestions: &str) -> Vec<Grant> {
    let Ok(all) = serde_json::from_str::<Vec<Value>>(suggestions) else { return Vec::new() };
    let mut grants: Vec<Grant> = Vec::new();
    for suggestion in all {
        let Some(grant) = grant(&suggestion) else { continue };
        if grant.native.len() <= GRANT_MAX && grants.len() < GRANTS_MAX && !grants.contains(&grant) {
            grants.push(grant);
        }
    }
    grants
}

fn grant(suggestion: &Value) -> Option<Grant> {
    let texts = |value: &Value| -> Option<Vec<String>> {
        let all: Option<Vec<String>> =
            value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect();
        all.filter(|all| !all.is_empty())
    };
    let (native, words) = match suggestion["type"].as_str()? {
        "addRules" if suggestion["behavior"] == "allow" => {
            let (mut rules, mut words) = (Vec::new(), Vec::new());
            for rule in suggestion["rules"].as_array()? {
                let tool = rule["toolName"].as_str().filter(|t| !t.is_empty())?;
                match rule.get("ruleContent") {
                    None | Some(Value::Null) => {
                        rules.push(json!({"toolName": tool}));
                        words.push(format!("every use of {}", action::marked(tool)));
                    }
                    Some(content) => {
                        let content = content.as_str()?;
                        rules.push(json!({"toolName": tool, "ruleContent": content}));
                        words.push(format!("{}({})", action::marked(tool), action::marked(content)));
                    }
                }
            }
            if rules.is_empty() {
                return None;
            }
            let native =
                json!({"type": "addRules", "rules": rules, "behavior": "allow", "destination": "session"});
            (native, format!("Allow {} without asking", words.join(" and ")))
        }
        "addDirectories" => {
            let folders = texts(&suggestion["directories"])?;
            let words = folders.iter().map(|f| action::marked(f)).collect::<Vec<_>>().join(" and ");
            let native = json!({"type": "addDirectories", "directories": folders, "destination": "session"});
            (
                native,
                format!(
                    "Treat {words} as a folder it works in, so that files there need no asking to be read"
                ),
            )
        }
        "setMode" if suggestion["mode"] == EDITS => (
            json!({"type": "setMode", "mode": EDITS, "destination": "session"}),
            format!(
                "Change, move and delete files without asking, also by commands such as rm and mv; other commands still ask (mode {EDITS})"
            ),
        ),
        _ => return None,
    };
    Some(Grant { native: native.to_string(), words })
}

/// Refuses the request a line begins with; nothing where it is no request.
pub fn refuse_left_out(head: &str, words: &str) -> Option<String> {
    let head = Head::read(head);
    let is_request = head.text("type").is_none_or(|kind| kind == "control_request");
    let id = head.text("request_id").filter(|id| !id.is_empty() && is_request)?;
    Some(deny(&id, words))
}

fn not_signed_in(said: &str) -> String {
    format!(
        "Claude Code is not signed in on the worker's machine. It says: \"{said}\". Run \"claude auth login\" there as the user the worker runs as, or start the worker with ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN (from \"claude setup-token\"). Then send the message again."
    )
}

/// A message to the model. `id` comes back in `command_lifecycle`.
fn message(id: &str, text: &str) -> String {
    json!({"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": null,
           "session_id": "", "uuid": id})
    .to_string()
}

fn respond(native_id: &str, response: &str) -> String {
    format!(
        r#"{{"type":"control_response","response":{{"subtype":"success","request_id":{},"response":{response}}}}}"#,
        quoted(native_id)
    )
}

/// A refusal; the words become the tool's result for the model and must not be empty.
pub fn deny(native_id: &str, words: &str) -> String {
    respond(native_id, &format!(r#"{{"behavior":"deny","message":{}}}"#, quoted(words)))
}

fn interrupt(run: RunId) -> String {
    let id = format!("countersign-interrupt-{run}");
    json!({"type": "control_request", "request_id": id, "request": {"subtype": "interrupt"}}).to_string()
}

pub fn end_session() -> String {
    json!({"type": "control_request", "request_id": "countersign-end", "request": {"subtype": "end_session"}})
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Lines as 2.1.332 wrote them, shortened.
    const ASK: &str = r#"{"type":"control_request","request_id":"1ae94614","request":{"subtype":"can_use_tool","tool_name":"Bash","display_name":"Bash","input":{"command":"touch /w/x","description":"demo","n":9007199254740993},"description":"demo","permission_suggestions":[],"blocked_path":"/w/x","tool_use_id":"toolu_1"}}"#;
    const RESULT: &str = r#"{"duration_api_ms":71,"stop_reason":"end_turn","type":"result","subtype":"success","is_error":false,"result":"the end"}"#;
    const IDLE: &str =
        r#"{"type":"system","subtype":"session_state_changed","state":"idle","uuid":"d2","session_id":"s"}"#;

    fn initialized(state: &str, mode: &str, pending: &str) -> String {
        format!(
            r#"{{"type":"control_response","response":{{"subtype":"success","request_id":"countersign-initialize-1","response":{{"session_state":"{state}","current_permission_mode":"{mode}","pid":7}},"pending_permission_requests":[{pending}],"pending_user_dialog_requests":[]}}}}"#
        )
    }

    fn ready() -> Claude {
        let mut claude = Claude::new("s".into(), "default".into(), "/w".into(), false);
        claude.initialize();
        let steps = claude.line(&initialized("idle", "default", ""));
        assert_eq!(steps, [Step::NativeSession("s".into()), Step::Ready, Step::Listed(Vec::new())]);
        claude
    }

    fn answer(ask: &Ask, answer: &Answer) -> Result<String, String> {
        ready().answer(ask, DecisionId(uuid::Uuid::nil()), answer).map(|a| a.line)
    }

    fn the_ask(steps: Vec<Step>) -> Ask {
        match steps.into_iter().next() {
            Some(Step::Ask(ask)) => *ask,
            other => panic!("{other:?}"),
        }
    }

    fn approve() -> Answer {
        Answer::plain(Outcome::Approve)
    }

    #[test]
    fn the_input_is_kept_and_given_back_byte_for_byte() {
        let ask = the_ask(ready().line(ASK));
        let input = r#"{"command":"touch /w/x","description":"demo","n":9007199254740993}"#;
        assert_eq!(ask.input.0, input.as_bytes());
        assert_eq!(ask.words.as_deref(), Some("demo"));
        assert_eq!(ask.call_id.as_deref(), Some("toolu_1"));
        let line = answer(&ask, &approve()).unwrap();
        assert!(line.contains(&format!(r#""behavior":"allow","updatedInput":{input}"#)), "{line}");
        assert!(serde_json::from_str::<Value>(&line).is_ok());
    }

    #[test]
    fn a_refusal_always_has_words_and_an_expiry_names_nobody() {
        let ask = the_ask(ready().line(ASK));
        let refusal = |outcome, message: Option<&str>| {
            answer(&ask, &Answer { outcome, message: message.map(str::to_owned), ..approve() }).unwrap()
        };
        assert!(refusal(Outcome::Reject, Some("use \"staging\"")).contains(r#"use \"staging\""#));
        assert!(refusal(Outcome::Reject, Some(" ")).contains("did not allow this"));
        assert!(refusal(Outcome::Expire, None).contains("Nobody answered"));
    }

    #[test]
    fn an_empty_edit_is_refused_because_it_would_run_the_original() {
        let ask = the_ask(ready().line(ASK));
        let edit = |text: &str| answer(&ask, &Answer { edited_input: Some(text.into()), ..approve() });
        assert!(edit("{}").is_err());
        assert!(edit("[1]").is_err());
        assert!(edit("{\n\"command\": \"ls\"\n}").unwrap().contains(r#"{ "command": "ls" }"#));
    }

    #[test]
    fn a_run_ends_at_idle_and_not_at_its_result() {
        let mut claude = ready();
        assert_eq!(claude.line(IDLE), []);
        claude.prompt(RunId(uuid::Uuid::nil()), "hi");
        assert_eq!(claude.line(IDLE), []);
        assert_eq!(claude.line(RESULT), []);
        assert_eq!(claude.line(IDLE), [Step::Idle { status: RunStatus::Completed, detail: None }]);
        assert_eq!(claude.line(IDLE), []);
    }

    #[test]
    fn a_turn_that_began_by_itself_does_not_end_the_next_run() {
        let mut claude = ready();
        let works = IDLE.replace("idle", "running");
        claude.line(&works);
        let run = RunId(uuid::Uuid::nil());
        claude.prompt(run, "hi");
        assert_eq!([claude.line(RESULT), claude.line(IDLE)], [[], []]);
        let of = |state: &str| {
            format!(r#"{{"type":"command_lifecycle","command_uuid":"{}","state":"{state}"}}"#, run.0)
        };
        claude.line(&of("queued"));
        assert_eq!(claude.line(IDLE), []);
        claude.line(&of("started"));
        assert_eq!(claude.line(IDLE), []);
        claude.line(RESULT);
        assert_eq!(claude.line(IDLE), [Step::Idle { status: RunStatus::Completed, detail: None }]);
    }

    #[test]
    fn half_a_character_in_a_result_hides_nothing() {
        for (json, whole) in [
            (r#""a\ud83d\ude00b""#, r#""a\ud83d\ude00b""#),
            (r#""a\ud83d""#, r#""a\ufffd""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ude00 \\ud83d \"""#, r#""\ufffd \\ud83d \"""#),
        ] {
            assert_eq!(whole_characters(json), whole);
            assert!(serde_json::from_str::<Value>(&whole_characters(json)).is_ok());
        }
        let line = r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"cut \ud83d","is_error":false}]}}"#;
        assert!(
            matches!(&ready().line(line)[..], [Step::Event(EventBody::Returned { output, .. })] if output == "cut \u{fffd}")
        );
        let odd = r#"{"type":"user","message":{"role":"user","content":{"type":"tool_result"}}}"#;
        assert_eq!(ready().line(odd), [unreadable()]);
    }

    #[test]
    fn a_mode_that_is_not_the_ordered_one_is_not_gone_on_with() {
        let mut claude = Claude::new("s".into(), "default".into(), "/w".into(), false);
        claude.initialize();
        let steps = claude.line(&initialized("idle", "bypassPermissions", ""));
        assert!(matches!(&steps[..], [Step::Fatal(_)]));
        let steps = ready().line(r#"{"type":"system","subtype":"status","permissionMode":"acceptEdits"}"#);
        assert!(matches!(&steps[..], [Step::Fatal(_)]));
    }

    #[test]
    fn an_old_program_that_lists_nothing_is_refused() {
        let mut claude = Claude::new("s".into(), "default".into(), "/w".into(), false);
        claude.initialize();
        let steps = claude.line(
            r#"{"type":"control_response","response":{"subtype":"success","request_id":"countersign-initialize-1","response":{}}}"#,
        );
        assert!(matches!(&steps[..], [Step::Fatal(_)]));
    }

    #[test]
    fn reattaching_reads_what_is_pending_from_the_newest_answer_only() {
        let mut claude = ready();
        claude.initialize();
        assert_eq!(claude.line(&initialized("idle", "default", "")), []);
        let newer = initialized("requires_action", "default", ASK).replace("initialize-1", "initialize-2");
        match &claude.line(&newer)[..] {
            [Step::Listed(asks)] => assert_eq!(asks[0].native_id, "1ae94614"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn events_are_made_of_blocks() {
        let claude = &mut ready();
        let steps = claude.line(r#"{"type":"assistant","message":{"content":[{"type":"text","text":"hello"},{"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]},"parent_tool_use_id":null}"#);
        assert!(
            matches!(&steps[0], Step::Event(EventBody::Said { text, sub_agent: None }) if text == "hello")
        );
        assert!(matches!(&steps[1], Step::Event(EventBody::Called { summary, .. }) if summary == "ls"));
        let steps = claude.line(r#"{"type":"user","message":{"role":"user","content":[{"type":"tool_result","content":"no","is_error":true,"tool_use_id":"t"}]}}"#);
        assert!(
            matches!(&steps[0], Step::Event(EventBody::Returned { is_error: true, output, .. }) if output == "no")
        );
    }

    #[test]
    fn what_it_cannot_do_or_read_is_refused_natively() {
        let claude = &mut ready();
        let refused = |steps: &[Step], word: &str| matches!(&steps[0], Step::Write(l) if l.contains(word));
        assert!(refused(&claude.line(&ASK.replace("\"input\"", "\"inputs\"")), "deny"));
        let hook = r#"{"type":"control_request","request_id":"h","request":{"subtype":"hook_callback"}}"#;
        assert!(refused(&claude.line(hook), "error"));
        let doubled =
            ASK.replace(r#""type":"control_request","#, r#""type":"control_request","request_id":"x","#);
        assert!(refused(&claude.line(&doubled), "deny"));
        assert_eq!(claude.line("nonsense"), [unreadable()]);
        assert_eq!(claude.line(r#"{"type":"odd"}"#), []);
    }

    #[test]
    fn a_withdrawal_names_its_request() {
        let steps = ready().line(r#"{"type":"control_cancel_request","request_id":"80367993"}"#);
        assert!(matches!(&steps[..], [Step::Withdrawn { native_id, .. }] if native_id == "80367993"));
    }

    fn state(state: &str) -> String {
        IDLE.replace("idle", state)
    }

    fn tasks(tasks: &str) -> String {
        format!(r#"{{"type":"system","subtype":"background_tasks_changed","tasks":[{tasks}]}}"#)
    }

    #[test]
    fn a_question_takes_answers_and_nothing_less() {
        const QUESTION: &str = r#"{"questions":[{"question":"Which?","header":"H","options":[{"label":"A","description":"a"}],"multiSelect":false}]}"#;
        let line = format!(
            r#"{{"type":"control_request","request_id":"q","request":{{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{QUESTION},"tool_use_id":"t","requires_user_interaction":true}}}}"#
        );
        let ask = the_ask(ready().line(&line));
        assert!(answer(&ask, &approve()).is_err());
        let with = |content: &str| answer(&ask, &Answer { content: Some(content.into()), ..approve() });
        let line = with(r#"{"answers":{"Which?":"A"}}"#).unwrap();
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["response"]["response"]["updatedInput"]["answers"]["Which?"], "A");
        assert_eq!(value["response"]["response"]["updatedInput"]["questions"][0]["header"], "H");
        assert!(with(r#"{"answers":{"Other?":"A"}}"#).is_err());
        let edited = Answer { edited_input: Some(r#"{"questions":[]}"#.into()), ..approve() };
        assert!(answer(&ask, &edited).is_err());
        let bash = the_ask(ready().line(ASK));
        let content = Answer { content: Some(r#"{"answers":{"Which?":"A"}}"#.into()), ..approve() };
        assert!(answer(&bash, &content).is_err());
    }

    #[test]
    fn an_edit_is_told_to_the_model_and_the_run_waits_for_that() {
        let mut claude = ready();
        claude.prompt(RunId(uuid::Uuid::nil()), "hi");
        let ask = the_ask(claude.line(ASK));
        let edited = Answer { edited_input: Some(r#"{"command":"ls"}"#.into()), ..approve() };
        let decision = DecisionId(uuid::Uuid::from_u128(7));
        let answered = claude.answer(&ask, decision, &edited).unwrap();
        let told: Value = serde_json::from_str(&answered.follow_up.clone().unwrap()).unwrap();
        assert!(told["message"]["content"].as_str().unwrap().contains(r#"{"command":"ls"}"#));
        claude.answering(&intent(decision, answered));
        claude.line(RESULT);
        assert_eq!(claude.line(IDLE), []);
        claude.line(&format!(
            r#"{{"type":"command_lifecycle","command_uuid":"{decision}","state":"completed"}}"#
        ));
        claude.line(RESULT);
        assert!(matches!(claude.line(IDLE)[..], [Step::Idle { .. }]));
    }

    fn intent(decision: DecisionId, answered: Answered) -> crate::journal::Intent {
        crate::journal::Intent {
            decision,
            approval: domain::id::ApprovalId(uuid::Uuid::nil()),
            outcome: Outcome::Approve,
            line: answered.line,
            follow_up: answered.follow_up,
            modes: answered.modes,
            stop: false,
        }
    }

    #[test]
    fn only_what_was_suggested_is_granted_and_only_for_the_session() {
        let suggestions = r#"[{"type":"addRules","rules":[{"toolName":"Bash","ruleContent":"touch x *"}],"behavior":"allow","destination":"localSettings"},{"type":"addDirectories","directories":["/w"],"destination":"projectSettings"},{"type":"setMode","mode":"acceptEdits","destination":"session"},{"type":"setMode","mode":"bypassPermissions","destination":"session"},{"type":"addRules","rules":[{"toolName":"Bash"}],"behavior":"deny","destination":"session"},{"type":"removeRules"},7]"#;
        let line = ASK
            .replace(r#""permission_suggestions":[]"#, &format!(r#""permission_suggestions":{suggestions}"#));
        let mut claude = ready();
        let ask = the_ask(claude.line(&line));
        let words: Vec<&str> = ask.grants.iter().map(|g| g.words.as_str()).collect();
        assert_eq!(words[0], "Allow Bash(touch x *) without asking");
        assert_eq!(words.len(), 3);
        assert!(ask.grants.iter().all(|g| g.native.contains(r#""destination":"session""#)));
        let grant = |native: &str| Answer { grants: vec![native.to_owned()], ..approve() };
        let line = answer(&ask, &grant(&ask.grants[0].native)).unwrap();
        assert!(line.contains(r#""updatedPermissions":[{"#) && line.contains("touch x *"), "{line}");
        let other = r#"{"type":"setMode","mode":"bypassPermissions","destination":"session"}"#;
        assert!(answer(&ask, &grant(other)).is_err());
        let status = r#"{"type":"system","subtype":"status","permissionMode":"acceptEdits"}"#;
        let edits =
            claude.answer(&ask, DecisionId(uuid::Uuid::nil()), &grant(&ask.grants[2].native)).unwrap();
        claude.answering(&intent(DecisionId(uuid::Uuid::nil()), edits));
        assert!(matches!(claude.line(status)[..], [Step::Event(EventBody::Mode { .. })]));
        assert!(claude.suits());
        assert_eq!(claude.line(status), []);
        assert!(matches!(claude.line(&status.replace("acceptEdits", "auto"))[..], [Step::Fatal(_)]));
    }

    #[test]
    fn a_plan_is_left_only_by_a_persons_answer() {
        let plan = r#"{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"ExitPlanMode","input":{},"tool_use_id":"t"}}"#;
        let status = r#"{"type":"system","subtype":"status","permissionMode":"default"}"#;
        let planning = || {
            let mut claude = Claude::new("s".into(), "plan".into(), "/w".into(), false);
            claude.initialize();
            claude.line(&initialized("idle", "plan", ""));
            claude
        };
        assert!(matches!(planning().line(status)[..], [Step::Fatal(_)]));
        let mut claude = planning();
        let ask = the_ask(claude.line(plan));
        assert_eq!(ask.grants.len(), 1);
        let decision = DecisionId(uuid::Uuid::nil());
        let answered = claude.answer(&ask, decision, &approve()).unwrap();
        claude.answering(&intent(decision, answered));
        assert!(matches!(claude.line(status)[..], [Step::Event(_)]));
        assert!(!claude.suits());
    }

    #[test]
    fn the_agent_may_begin_to_plan_by_itself_and_nothing_else() {
        let status = r#"{"type":"system","subtype":"status","permissionMode":"plan"}"#;
        assert!(matches!(ready().line(status)[..], [Step::Fatal(_)]));
        let mut claude = ready();
        claude.line(r#"{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t","name":"EnterPlanMode","input":{}}]}}"#);
        assert!(matches!(claude.line(status)[..], [Step::Event(_)]));
        assert!(!claude.suits());
    }

    #[test]
    fn a_run_goes_on_while_something_goes_on_in_the_background() {
        let mut claude = ready();
        claude.prompt(RunId(uuid::Uuid::nil()), "hi");
        claude.line(&tasks(r#"{"task_id":"b","task_type":"local_bash","description":"build"}"#));
        claude.line(RESULT);
        let steps = claude.line(IDLE);
        assert!(
            matches!(&steps[..], [Step::Event(EventBody::Background { tasks })] if tasks == &["build".to_owned()])
        );
        assert!(claude.in_background().is_some() && claude.settles().is_none() && !claude.rests());
        claude.line(&tasks(""));
        assert!(claude.settles().is_some());
        let steps = claude.line(&state("running"));
        assert!(matches!(&steps[..], [Step::Event(EventBody::Background { tasks })] if tasks.is_empty()));
        assert!(claude.settles().is_none());
        claude.line(RESULT);
        assert!(matches!(claude.line(IDLE)[..], [Step::Idle { .. }]));
        assert!(claude.rests());
    }

    #[test]
    fn a_sub_agent_is_named_by_what_it_was_told() {
        let mut claude = ready();
        claude.line(r#"{"type":"system","subtype":"task_started","task_id":"a1","tool_use_id":"toolu_9","task_type":"local_agent","subagent_type":"general-purpose","description":"look"}"#);
        let ask =
            the_ask(claude.line(&ASK.replace(r#""tool_use_id":"#, r#""agent_id":"a1","tool_use_id":"#)));
        assert_eq!(ask.sub_agent.as_deref(), Some("a1"));
        assert_eq!(ask.sub_agent_title.as_deref(), Some("general-purpose: look"));
        let said = claude.line(r#"{"type":"assistant","message":{"content":[{"type":"text","text":"x"}]},"parent_tool_use_id":"toolu_9"}"#);
        assert!(
            matches!(&said[..], [Step::Event(EventBody::Said { sub_agent: Some(name), .. })] if name == "general-purpose: look")
        );
    }

    #[test]
    fn an_account_that_is_not_accepted_is_said_with_what_to_do() {
        let mut claude = ready();
        claude.prompt(RunId(uuid::Uuid::nil()), "hi");
        claude.line(r#"{"type":"assistant","message":{"content":[{"type":"text","text":"Not logged in"}]},"error":"authentication_failed"}"#);
        claude.line(r#"{"type":"result","subtype":"success","is_error":true,"result":"Not logged in"}"#);
        let steps = claude.line(IDLE);
        assert!(
            matches!(&steps[..], [Step::Idle { status: RunStatus::Error, detail: Some(d) }] if d.contains("claude auth login")),
            "{steps:?}"
        );
    }

    #[test]
    fn asking_for_everything_is_a_setting_of_the_start() {
        let args = Claude::new("s".into(), "default".into(), "/w".into(), true).args(false);
        assert!(args.iter().any(|a| a.contains(r#""ask":["*"]"#)));
        let args = Claude::new("s".into(), "default".into(), "/w".into(), false).args(false);
        assert!(!args.iter().any(|a| a == "--settings"));
    }
}
