//! Claude Code over its control protocol: `stream-json` both ways, permission requests
//! as `can_use_tool` on standard output.
//!
//! What this rests on, all seen with 2.1.332: `initialize` may be sent at any time and
//! lists what is pending; an answer to an unknown or settled request is dropped in
//! silence; `result` does not mean idle, `session_state_changed: idle` does; an edited
//! input replaces the whole input; a refusal must have words.

use std::borrow::Cow;

use domain::{
    action,
    decision::{Answer, Outcome},
    event::EventBody,
    id::RunId,
    run::RunStatus,
};
use link::message::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};

use super::{Ask, Step, notice, quoted, returned, said, shorten, thought, unreadable, words_of};

/// The oldest version whose every `initialize` lists what is pending.
pub const OLDEST: (u64, u64, u64) = (2, 1, 268);

/// Tools that are answered with more than yes or no, or change the permission mode. Approving plainly would tell
/// the model that the person answered nothing.
const NEED_MORE_THAN_YES: &[&str] = &["AskUserQuestion", "EnterPlanMode", "ExitPlanMode"];
const CANNOT_SHOW: &str = "Countersign cannot show this dialog to a person yet, so nobody has seen it. \
                           Write your question or plan as plain text and end your turn; the person answers in the next message.";

/// The state of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claude {
    /// The session id it was started with.
    session: String,
    /// The ordered permission mode.
    mode: String,
    folder: String,
    /// The number of the newest `initialize`; answers to older ones are out of date.
    initialized: u64,
    ready: bool,
    /// A prompt was handed over and its turn has not ended.
    prompted: bool,
    /// The last result since the prompt.
    result: Option<(RunStatus, Option<String>)>,
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
    pub fn new(session: String, mode: String, folder: String) -> Self {
        Self { session, mode, folder, initialized: 0, ready: false, prompted: false, result: None }
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
        json!({"type": "user", "message": {"role": "user", "content": text}, "parent_tool_use_id": null,
               "session_id": "", "uuid": run.to_string()})
        .to_string()
    }

    pub fn line(&mut self, text: &str) -> Vec<Step> {
        if text.trim().is_empty() {
            return Vec::new();
        }
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            return Self::refuse_unreadable(text);
        };
        match (&*line.kind, line.subtype.as_deref()) {
            ("control_request", _) => Self::request(line.request_id, line.request),
            ("control_cancel_request", _) => line
                .request_id
                .map(|native_id| Step::Withdrawn {
                    native_id,
                    reason: "The agent took its request back.".to_owned(),
                })
                .into_iter()
                .collect(),
            ("control_response", _) => line.response.map_or_else(Vec::new, |r| self.response(r)),
            (kind @ ("assistant" | "user"), _) => {
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
        let mut steps = vec![unreadable()];
        if let Ok(value) = serde_json::from_str::<Value>(text)
            && value["type"] == "control_request"
            && let Some(id) = value["request_id"].as_str()
        {
            steps.insert(0, Step::Write(deny(id, "This request could not be read, so nobody was asked.")));
        }
        steps
    }

    fn request(id: Option<String>, request: Option<&RawValue>) -> Vec<Step> {
        let (Some(id), Some(request)) = (id, request) else { return vec![unreadable()] };
        let subtype = serde_json::from_str::<Subtype<'_>>(request.get());
        if subtype.as_ref().is_ok_and(|s| s.subtype == "can_use_tool") {
            return match ask(id.clone(), request) {
                Some(ask) if NEED_MORE_THAN_YES.contains(&ask.tool.as_str()) => {
                    let text = "The agent opened a dialog that cannot be shown here yet. It was asked to write plain text instead.";
                    vec![Step::Write(deny(&id, CANNOT_SHOW)), notice(text, false)]
                }
                Some(ask) => vec![Step::Ask(Box::new(ask))],
                None => vec![
                    Step::Write(deny(&id, "This request could not be read, so nobody was asked.")),
                    unreadable(),
                ],
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
        let mode = body["current_permission_mode"].as_str().unwrap_or_default();
        if let Some(fatal) = self.wrong_mode(mode) {
            return vec![fatal];
        }
        let mut steps = Vec::new();
        if !self.ready {
            self.ready = true;
            steps.push(Step::NativeSession(self.session.clone()));
            steps.push(Step::Ready);
        }
        let mut listed = Vec::new();
        for request in pending {
            match ask(request.request_id.clone(), request.request) {
                Some(ask) if NEED_MORE_THAN_YES.contains(&ask.tool.as_str()) => {
                    steps.push(Step::Write(deny(&request.request_id, CANNOT_SHOW)));
                }
                Some(ask) => listed.push(ask),
                None => {
                    let words = "This request could not be read, so nobody was asked.";
                    steps.push(Step::Write(deny(&request.request_id, words)));
                    steps.push(unreadable());
                }
            }
        }
        steps.push(Step::Listed(listed));
        steps
    }

    /// A mode other than the ordered one is not gone on with.
    fn wrong_mode(&self, reported: &str) -> Option<Step> {
        let plain = |mode: &str| if mode == "manual" { "default".to_owned() } else { mode.to_owned() };
        (plain(reported) != plain(&self.mode)).then(|| {
            Step::Fatal(format!(
                "Claude Code reports the permission mode \"{reported}\" where \"{}\" was ordered. It was stopped.",
                self.mode
            ))
        })
    }

    fn system(&mut self, subtype: &str, text: &str) -> Vec<Step> {
        let line: Value = serde_json::from_str(text).unwrap_or_default();
        match subtype {
            "init" => {
                let mode = line["permissionMode"].as_str().unwrap_or_default();
                if let Some(fatal) = self.wrong_mode(mode) {
                    return vec![fatal];
                }
                let mut steps = vec![Step::Event(EventBody::Mode { mode: mode.to_owned() })];
                if let Some(session) = line["session_id"].as_str().filter(|s| *s != self.session) {
                    session.clone_into(&mut self.session);
                    steps.push(Step::NativeSession(session.to_owned()));
                }
                steps
            }
            "status" => {
                let mode = line["permissionMode"].as_str();
                mode.and_then(|mode| self.wrong_mode(mode)).into_iter().collect()
            }
            "session_state_changed" if line["state"] == "idle" && self.prompted => {
                // Idle before any result is from before the prompt was taken up.
                let Some((status, detail)) = self.result.take() else { return Vec::new() };
                self.prompted = false;
                vec![Step::Idle { status, detail }]
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
            domain::event::cut(&mut detail, 1000);
            detail
        });
        self.result = Some((if failed { RunStatus::Error } else { RunStatus::Completed }, detail));
    }

    fn message(&self, message: &RawValue, sub_agent: Option<&str>) -> Vec<Step> {
        let Ok(message) = serde_json::from_str::<Message<'_>>(message.get()) else {
            return vec![unreadable()];
        };
        // A plain text is the prompt or a remark of the program itself, not the agent's.
        let Ok(blocks) = serde_json::from_str::<Vec<Block<'_>>>(message.content.get()) else {
            return Vec::new();
        };
        blocks.into_iter().flat_map(|block| self.block(block, sub_agent)).collect()
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

fn ask(native_id: String, request: &RawValue) -> Option<Ask> {
    let request: CanUseTool<'_> = serde_json::from_str(request.get()).ok()?;
    if native_id.is_empty() {
        return None;
    }
    let input = request.input.get().as_bytes();
    // `description` repeats the path or the address for files and fetches: then it is no
    // word of the agent.
    let words = action::words_in(input).or_else(|| {
        let value: Value = serde_json::from_slice(input).ok()?;
        let repeats =
            |text: &str| value.as_object().is_some_and(|o| o.values().any(|v| v.as_str() == Some(text)));
        request.description.filter(|text| !text.is_empty() && !repeats(text))
    });
    Some(Ask {
        native_id,
        tool: request.tool_name,
        input: Bytes(input.to_vec()),
        sub_agent: request.agent_id,
        call_id: request.tool_use_id,
        words,
        options: Vec::new(),
    })
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

pub fn answer(ask: &Ask, answer: &Answer) -> Result<String, String> {
    if answer.option_id.is_some() {
        return Err("Claude Code offers no answers to choose from.".to_owned());
    }
    if answer.outcome != Outcome::Approve {
        return Ok(deny(&ask.native_id, words_of(answer)));
    }
    if NEED_MORE_THAN_YES.contains(&ask.tool.as_str()) {
        return Ok(deny(&ask.native_id, CANNOT_SHOW));
    }
    let original = || std::str::from_utf8(&ask.input.0).map_err(|_| "The input is not text.".to_owned());
    let input = match &answer.edited_input {
        // The bytes as they came: a number re-serialised could be another number.
        None => original()?.to_owned(),
        Some(edited) => {
            let is_object = serde_json::from_str::<&RawValue>(edited).is_ok_and(|r| r.get().starts_with('{'));
            // An empty object would run the original input.
            if !is_object || serde_json::from_str::<Value>(edited).is_ok_and(|v| v == json!({})) {
                return Err("The edited input is not an object with something in it.".to_owned());
            }
            // Outside of strings, where JSON allows no line feed, it is only white space.
            edited.replace(['\n', '\r'], " ")
        }
    };
    Ok(respond(&ask.native_id, &format!(r#"{{"behavior":"allow","updatedInput":{input}}}"#)))
}

pub fn interrupt(run: RunId) -> String {
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
        let mut claude = Claude::new("s".into(), "default".into(), "/w".into());
        claude.initialize();
        let steps = claude.line(&initialized("idle", "default", ""));
        assert_eq!(steps, [Step::NativeSession("s".into()), Step::Ready, Step::Listed(Vec::new())]);
        claude
    }

    fn the_ask(steps: Vec<Step>) -> Ask {
        match steps.into_iter().next() {
            Some(Step::Ask(ask)) => *ask,
            other => panic!("{other:?}"),
        }
    }

    fn approve() -> Answer {
        Answer { outcome: Outcome::Approve, option_id: None, edited_input: None, message: None, stop: false }
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
    fn a_mode_that_is_not_the_ordered_one_is_not_gone_on_with() {
        let mut claude = Claude::new("s".into(), "default".into(), "/w".into());
        claude.initialize();
        let steps = claude.line(&initialized("idle", "bypassPermissions", ""));
        assert!(matches!(&steps[..], [Step::Fatal(_)]));
        let steps = ready().line(r#"{"type":"system","subtype":"status","permissionMode":"acceptEdits"}"#);
        assert!(matches!(&steps[..], [Step::Fatal(_)]));
    }

    #[test]
    fn an_old_program_that_lists_nothing_is_refused() {
        let mut claude = Claude::new("s".into(), "default".into(), "/w".into());
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
        let question = ASK.replace("\"Bash\",\"display", "\"AskUserQuestion\",\"display");
        assert!(refused(&claude.line(&question), "deny"));
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
}
