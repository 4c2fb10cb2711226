//! The data folder and its lock.

pub use ::cluster::data_folder::*;
