//! The program from outside, through its pipes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value, json};

/// How long a test may take: one that waits for what never comes fails, and does not hang.
const PATIENCE: Duration = Duration::from_mins(2);

struct Claude {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    folder: PathBuf,
    /// While this is there, the program is killed when its time is over.
    _watch: mpsc::Sender<()>,
}

fn folder() -> PathBuf {
    let path = std::env::temp_dir().join(format!("scripted-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

impl Claude {
    fn start(folder: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_countersign-scripted-claude"))
            .args(["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"])
            .args(["--permission-prompt-tool", "stdio", "--setting-sources=", "--strict-mcp-config"])
            .args(more)
            .env_clear()
            .env("CLAUDE_CONFIG_DIR", folder.join("config"))
            .env("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS", "1")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let (watch, over) = mpsc::channel::<()>();
        let pid = rustix::process::Pid::from_child(&child);
        std::thread::spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        Self { child, input, output, folder: folder.to_owned(), _watch: watch }
    }

    fn write(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    fn prompt(&mut self, steps: &str) {
        let ledger = self.ledger();
        let text = format!("script:{{\"ledger\":\"{}\",\"do\":{steps}}}", ledger.display());
        self.write(&json!({"type": "user", "message": {"role": "user", "content": text}}).to_string());
    }

    fn order(&mut self, id: &str, subtype: &str) {
        let line = json!({"type": "control_request", "request_id": id, "request": {"subtype": subtype}});
        self.write(&line.to_string());
    }

    fn allow(&mut self, id: &str, input: &str) {
        self.write(&format!(
            r#"{{"type":"control_response","response":{{"subtype":"success","request_id":"{id}","response":{{"behavior":"allow","updatedInput":{input}}}}}}}"#
        ));
    }

    fn deny(&mut self, id: &str, words: &str) {
        let verdict = json!({"behavior": "deny", "message": words});
        self.write(
            &json!({"type": "control_response",
                    "response": {"subtype": "success", "request_id": id, "response": verdict}})
            .to_string(),
        );
    }

    /// The next line that `wanted` takes.
    fn until(&mut self, mut wanted: impl FnMut(&Value) -> bool) -> (Value, String) {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended");
            if let Ok(value) = serde_json::from_str::<Value>(&line)
                && wanted(&value)
            {
                return (value, line);
            }
        }
    }

    fn asked(&mut self) -> String {
        self.until(|v| v["type"] == "control_request").0["request_id"].as_str().unwrap().to_owned()
    }

    fn idle(&mut self) -> Value {
        let (result, _) = self.until(|v| v["type"] == "result");
        self.until(|v| v["state"] == "idle");
        result
    }

    fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }

    /// What became of the calls, with the input as it ran or the reason.
    fn book(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(self.ledger()).unwrap_or_default();
        let lines = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        lines
            .map(|l| {
                let what = l["reason"].as_str().map_or_else(|| l["input"].to_string(), str::to_owned);
                (l["became"].as_str().unwrap().to_owned(), what)
            })
            .collect()
    }

    fn status(mut self) -> Option<i32> {
        self.input = None;
        let status = self.child.wait().unwrap().code();
        std::fs::remove_dir_all(&self.folder).unwrap();
        status
    }
}

fn entry(became: &str, what: &str) -> (String, String) {
    (became.to_owned(), what.to_owned())
}

#[test]
fn it_names_its_version() {
    let out =
        Command::new(env!("CARGO_BIN_EXE_countersign-scripted-claude")).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(out.stdout).unwrap(), "2.1.332 (scripted)\n");
}

#[test]
fn an_allowed_call_runs_once_and_answers_to_settled_requests_are_dropped() {
    let mut claude = Claude::start(&folder(), &[]);
    claude.prompt(r#"[{"ask":{"command":"one"}},{"ask":{"command":"two"}}]"#);
    let first = claude.asked();
    claude.deny("unknown", "no");
    claude.allow(&first, r#"{"command":"one"}"#);
    claude.deny(&first, "too late");
    claude.allow(&first, r#"{"command":"again"}"#);
    let second = claude.asked();
    claude.deny(&second, "not this one");
    let result = claude.idle();
    assert_eq!(result["permission_denials"].as_array().unwrap().len(), 1);
    assert_eq!(claude.book(), [entry("ran", r#"{"command":"one"}"#), entry("refused", "not this one")]);
    assert_eq!(claude.status(), Some(0));
}

#[test]
fn initialize_lists_what_waits_byte_for_byte() {
    let mut claude = Claude::start(&folder(), &[]);
    claude.order("i1", "initialize");
    let (first, _) = claude.until(|v| v["response"]["request_id"] == "i1");
    assert_eq!(first["response"]["response"]["session_state"], "idle");
    assert_eq!(first["response"]["pending_permission_requests"], json!([]));
    claude.prompt(
        r#"[{"asks":[{"tool":"Read","input":{"n":9007199254740993}},{"tool":"Read","agent":"sub"}]}]"#,
    );
    let (one, two) = (claude.asked(), claude.asked());
    claude.until(|v| v["state"] == "requires_action");
    claude.order("i2", "initialize");
    let (again, line) = claude.until(|v| v["response"]["request_id"] == "i2");
    let waits = again["response"]["pending_permission_requests"].as_array().unwrap();
    assert_eq!((&waits[0]["request_id"], &waits[1]["request_id"]), (&json!(one), &json!(two)));
    assert_eq!(waits[1]["request"]["agent_id"], "sub");
    assert!(line.contains(r#""input":{"n":9007199254740993}"#));
    claude.allow(&two, "{}");
    claude.allow(&one, "{}");
    claude.idle();
    assert_eq!(claude.book(), [entry("ran", "{}"), entry("ran", r#"{"n":9007199254740993}"#)]);
    claude.status();
}

#[test]
fn an_interrupt_takes_requests_back_and_the_process_goes_on() {
    let mut claude = Claude::start(&folder(), &[]);
    claude.prompt(r#"[{"ask":{"command":"one"}},{"ask":{"command":"never"}}]"#);
    let id = claude.asked();
    claude.order("stop", "interrupt");
    let (cancelled, _) = claude.until(|v| v["type"] == "control_cancel_request");
    assert_eq!(cancelled["request_id"], json!(id));
    assert_eq!(claude.idle()["terminal_reason"], "aborted_tools");
    claude.allow(&id, "{}");
    claude.prompt(r#"[{"run":{"command":"ls"}}]"#);
    claude.idle();
    assert_eq!(claude.book(), [entry("refused", "interrupted"), entry("ran", r#"{"command":"ls"}"#)]);
    claude.order("end", "end_session");
    assert_eq!(claude.status(), Some(0));
}

#[test]
fn a_second_prompt_is_folded_into_the_turn() {
    let mut claude = Claude::start(&folder(), &[]);
    claude.prompt(r#"[{"ask":{"command":"one"}}]"#);
    let id = claude.asked();
    claude.prompt(r#"[{"say":"second"}]"#);
    claude.allow(&id, "{}");
    claude.until(|v| v["message"]["content"][0]["text"] == "second");
    claude.idle();
    claude.status();
}

#[test]
fn a_prompt_queued_when_a_turn_is_interrupted_begins_the_next_turn_at_once() {
    let mut claude = Claude::start(&folder(), &[]);
    let prompt = |id: &str, text: &str| {
        json!({"type": "user", "message": {"role": "user", "content": text}, "uuid": id}).to_string()
    };
    claude.write(&prompt("one", r#"script:{"do":[{"ask":{"command":"x"}},{"say":"never"}]}"#));
    let id = claude.asked();
    claude.write(&prompt("two", "more"));
    claude.order("stop", "interrupt");
    let (told, _) = claude.until(|v| v["response"]["request_id"] == "stop");
    assert_eq!(told["response"]["response"]["still_queued"], json!(["two"]));
    claude.until(|v| v["type"] == "user" && v["message"]["content"][0]["is_error"] == true);
    let states = ["cancelled", "started", "completed"].map(|_| {
        let (line, _) = claude.until(|v| v["type"] == "command_lifecycle" || v["state"] == "idle");
        format!("{} {}", line["command_uuid"].as_str().unwrap_or("idle"), line["state"].as_str().unwrap())
    });
    assert_eq!(states, ["one cancelled", "two started", "two completed"]);
    claude.until(|v| v["state"] == "idle");
    claude.allow(&id, "{}");
    claude.status();
}

#[test]
fn it_dies_where_it_is_told_to() {
    for (moment, became) in [
        ("before", &["died"][..]),
        ("asked", &["died"]),
        ("answered", &["died"]),
        ("effect", &["ran", "died"]),
    ] {
        let mut claude = Claude::start(&folder(), &[]);
        claude.prompt(&format!(r#"[{{"ask":{{"command":"x","die":["{moment}","kill"]}}}}]"#));
        if moment != "before" {
            let id = claude.asked();
            if moment != "asked" {
                claude.allow(&id, "{}");
            }
        }
        assert_eq!(claude.child.wait().unwrap().code(), None, "{moment}");
        let book: Vec<String> = claude.book().into_iter().map(|(became, _)| became).collect();
        assert_eq!(book, became, "{moment}");
        claude.status();
    }
    // What else was open is named too.
    let mut claude = Claude::start(&folder(), &[]);
    claude.prompt(r#"[{"asks":[{"command":"open"},{"command":"x","die":["asked","kill"]}]}]"#);
    claude.child.wait().unwrap();
    let inputs: Vec<String> = claude.book().into_iter().map(|(_, input)| input).collect();
    assert_eq!(inputs, [r#"{"command":"open"}"#, r#"{"command":"x"}"#]);
    claude.status();
    let mut claude = Claude::start(&folder(), &[]);
    claude.prompt(r#"[{"die":3}]"#);
    assert_eq!(claude.status(), Some(3));
}

#[test]
fn a_line_that_is_not_json_ends_it_and_so_does_a_wrong_flag() {
    let mut claude = Claude::start(&folder(), &[]);
    claude.write("nonsense");
    assert_eq!(claude.status(), Some(1));
    assert_eq!(Claude::start(&folder(), &["--nonsense"]).status(), Some(1));
}

#[test]
fn a_conversation_is_taken_up_only_when_it_began() {
    let at = folder();
    assert_eq!(Claude::start(&at, &["--resume", "s"]).child.wait().unwrap().code(), Some(1));
    let mut claude = Claude::start(&at, &["--session-id", "s"]);
    claude.prompt("[]");
    claude.idle();
    claude.input = None;
    claude.child.wait().unwrap();
    assert_eq!(Claude::start(&at, &["--session-id", "s"]).child.wait().unwrap().code(), Some(1));
    let mut claude = Claude::start(&at, &["--resume", "s"]);
    claude.prompt("[]");
    assert_eq!(claude.idle()["session_id"], "s");
    claude.status();
}

#[test]
fn withdrawals_sub_agents_rules_and_background_work() {
    let mut claude = Claude::start(&folder(), &[]);
    claude.prompt(r#"[{"ask":{"command":"gone","withdraw":{"after_ms":1}}},{"background":[{"ask":{"command":"later"}}]}]"#);
    let gone = claude.asked();
    let (cancelled, _) = claude.until(|v| v["type"] == "control_cancel_request");
    assert_eq!(cancelled["request_id"], json!(gone));
    // The background asks before the turn's result or after it.
    let (mut result, mut later) = (false, None);
    claude.until(|v| {
        result |= v["type"] == "result";
        if v["type"] == "control_request" {
            later = v["request_id"].as_str().map(str::to_owned);
        }
        result && later.is_some()
    });
    let later = later.unwrap();
    claude.write(&format!(
        r#"{{"type":"control_response","response":{{"subtype":"success","request_id":"{later}","response":{{"behavior":"allow","updatedPermissions":[{{"type":"addRules","rules":[{{"toolName":"Bash","ruleContent":"later"}}],"behavior":"allow","destination":"session"}}]}}}}}}"#
    ));
    claude.idle();
    claude.prompt(
        r#"[{"ask":{"command":"later"}},{"burst":[3,"x"]},{"huge":100000},{"retry":1},{"line":"garbage"}]"#,
    );
    let (huge, _) =
        claude.until(|v| v["message"]["content"][0]["text"].as_str().is_some_and(|t| t.len() > 9_999));
    assert_eq!(huge["type"], "assistant");
    claude.idle();
    let ran = claude.book().iter().filter(|(became, _)| became == "ran").count();
    assert_eq!(ran, 2);
    claude.status();
}

#[test]
fn it_starts_in_the_mode_a_file_says_and_changes_it_unasked() {
    let at = folder();
    std::fs::write(at.join("scripted-claude.json"), r#"{"start_mode":"acceptEdits"}"#).unwrap();
    let mut claude = Claude::start(&at, &["--permission-mode", "default"]);
    claude.order("i", "initialize");
    let (told, _) = claude.until(|v| v["response"]["request_id"] == "i");
    assert_eq!(told["response"]["response"]["current_permission_mode"], "acceptEdits");
    claude.prompt(r#"[{"ask":{"tool":"Write"}},{"mode":"plan"}]"#);
    claude.until(|v| v["permissionMode"] == "plan" && v["subtype"] == "status");
    claude.idle();
    claude.status();
}
