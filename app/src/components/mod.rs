//! Parts that pages share, by what they show.

pub mod action;
pub mod clock;
pub mod decision;
pub mod empty;
pub mod frame;
pub mod icon;
pub mod last;
pub mod made;
pub mod plain;
pub mod post;
pub mod problem;
pub mod read;
pub mod receipt;
pub mod status;
pub mod time;
