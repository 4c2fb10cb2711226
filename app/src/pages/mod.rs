//! Pages, by the noun they show.

pub mod agent;
pub mod approval;
pub mod chat;
pub mod lost;
pub mod me;
pub mod sign;
pub mod user;
