//! Any agent that speaks the Agent Client Protocol, version 1, over standard input and
//! output.
//!
//! What this rests on: agents start in modes of their own, some of which never ask, so
//! the mode is set and read back before the first prompt; an answer carries one of the
//! offered options or `cancelled`, and no words; what is pending is not told again, so
//! it comes from the journal; ids of requests are the agent's own, numbers or texts,
//! and are kept as the JSON they came as.

use std::{borrow::Cow, collections::BTreeMap};

use domain::{
    action,
    approval::{AskOption, plain_option},
    decision::{Answer, Outcome},
    event::{EventBody, cut},
    run::RunStatus,
};
use link::message::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use crate::bounds::{NAME_MAX, is_name};

use super::{Ask, Step, head::Head, quoted, returned, said, shorten, thought, unreadable};

/// Text held back that is told at once even if the agent goes on with it.
const SAID_MAX: usize = 16 * 1024;
/// Kinds of calls remembered, for requests that name only the call.
const KINDS_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Initializing,
    Opening,
    SettingMode,
    Ready,
}

/// The state of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acp {
    folder: String,
    /// The ordered mode.
    mode: String,
    phase: Phase,
    session: Option<String>,
    /// The id of our newest call.
    calls: u64,
    /// The id of the prompt that is not answered.
    prompt: Option<u64>,
    /// The mode the agent has last reported.
    mode_seen: Option<String>,
    /// The agent has taken the order.
    mode_set: bool,
    kinds: BTreeMap<String, String>,
    /// Text not yet told, and whether it is the agent's thinking.
    held: Option<(bool, String)>,
}

#[derive(Deserialize)]
struct Rpc<'a> {
    #[serde(default, borrow)]
    id: Option<&'a RawValue>,
    #[serde(default, borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    params: Option<&'a RawValue>,
    #[serde(default)]
    result: Option<Value>,
    #[serde(default)]
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RequestPermission<'a> {
    session_id: String,
    #[serde(borrow)]
    tool_call: &'a RawValue,
    options: Vec<Offered>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Offered {
    option_id: String,
    name: String,
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall<'a> {
    #[serde(rename = "toolCallId")]
    id: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default, borrow)]
    raw_input: Option<&'a RawValue>,
    #[serde(default)]
    raw_output: Option<Value>,
    #[serde(default)]
    content: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notification<'a> {
    session_id: String,
    #[serde(borrow)]
    update: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    #[serde(rename = "sessionUpdate", borrow)]
    kind: Cow<'a, str>,
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    current_mode_id: Option<String>,
}

