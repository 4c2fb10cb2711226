//! The frames between server and worker, and the rules of their sequence. No sockets.
//!
//! JSON-RPC 2.0 text frames over one websocket the worker opens at `/link`, with a
//! bearer token, no batches. The worker says [`message::Hello`] first; the server
//! answers with the epoch it issues. From then on every message about a session
//! carries that epoch, and whoever reads another one drops the message.
//!
//! Session events carry a sequence per session; the receiver acknowledges
//! cumulatively **after durable storage** ([`sequence`]). Permission requests,
//! withdrawals and cancels are not part of the sequence: they are calls, repeated
//! until answered, and idempotent by their key.
//!
//! Unknown fields and notifications are ignored, unknown requests get
//! [`frame::METHOD_NOT_FOUND`].

pub mod frame;
pub mod message;
pub mod sequence;
