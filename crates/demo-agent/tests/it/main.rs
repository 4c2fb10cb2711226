//! The agent as its client sees it: a real process, real lines, real files.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use serde_json::{Value, json};

/// How long a test may take: one that waits for what never comes fails, and does not hang.
const PATIENCE: Duration = Duration::from_mins(2);

struct Agent {
    child: Child,
    stdin: ChildStdin,
    out: BufReader<ChildStdout>,
    folder: PathBuf,
    session: Value,
    seen: Vec<Value>,
    /// While this is there, the agent is killed when its time is over.
    _watch: mpsc::Sender<()>,
}

impl Agent {
    fn start(mode: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("demo-agent-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_countersign-demo-agent"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, out) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let (watch, over) = mpsc::channel::<()>();
        let pid = rustix::process::Pid::from_child(&child);
        std::thread::spawn(move || {
            if over.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
        let session = Value::Null;
        let mut agent = Self { child, stdin, out, folder, session, seen: Vec::new(), _watch: watch };
        agent.send(&json!({"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}));
        assert_eq!(agent.answer(1)["result"]["protocolVersion"], 1);
        let cwd = agent.folder.clone();
        agent.send(
            &json!({"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":cwd,"mcpServers":[]}}),
        );
        agent.session = agent.answer(2)["result"]["sessionId"].clone();
        let params = json!({"sessionId": agent.session, "modeId": mode});
        agent.send(&json!({"jsonrpc":"2.0","id":3,"method":"session/set_mode","params":params}));
        assert!(agent.answer(3)["result"].is_object());
        assert!(agent.seen.iter().any(|m| m["params"]["update"]["currentModeId"] == mode));
        agent
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin, "{message}").unwrap();
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).unwrap() > 0, "the agent closed its output");
        let message: Value = serde_json::from_str(&line).unwrap();
        self.seen.push(message.clone());
        message
    }

    fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.read();
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
        }
    }

    fn asked(&mut self) -> Value {
        loop {
            let message = self.read();
            if message["method"] == "session/request_permission" {
                return message;
            }
        }
    }

    fn prompt(&mut self, text: &str) {
        let params = json!({"sessionId": self.session, "prompt": [{"type":"text","text":text}]});
        self.send(&json!({"jsonrpc":"2.0","id":9,"method":"session/prompt","params":params}));
    }

    fn choose(&mut self, asked: &Value, option: &str) {
        let outcome = json!({"outcome":"selected","optionId":option});
        self.send(&json!({"jsonrpc":"2.0","id":asked["id"],"result":{"outcome":outcome}}));
    }

    fn file(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.join(name)).ok()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn it_writes_after_it_was_allowed_and_not_before() {
    let mut agent = Agent::start("ask");
    agent.prompt("Buy milk");
    let asked = agent.asked();
    assert_eq!(asked["params"]["toolCall"]["rawInput"]["content"], "Buy milk\n");
    assert_eq!(agent.file("notes.txt"), None);
    agent.choose(&asked, "allow-once");
    assert_eq!(agent.answer(9)["result"]["stopReason"], "end_turn");
    assert_eq!(agent.file("notes.txt").as_deref(), Some("Buy milk\n"));
}

#[test]
fn a_rejected_write_is_left_out_and_the_next_step_goes_on() {
    let mut agent = Agent::start("ask");
    agent.prompt("append a.txt: 1\nappend b.txt: 2");
    let first = agent.asked();
    agent.choose(&first, "reject-once");
    let second = agent.asked();
    agent.choose(&second, "allow-once");
    agent.answer(9);
    assert_eq!((agent.file("a.txt"), agent.file("b.txt").as_deref()), (None, Some("2\n")));
}

#[test]
fn an_option_it_never_offered_allows_nothing() {
    let mut agent = Agent::start("ask");
    agent.prompt("x");
    let asked = agent.asked();
    agent.choose(&asked, "allow-always");
    agent.answer(9);
    assert_eq!(agent.file("notes.txt"), None);
}

#[test]
fn two_requests_are_open_at_once_and_answered_in_reverse() {
    let mut agent = Agent::start("ask");
    agent.prompt("both: append a.txt: 1 && run: echo 2 > b.txt");
    let (first, second) = (agent.asked(), agent.asked());
    agent.choose(&second, "allow-once");
    agent.choose(&first, "reject-once");
    agent.answer(9);
    assert_eq!((agent.file("a.txt"), agent.file("b.txt").as_deref()), (None, Some("2\n")));
}

#[test]
fn a_cancel_ends_the_prompt_while_it_asks_and_while_a_command_runs() {
    let mut agent = Agent::start("ask");
    for prompt in ["x", "run: sleep 600; echo late > late"] {
        agent.prompt(prompt);
        let asked = agent.asked();
        if prompt != "x" {
            agent.choose(&asked, "allow-once");
        }
        let params = json!({"sessionId": agent.session});
        agent.send(&json!({"jsonrpc":"2.0","method":"session/cancel","params":params}));
        assert_eq!(agent.answer(9)["result"]["stopReason"], "cancelled");
    }
    assert_eq!((agent.file("notes.txt"), agent.file("late")), (None, None));
}

#[test]
fn a_cancel_tells_of_every_open_act_that_it_was_not_done() {
    let mut agent = Agent::start("ask");
    agent.prompt("both: run: sleep 600 && append a.txt: 1");
    let (first, second) = (agent.asked(), agent.asked());
    // The second is allowed while the first runs, and never begun.
    agent.choose(&first, "allow-once");
    agent.choose(&second, "allow-once");
    let params = json!({"sessionId": agent.session});
    agent.send(&json!({"jsonrpc":"2.0","method":"session/cancel","params":params}));
    assert_eq!(agent.answer(9)["result"]["stopReason"], "cancelled");
    let ended = |call: &str| {
        let mut told = agent.seen.iter().filter(|m| m["params"]["update"]["toolCallId"] == call);
        told.next_back().unwrap()["params"]["update"]["status"].clone()
    };
    assert_eq!((ended("call_1"), ended("call_2")), (json!("failed"), json!("failed")));
    assert_eq!(agent.file("a.txt"), None);
}

#[test]
fn the_mode_auto_writes_without_asking_and_unknown_methods_are_refused() {
    let mut agent = Agent::start("auto");
    agent.prompt("hello\nrun: cat notes.txt\nappend ../x: no");
    agent.answer(9);
    assert!(agent.seen.iter().all(|m| m["method"] != "session/request_permission"));
    assert_eq!(agent.file("notes.txt").as_deref(), Some("hello\n"));
    assert!(agent.seen.iter().any(|m| m.to_string().contains("not inside my folder")));
    agent.send(&json!({"jsonrpc":"2.0","id":20,"method":"fs/odd","params":{}}));
    assert_eq!(agent.answer(20)["error"]["code"], -32601);
}
