//! The words of Countersign as types, and the rules that need no I/O.
//!
//! This crate compiles for the server, the browser and the worker, so a rule
//! stated here holds in all three. Nothing reads a clock, a random source or a
//! file: times, ids and bytes are handed in.
//!
//! - [`action`]: what a harness asked for, byte for byte, its digest, and how it is shown.
//! - [`approval`], [`decision`]: one native permission request and a person's answer;
//!   [`question`] and [`edit`] are the answers that are more than yes or no.
//! - [`run`], [`event`], [`session`]: what happens around it.
//! - [`agent`], [`worker`], [`user`]: who takes part.
//! - [`failure`]: the one error that crosses the wire to people.

pub mod action;
pub mod agent;
pub mod approval;
pub mod decision;
pub mod digest;
pub mod edit;
pub mod event;
pub mod failure;
pub mod id;
pub mod question;
pub mod run;
pub mod session;
pub mod text_enum;
pub mod time;
pub mod user;
pub mod words;
pub mod worker;
