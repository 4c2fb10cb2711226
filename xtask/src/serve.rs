//! `cargo xtask serve`: build, then become the server.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use crate::site::{self, Native};
use crate::{Failure, Places, profile};

/// Builds all, and replaces this process by the server. So the terminal's Ctrl-C
/// reaches the server and nothing else, and its exit code is the command's.
pub fn serve(places: &Places, mut arguments: Vec<String>) -> Result<(), Failure> {
    let profile = profile(&mut arguments);
    site::build(places, profile, Native::Build)?;
    let program = places.programs(profile).join("countersign");
    let mut command = Command::new(&program);
    command.arg("serve").args(arguments).env("COUNTERSIGN_SITE", places.site());
    // Only for builds; see .cargo/config.toml.
    command.env_remove("SQLX_OFFLINE");
    Err(format!("{} could not be started: {}.", program.display(), command.exec()))
}
