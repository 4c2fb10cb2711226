//! The real program on real sockets: the link, live updates, and what is refused.

mod cases;
mod cuts;
mod database;
mod defects;
mod http;
mod link;
mod live;
mod product;
mod rules;
mod start;
mod wire;
mod worker;

/// Straight to the stream: the test harness swallows the macros' output.
fn say(words: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr(), "{words}");
}
