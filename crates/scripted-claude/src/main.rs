//! `countersign-scripted-claude`: speaks Claude Code's control protocol as 2.1.332 does
//! and does what its prompt scripts, so that tests need neither a model nor the real
//! program. A worker takes it for Claude Code when `CLAUDE_BIN` names it.
//!
//! A prompt carries its script as a line of its own ([`script`]):
//!
//! ```text
//! script:{"ledger":"/tmp/ledger","do":[{"say":"hello"},{"ask":{"command":"rm x"}}]}
//! ```
//!
//! Steps: `ask` (one call), `asks` (several at once), `run` (a call that needs no
//! permission), `say`, `burst` `[n,"text"]`, `huge` bytes, `wait` ms, `line` (raw, may
//! be garbage), `retry` n, `mode`, `die` (`"kill"` or an exit status), `fail` words,
//! `background` `[steps]`. A call has `tool` (Bash), `command` or `input` (kept byte for
//! byte), `id`, `call`, `agent` (sub-agent), `suggestions`, `withdraw` `{"after_ms":n}`
//! or `{"on_line":k}`, `again` n, `takes` ms, and `die` `[moment, how]` with a moment of
//! `before`, `asked`, `answered`, `effect`.
//!
//! Nothing is really run. A call that was allowed appends one line to the ledger, a
//! refused one a line that says why, and one that goes down with the process by `die` a
//! line too ([`ledger`]): effects are counted outside the product.
//!
//! What happens before the first prompt is set by a file `scripted-claude.json` in the
//! working directory: `start_mode` (the mode it really starts in), `slow_ms` (before it
//! reads anything), `fails` (words on standard error, exit status 1), `lists_nothing`
//! (an old program without `pending_permission_requests`).
//!
//! Left out: signals have their default action, hooks and MCP are not spoken, `defer`
//! and `CLAUDE_CODE_RESUME_INTERRUPTED_TURN` do not exist. Without a script a prompt is
//! answered with a sentence.

mod conversation;
mod flags;
mod ledger;
mod process;
mod script;
mod wire;

use std::{io, path::Path, process::ExitCode, sync::mpsc, thread, time::Duration};

use flags::Start;
use process::{Process, Setup};
use serde::Deserialize;

/// The version it says it is.
const VERSION: &str = "2.1.332";

/// The file that sets what happens before the first prompt.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Before {
    start_mode: Option<String>,
    slow_ms: u64,
    fails: Option<String>,
    lists_nothing: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_set = |name: &str| std::env::var(name).is_ok_and(|v| v == "1");
    let flags = match flags::read(&arguments, rustix::process::geteuid().is_root(), is_set("IS_SANDBOX")) {
        Ok(Start::Version) => {
            println!("{VERSION} (scripted)");
            return ExitCode::SUCCESS;
        }
        Ok(Start::Serve(flags)) => *flags,
        Err(words) => return failed(&words),
    };
    let before = match std::fs::read("scripted-claude.json") {
        Ok(bytes) => match serde_json::from_slice::<Before>(&bytes) {
            Ok(before) => before,
            Err(why) => return failed(&format!("scripted-claude.json cannot be read: {why}")),
        },
        Err(_) => Before::default(),
    };
    if let Some(words) = before.fails {
        return failed(&words);
    }
    let conversation = match conversation::open(&flags, &conversation::folder()) {
        Ok(conversation) => conversation,
        Err(words) => return failed(&words),
    };
    thread::sleep(Duration::from_millis(before.slow_ms));
    let (lines, inbox) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lines() {
            let Ok(line) = line else { break };
            if lines.send(line).is_err() {
                break;
            }
        }
        // Dropping the sender tells that the client is gone.
    });
    let setup = Setup {
        mode: before.start_mode.unwrap_or_else(|| flags.mode.clone()),
        lists_nothing: before.lists_nothing,
        tells_state: is_set("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS"),
        folder: std::env::current_dir().unwrap_or_else(|_| Path::new("/").to_owned()),
        conversation,
        flags,
    };
    let status = Process::new(setup, inbox, io::stdout()).serve();
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}

fn failed(words: &str) -> ExitCode {
    eprintln!("{words}");
    ExitCode::FAILURE
}
