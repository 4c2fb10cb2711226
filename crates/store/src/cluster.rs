//! The database server: `DATABASE_URL`, or a private cluster of ours.
//!
//! A crate of its own, so that the scratch cluster that renews `.sqlx` can be
//! compiled before the queries of this one can.

pub use ::cluster::*;