impl Acp {
    pub fn new(mode: String, folder: String) -> Self {
        Self {
            folder,
            mode,
            phase: Phase::Initializing,
            session: None,
            calls: 0,
            prompt: None,
            mode_seen: None,
            mode_set: false,
            kinds: BTreeMap::new(),
            held: None,
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> String {
        self.calls += 1;
        json!({"jsonrpc": "2.0", "id": self.calls, "method": method, "params": params}).to_string()
    }

    pub fn start(&mut self) -> Vec<String> {
        let capabilities = json!({"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false});
        let client =
            json!({"name": "countersign", "title": "Countersign", "version": env!("CARGO_PKG_VERSION")});
        vec![self.call(
            "initialize",
            &json!({"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": client}),
        )]
    }

    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    pub fn prompt(&mut self, text: &str) -> String {
        let params = json!({"sessionId": self.session, "prompt": [{"type": "text", "text": text}]});
        let line = self.call("session/prompt", &params);
        self.prompt = Some(self.calls);
        line
    }

    pub const fn holds_text(&self) -> bool {
        self.held.is_some()
    }

    pub fn flush(&mut self) -> Vec<Step> {
        match self.held.take() {
            Some((true, text)) => vec![thought(text)],
            Some((false, text)) => said(text, None),
            None => Vec::new(),
        }
    }

    pub fn line(&mut self, text: &str) -> Vec<Step> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        let Ok(line) = serde_json::from_str::<Rpc<'_>>(text) else {
            let refusal = refuse_left_out(text, "This could not be read.");
            return refusal.map(Step::Write).into_iter().chain([unreadable()]).collect();
        };
        match (line.method.as_deref(), line.id, line.params) {
            (Some("session/update"), None, Some(params)) => self.update(params),
            (Some(_), None, _) => Vec::new(),
            (Some("session/request_permission"), Some(id), Some(params)) => {
                let asked = self.asked(id.get(), params);
                self.after_text(asked)
            }
            (Some(_), Some(id), _) => vec![Step::Write(error(id.get(), -32601, "This is not supported."))],
            (None, Some(id), _) => {
                let steps = self.answered(id.get(), line.result, line.error.as_ref());
                self.after_text(steps)
            }
            (None, None, _) => vec![unreadable()],
        }
    }

    /// Puts text held back before what comes after it.
    fn after_text(&mut self, steps: Vec<Step>) -> Vec<Step> {
        if steps.is_empty() {
            return steps;
        }
        let mut all = self.flush();
        all.extend(steps);
        all
    }

    fn asked(&mut self, id: &str, params: &RawValue) -> Vec<Step> {
        let Ok(request) = serde_json::from_str::<RequestPermission<'_>>(params.get()) else {
            return vec![Step::Write(error(id, -32602, "The request could not be read.")), unreadable()];
        };
        let Ok(call) = serde_json::from_str::<ToolCall<'_>>(request.tool_call.get()) else {
            return vec![Step::Write(error(id, -32602, "The call could not be read.")), unreadable()];
        };
        if Some(&request.session_id) != self.session.as_ref() || request.options.is_empty() {
            return vec![Step::Write(error(id, -32602, "There is no such session, or no answer to choose."))];
        }
        let input = call.raw_input.unwrap_or(request.tool_call).get();
        let tool = call
            .kind
            .clone()
            .or_else(|| self.kinds.get(&call.id).cloned())
            .unwrap_or_else(|| "tool".to_owned());
        let words = words_of(&call, input, &tool, &self.folder);
        vec![Step::Ask(Box::new(Ask {
            native_id: id.to_owned(),
            tool,
            input: Bytes(input.as_bytes().to_vec()),
            sub_agent: None,
            call_id: Some(call.id),
            words,
            options: request
                .options
                .into_iter()
                .map(|o| AskOption { id: o.option_id, name: o.name, kind: o.kind })
                .collect(),
            sub_agent_title: None,
            grants: Vec::new(),
        }))]
    }

    fn answered(&mut self, id: &str, result: Option<Value>, failed: Option<&Value>) -> Vec<Step> {
        let Ok(id) = id.parse::<u64>() else { return Vec::new() };
        if Some(id) == self.prompt {
            self.prompt = None;
            return vec![ended(result, failed)];
        }
        if id != self.calls || self.phase == Phase::Ready {
            return Vec::new();
        }
        if let Some(failed) = failed {
            let why = failed["message"].as_str().unwrap_or_default();
            return vec![Step::Fatal(format!("The agent refused to start: {why}"))];
        }
        let result = result.unwrap_or_default();
        match self.phase {
            Phase::Initializing if result["protocolVersion"] == 1 => {
                self.phase = Phase::Opening;
                let params = json!({"cwd": self.folder, "mcpServers": []});
                vec![Step::Write(self.call("session/new", &params))]
            }
            Phase::Initializing => {
                vec![Step::Fatal("The agent speaks another version of its protocol.".to_owned())]
            }
            Phase::Opening => {
                let Some(session) = result["sessionId"].as_str().filter(|id| is_name(id)) else {
                    return vec![Step::Fatal("The agent opened no session.".to_owned())];
                };
                self.session = Some(session.to_owned());
                self.mode_seen = result["modes"]["currentModeId"].as_str().map(name);
                self.phase = Phase::SettingMode;
                let params = json!({"sessionId": session, "modeId": self.mode});
                vec![
                    Step::NativeSession(session.to_owned()),
                    Step::Write(self.call("session/set_mode", &params)),
                ]
            }
            Phase::SettingMode => {
                self.mode_set = true;
                self.read_back()
            }
            Phase::Ready => Vec::new(),
        }
    }

