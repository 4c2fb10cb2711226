//! `countersign-demo-agent`: a small ACP agent over stdio that needs no model.
//!
//! It reads a prompt as a tiny language ([`script`]), says what it will do, asks for
//! permission the way every ACP agent does, and really does it afterwards, inside its
//! own folder ([`place`]). It is made for the first run and for tests, so it is plain:
//! one reader thread, one session, one prompt at a time ([`agent`]).

mod agent;
mod place;
mod script;

use std::{io, sync::mpsc, thread};

fn main() {
    if std::env::args().nth(1).is_some_and(|a| a == "--version") {
        println!("{} (Countersign demo agent)", env!("CARGO_PKG_VERSION"));
        return;
    }
    let (lines, inbox) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lines() {
            let Ok(line) = line else { break };
            if lines.send(line).is_err() {
                break;
            }
        }
        // Dropping the sender tells the agent that its client is gone.
    });
    agent::Agent::new(inbox, io::stdout()).serve();
}
