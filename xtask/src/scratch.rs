//! A Postgres for one command, that ends with it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::{Failure, Places, run};

/// Runs until it is dropped, or this process ends in whatever way.
pub struct Scratch {
    /// The URL of its database `postgres`, for `COUNTERSIGN_SCRATCH`.
    pub url: String,
    /// The URL of a database with the migrations, if they were asked for.
    pub migrated: Option<String>,
    child: Child,
}

impl Scratch {
    /// Compiles the little program that starts one. `cargo test` has compiled it too.
    pub fn build(places: &Places) -> Result<(), Failure> {
        let arguments = ["build", "-p", "cluster", "--features", "scratch", "--example", "scratch"];
        run::run(&mut run::cargo(places, &arguments))
    }

    /// Starts one, with a database that has the migrations if a folder of them is given.
    pub fn start(places: &Places, migrations: Option<&Path>) -> Result<Self, Failure> {
        let program = places.target.join("debug/examples/scratch");
        let mut child = Command::new(&program)
            .args(migrations)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|cause| format!("{} could not be started: {cause}.", program.display()))?;
        let mut lines =
            BufReader::new(child.stdout.take().ok_or("The scratch cluster has no output.")?).lines();
        let mut line = || match lines.next() {
            Some(Ok(line)) => Ok(line),
            _ => Err("The scratch cluster did not start.".to_owned()),
        };
        let url = line()?;
        let migrated = migrations.map(|_| line()).transpose()?;
        Ok(Self { url, migrated, child })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
