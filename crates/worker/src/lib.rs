//! The process beside the harnesses.
//!
//! ```text
//! server ── websocket ── connection ── session ── harness ═ socket ═ hold ── tether → harness program
//!                                        │ driver, journal               └ spool
//! ```
//!
//! - [`connection`] keeps the link to the server and passes orders to sessions;
//! - [`session`] is one conversation: what the server ordered, what the harness said,
//!   and in between the [`journal`], so that nothing is lost or done twice when this
//!   process dies at any moment;
//! - [`drivers`] speak the native protocols, without I/O;
//! - [`hold`] is the small process that owns one harness and outlives the worker,
//!   [`harness`] the worker's end of it, [`tether`] what ties the two together;
//! - [`offer`] says which harnesses there are, [`folder`] where things are kept.
//!
//! Killing the worker leaves holders and harnesses; the next worker of the same data
//! folder finds them by the journal and goes on with the same processes. Ending it
//! properly ends them, unless it is told to leave them.

pub mod bounds;
pub mod connection;
pub mod drivers;
pub mod folder;
pub mod harness;
pub mod hold;
pub mod journal;
pub mod offer;
pub mod run;
pub mod session;
pub mod tether;
mod trial;
pub mod uplink;
