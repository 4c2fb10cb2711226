//! Parts that pages share, by what they show.

pub mod action;
pub mod agent;
pub mod clock;
pub mod decision;
pub mod draft;
pub mod empty;
pub mod frame;
pub mod icon;
pub mod last;
pub mod made;
pub mod plain;
pub mod post;
pub mod problem;
pub mod question;
pub mod read;
pub mod receipt;
pub mod request;
pub mod status;
pub mod time;
