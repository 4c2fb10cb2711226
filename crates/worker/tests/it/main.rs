//! The worker as the server sees it: a real worker, real holders, real harnesses, and
//! a real websocket. Each test asserts that a side effect happened once or not at all.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod claude;
mod demo;
mod scripted;
mod server;
mod world;