    /// Ready once the order was taken and the agent itself reports the ordered mode.
    fn read_back(&mut self) -> Vec<Step> {
        if self.mode_set && self.mode_seen.as_deref() == Some(self.mode.as_str()) {
            self.phase = Phase::Ready;
            return vec![Step::Event(EventBody::Mode { mode: self.mode.clone() }), Step::Ready];
        }
        Vec::new()
    }

    fn update(&mut self, params: &RawValue) -> Vec<Step> {
        let Ok(notification) = serde_json::from_str::<Notification<'_>>(params.get()) else {
            return vec![unreadable()];
        };
        let Ok(update) = serde_json::from_str::<Update<'_>>(notification.update.get())
            .or_else(|_| update_of_call(notification.update.get()))
        else {
            return vec![unreadable()];
        };
        if Some(&notification.session_id) != self.session.as_ref() {
            return Vec::new();
        }
        match &*update.kind {
            kind @ ("agent_message_chunk" | "agent_thought_chunk") => {
                let content = update.content.unwrap_or_default();
                let text = match content["text"].as_str() {
                    Some(text) => text.to_owned(),
                    None => format!("[{}]", content["type"].as_str().unwrap_or("something")),
                };
                self.hold(kind == "agent_thought_chunk", &text)
            }
            "tool_call" | "tool_call_update" => {
                let Ok(call) = serde_json::from_str::<ToolCall<'_>>(notification.update.get()) else {
                    return vec![unreadable()];
                };
                let steps = self.called(call, &update.kind == "tool_call");
                self.after_text(steps)
            }
            "current_mode_update" => {
                self.mode_seen = update.current_mode_id.as_deref().map(name);
                if self.phase != Phase::Ready {
                    return self.read_back();
                }
                if self.mode_seen.as_deref() == Some(self.mode.as_str()) {
                    return Vec::new();
                }
                let fatal = Step::Fatal(format!(
                    "The agent changed its permission mode to \"{}\" where \"{}\" was ordered. It was stopped.",
                    self.mode_seen.as_deref().unwrap_or_default(),
                    self.mode
                ));
                self.after_text(vec![fatal])
            }
            _ => Vec::new(),
        }
    }

    fn hold(&mut self, is_thought: bool, text: &str) -> Vec<Step> {
        let mut steps = match &self.held {
            Some((held, _)) if *held != is_thought => self.flush(),
            _ => Vec::new(),
        };
        let held = &mut self.held.get_or_insert_with(|| (is_thought, String::new())).1;
        held.push_str(text);
        if held.len() > SAID_MAX {
            steps.extend(self.flush());
        }
        steps
    }

    fn called(&mut self, call: ToolCall<'_>, first: bool) -> Vec<Step> {
        if let Some(kind) = call.kind.as_ref().filter(|kind| is_name(kind) && is_name(&call.id)) {
            if self.kinds.len() >= KINDS_MAX {
                self.kinds.pop_first();
            }
            self.kinds.insert(call.id.clone(), kind.clone());
        }
        let mut steps = Vec::new();
        if first {
            let tool = call.kind.clone().unwrap_or_else(|| "tool".to_owned());
            let mut input = call.raw_input.map(|r| r.get().to_owned()).unwrap_or_default();
            let summary = if input.is_empty() {
                action::marked(call.title.as_deref().unwrap_or_default())
            } else {
                action::view(&tool, &self.folder, input.as_bytes()).title()
            };
            shorten(&mut input);
            let call_id = call.id.clone();
            steps.push(Step::Event(EventBody::Called { call_id, tool, summary, input, sub_agent: None }));
        }
        if let Some(status @ ("completed" | "failed")) = call.status.as_deref() {
            self.kinds.remove(&call.id);
            let output = texts(call.content.as_deref().unwrap_or_default());
            let output = match (output.is_empty(), call.raw_output) {
                (true, Some(Value::String(text))) => text,
                (true, Some(raw)) if !raw.is_null() => raw.to_string(),
                _ => output,
            };
            steps.push(returned(call.id, output, status == "failed"));
        }
        steps
    }

    /// Tells the agent to stop, then answers what it had asked, as the protocol demands.
    pub fn cancel(&mut self, open: &[String]) -> Vec<String> {
        let params = json!({"sessionId": self.session});
        let cancel = json!({"jsonrpc": "2.0", "method": "session/cancel", "params": params}).to_string();
        std::iter::once(cancel).chain(open.iter().map(|id| cancelled(id))).collect()
    }
}

