//! The worker as the server sees it: a real worker, real holders, real harnesses, and
//! a real websocket. Each test asserts that a side effect happened once or not at all.

mod claude;
mod demo;
mod server;
mod world;
