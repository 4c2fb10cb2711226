//! Who is asking: cookies, passwords, one-time links, and the guards before every route.

pub mod cookie;
pub mod forms;
pub mod guard;
pub mod limit;
pub mod password;
