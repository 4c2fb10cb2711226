//! The worker as the server sees it: a real worker, real holders, real harnesses, and
//! a real websocket. Each test asserts that a side effect happened once or not at all.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod claude;
mod claude_answers;
mod claude_life;
mod claude_settings;
mod cuts;
mod deaths;
mod demo;
mod dialogue;
mod double;
mod endpoint;
mod environment;
mod fuzz;
mod hostile;
mod lines;
mod overtaken;
mod process;
mod room;
mod scripted;
mod server;
mod superseded;
mod unread;
mod waits;
mod world;

/// Says loudly that something was not tested. Straight to the stream: the test harness
/// swallows the macros' output.
fn skipped(why: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}.");
}
