//! `cargo xtask bench`: release build, then the load generator, which prints one
//! line of JSON a measure.

use std::process::Command;

use crate::site::{self, Native};
use crate::{Failure, Places, Profile, run};

/// Builds all in release and runs the measures named, or all; or one of `faults` and
/// `soak` with its options.
pub fn bench(places: &Places, measures: &[String]) -> Result<(), Failure> {
    site::build(places, Profile::Release, Native::Build)?;
    run::run(&mut run::cargo(places, &["build", "--release", "-p", "bench", "-p", "scripted-claude"]))?;
    let programs = places.programs(Profile::Release);
    let mut command = Command::new(programs.join("countersign-bench"));
    command.args(measures).env("COUNTERSIGN_SITE", places.site());
    run::run(&mut command)
}