/// A name as it is kept. One that is cut equals no name that was ordered.
fn name(text: &str) -> String {
    let mut name = text.to_owned();
    cut(&mut name, NAME_MAX);
    name
}

/// A call's update has `content` in another shape, which only [`ToolCall`] reads.
fn update_of_call(text: &str) -> Result<Update<'_>, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind<'a> {
        #[serde(rename = "sessionUpdate", borrow)]
        kind: Cow<'a, str>,
    }
    serde_json::from_str::<Kind<'_>>(text).map(|kind| Update {
        kind: kind.kind,
        content: None,
        current_mode_id: None,
    })
}

fn texts(content: &[Value]) -> String {
    let text = |block: &Value| match block["type"].as_str() {
        Some("content") => block["content"]["text"].as_str().map(str::to_owned),
        Some("diff") => Some(format!("[change of {}]", block["path"].as_str().unwrap_or("a file"))),
        _ => None,
    };
    content.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

/// The agent's own words: its text beside the call, or its title where that is not
/// simply the action again.
fn words_of(call: &ToolCall<'_>, input: &str, tool: &str, folder: &str) -> Option<String> {
    let beside = texts(call.content.as_deref().unwrap_or_default());
    let title = call.title.clone().filter(|title| {
        let value: Value = serde_json::from_str(input).unwrap_or_default();
        let repeats = value.as_object().is_some_and(|o| o.values().any(|v| v.as_str() == Some(title)));
        !repeats && *title != action::view(tool, folder, input.as_bytes()).title()
    });
    Some(beside)
        .filter(|t| !t.is_empty())
        .or(title)
        .filter(|t| !t.trim().is_empty())
        .or_else(|| action::words_in(input.as_bytes()))
}

fn ended(result: Option<Value>, failed: Option<&Value>) -> Step {
    if let Some(failed) = failed {
        let why = failed["message"].as_str().unwrap_or("without a reason");
        return Step::Idle {
            status: RunStatus::Error,
            detail: Some(format!("The agent ended the prompt with an error: {why}")),
        };
    }
    let result = result.unwrap_or_default();
    let (status, detail) = match result["stopReason"].as_str().unwrap_or_default() {
        "end_turn" => (RunStatus::Completed, None),
        "cancelled" => (RunStatus::Cancelled, None),
        "max_tokens" => (RunStatus::Error, Some("The agent ran into its limit of tokens.".to_owned())),
        "max_turn_requests" => {
            (RunStatus::Error, Some("The agent ran into its limit of requests.".to_owned()))
        }
        "refusal" => (RunStatus::Error, Some("The agent refused to go on.".to_owned())),
        other => (RunStatus::Error, Some(format!("The agent stopped with \"{other}\"."))),
    };
    Step::Idle { status, detail }
}

fn error(id: &str, code: i32, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{}}}}}"#, quoted(message))
}

fn selected(id: &str, option: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{{"outcome":{{"outcome":"selected","optionId":{}}}}}}}"#,
        quoted(option)
    )
}

fn cancelled(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"outcome":{{"outcome":"cancelled"}}}}}}"#)
}

