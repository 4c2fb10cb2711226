//! `cargo xtask bench`: release build, then the load generator, which prints one
//! line of JSON a measure.

use std::process::Command;

use crate::site::{self, Native};
use crate::{Failure, Places, Profile, run};

/// Builds all in release and runs the measures named, or all.
pub fn bench(places: &Places, measures: &[String]) -> Result<(), Failure> {
    site::build(places, Profile::Release, Native::Build)?;
    let programs = places.programs(Profile::Release);
    let program = programs.join("countersign-bench");
    if !program.exists() {
        return Err(format!("{} is not there. It is built by the package that has it.", program.display()));
    }
    let mut command = Command::new(program);
    command.args(measures).env("COUNTERSIGN_SITE", places.site()).env("COUNTERSIGN_BIN", programs);
    run::run(&mut command)
}