/// Refuses the request a line begins with; nothing where it is no request. Its options
/// are not known, so it is refused as one that cannot be read.
pub fn refuse_left_out(head: &str, words: &str) -> Option<String> {
    let head = Head::read(head);
    let id = head.raw("id").filter(|id| *id != "null")?;
    head.text("method").map(|_| error(id, -32602, words))
}

fn first_rejecting(options: &[AskOption]) -> Option<&AskOption> {
    options
        .iter()
        .find(|o| o.kind == "reject_once")
        .or_else(|| options.iter().find(|o| o.kind.starts_with("reject")))
}

/// Refuses with the first option that does; `cancelled` where none does.
pub fn refuse(native_id: &str, options: &[AskOption]) -> String {
    first_rejecting(options).map_or_else(|| cancelled(native_id), |o| selected(native_id, &o.id))
}

pub fn answer(ask: &Ask, answer: &Answer) -> Result<String, String> {
    if answer.edited_input.is_some() || answer.content.is_some() || !answer.grants.is_empty() {
        return Err("This agent takes one of the answers it offers, and nothing else.".to_owned());
    }
    let approves = answer.outcome == Outcome::Approve;
    let id = match &answer.option_id {
        Some(id) => id.clone(),
        None if approves => plain_option(&ask.options, Outcome::Approve)
            .ok()
            .flatten()
            .ok_or("The decision names none of the answers the agent offers.")?,
        None => return Ok(refuse(&ask.native_id, &ask.options)),
    };
    let option = ask
        .options
        .iter()
        .find(|o| o.id == id)
        .ok_or("The agent does not offer the answer that was chosen.")?;
    // A refusal must never travel as an answer that allows, nor the other way round.
    if approves == option.kind.starts_with("reject") {
        return Err("The answer that was chosen does not fit the decision.".to_owned());
    }
    Ok(selected(&ask.native_id, &option.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASK: &str = r#"{"jsonrpc":"2.0","id":"5","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"call_1","title":"Append to notes.txt","kind":"edit","rawInput":{"path":"/w/notes.txt","content":"x","n":1.0}},"options":[{"optionId":"a","name":"Allow once","kind":"allow_once"},{"optionId":"r","name":"Reject","kind":"reject_once"}]}}"#;

    fn ready() -> Acp {
        let mut acp = Acp::new("ask".into(), "/w".into());
        acp.start();
        assert!(matches!(
            &acp.line(r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}"#)[..],
            [Step::Write(l)] if l.contains("session/new")
        ));
        let steps = acp
            .line(r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s","modes":{"currentModeId":"auto"}}}"#);
        assert!(matches!(&steps[..], [Step::NativeSession(_), Step::Write(l)] if l.contains("set_mode")));
        assert_eq!(acp.line(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#), [], "the order alone is no proof");
        assert_eq!(acp.line(&mode("ask")).last(), Some(&Step::Ready));
        acp
    }

    fn mode(id: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"current_mode_update","currentModeId":"{id}"}}}}}}"#
        )
    }

    fn chunk(text: &str) -> String {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"agent_message_chunk","content":{{"type":"text","text":"{text}"}}}}}}}}"#
        )
    }

    fn the_ask(acp: &mut Acp) -> Ask {
        match acp.line(ASK).pop() {
            Some(Step::Ask(ask)) => *ask,
            other => panic!("{other:?}"),
        }
    }

    fn decided(outcome: Outcome, option: Option<&str>) -> Answer {
        let option_id = option.map(str::to_owned);
        Answer { option_id, ..Answer::plain(outcome) }
    }

    #[test]
    fn ids_and_input_are_kept_as_they_came() {
        let ask = the_ask(&mut ready());
        assert_eq!(ask.native_id, r#""5""#);
        assert_eq!(ask.input.0, br#"{"path":"/w/notes.txt","content":"x","n":1.0}"#);
        assert_eq!(ask.call_id.as_deref(), Some("call_1"));
        assert_eq!(ask.words.as_deref(), Some("Append to notes.txt"));
        let line = answer(&ask, &decided(Outcome::Approve, Some("a"))).unwrap();
        assert_eq!(
            line,
            r#"{"jsonrpc":"2.0","id":"5","result":{"outcome":{"outcome":"selected","optionId":"a"}}}"#
        );
    }

    #[test]
    fn an_answer_that_does_not_fit_the_decision_is_never_given() {
        let ask = the_ask(&mut ready());
        assert!(answer(&ask, &decided(Outcome::Reject, Some("a"))).is_err());
        assert!(answer(&ask, &decided(Outcome::Approve, Some("r"))).is_err());
        assert!(answer(&ask, &decided(Outcome::Approve, Some("other"))).is_err());
        assert!(answer(&ask, &decided(Outcome::Expire, None)).unwrap().contains(r#""optionId":"r""#));
        let lasting = Ask {
            options: vec![AskOption { id: "x".into(), name: "x".into(), kind: "allow_always".into() }],
            ..ask
        };
        assert!(answer(&lasting, &decided(Outcome::Approve, None)).is_err());
        assert!(answer(&lasting, &decided(Outcome::Reject, None)).unwrap().contains("cancelled"));
    }

    #[test]
    fn chunks_become_one_text_before_what_follows() {
        let mut acp = ready();
        assert_eq!(acp.line(&chunk("a")), []);
        assert_eq!(acp.line(&chunk("b")), []);
        assert!(acp.holds_text());
        let steps = acp.line(ASK);
        assert!(matches!(&steps[0], Step::Event(EventBody::Said { text, .. }) if text == "ab"));
        assert!(matches!(&steps[1], Step::Ask(_)));
    }

    #[test]
    fn a_prompt_ends_with_its_answer() {
        let mut acp = ready();
        let line = acp.prompt("hi");
        assert!(line.contains(r#""id":4"#));
        assert_eq!(acp.line(r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}"#), []);
        assert_eq!(
            acp.line(r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"cancelled"}}"#),
            [Step::Idle { status: RunStatus::Cancelled, detail: None }]
        );
    }

    #[test]
    fn an_unordered_mode_stops_it() {
        let steps = ready().line(&mode("auto"));
        assert!(matches!(&steps[..], [Step::Fatal(why)] if why.contains("auto")));
    }

    #[test]
    fn unknown_requests_and_unreadable_ones_are_refused() {
        let acp = &mut ready();
        let refused = |steps: &[Step], word: &str| matches!(&steps[0], Step::Write(l) if l.contains(word));
        let steps = acp.line(r#"{"jsonrpc":"2.0","id":9,"method":"fs/read_text_file","params":{}}"#);
        assert!(refused(&steps, "-32601"));
        assert!(refused(&acp.line(&ASK.replace("toolCallId", "other")), "-32602"));
        assert!(refused(&acp.line(&ASK.replace(r#""sessionId":"s""#, r#""sessionId":"t""#)), "-32602"));
        assert_eq!(acp.line("x"), [unreadable()]);
    }

    #[test]
    fn a_call_and_its_result_are_joined_by_its_id() {
        let acp = &mut ready();
        let steps = acp.line(r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"t","kind":"execute","status":"pending","rawInput":{"command":"ls"}}}}"#);
        assert!(matches!(&steps[..], [Step::Event(EventBody::Called { summary, .. })] if summary == "ls"));
        let steps = acp.line(r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"c","status":"completed","content":[{"type":"content","content":{"type":"text","text":"out"}}]}}}"#);
        assert!(
            matches!(&steps[..], [Step::Event(EventBody::Returned { output, is_error: false, .. })] if output == "out")
        );
    }

    #[test]
    fn a_cancel_answers_what_was_asked() {
        let lines = ready().cancel(&[r#""5""#.to_owned()]);
        assert!(lines[0].contains("session/cancel"));
        assert!(lines[1].contains(r#""id":"5""#) && lines[1].contains("cancelled"));
    }
}
