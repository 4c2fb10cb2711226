//! Tests that take minutes: started as soon as everything is built, run beside all
//! other stages, awaited at the end. What they print is kept in `target/xtask` and
//! shown then.
//!
//! Two kinds are here: programs, which pass by their exit status, and tests marked
//! `#[ignore = "takes … minutes"]`, all of which one run of cargo takes. To add one,
//! mark a test so, or add a program to [`start`]. Long tests of one crate run at the
//! same moment; those of different crates one crate after the other.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::scratch::Scratch;
use crate::test::NATIVE;
use crate::{Failure, Places, Profile, run};

/// How long one that is not waited for may take to end in order.
const ENDING: Duration = Duration::from_mins(1);

/// One that runs.
pub struct Long {
    pub name: &'static str,
    child: Child,
    log: PathBuf,
    began: Instant,
}

/// How one ended.
pub struct Ended {
    pub seconds: f64,
    /// Everything it printed.
    pub output: String,
    pub passed: bool,
}

/// Whether the filters leave the fault runs.
pub fn has_faults(filters: &[&str]) -> bool {
    filters.is_empty() || filters.contains(&"faults")
}

/// Starts all that the filters leave. `harness` is the real Claude Code, where there is one.
pub fn start(
    places: &Places,
    scratch: &Scratch,
    filters: &[&str],
    harness: Option<&PathBuf>,
) -> Result<Vec<Long>, Failure> {
    let mut all = Vec::new();
    if has_faults(filters) {
        let mut faults = Command::new(places.programs(Profile::Dev).join("countersign-bench"));
        faults.args(["faults", "--seconds", "120"]).env("COUNTERSIGN_SITE", places.site());
        faults.env_remove("DATABASE_URL");
        all.push(Long::start(places, "faults", faults)?);
    }
    let mut arguments = vec!["test", "--no-fail-fast"];
    arguments.extend(NATIVE);
    arguments.extend(["--tests", "--", "--ignored"]);
    arguments.extend(filters);
    let mut ignored = run::cargo(places, &arguments);
    ignored.env("SQLX_OFFLINE", "true").env("COUNTERSIGN_SCRATCH", &scratch.url);
    // For trying them out by hand; here they wait as long as they promise.
    ignored.env_remove("COUNTERSIGN_TEST_WAIT_S");
    if let Some(claude) = harness {
        ignored.env("CLAUDE_BIN", claude);
    }
    all.push(Long::start(places, "long", ignored)?);
    Ok(all)
}

impl Long {
    fn start(places: &Places, name: &'static str, mut command: Command) -> Result<Self, Failure> {
        let folder = places.target.join("xtask");
        let log = folder.join(format!("{name}.log"));
        let open = || {
            fs::create_dir_all(&folder)?;
            let file = File::create(&log)?;
            Ok::<_, std::io::Error>((file.try_clone()?, file))
        };
        let (output, errors) =
            open().map_err(|cause| format!("{} can't be written: {cause}.", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(|cause| format!("The stage {name} could not be started: {cause}."))?;
        Ok(Self { name, child, log, began: Instant::now() })
    }

    /// Waits for its end. It may have ended long ago, so its time is only known to be at
    /// most what is said.
    pub fn wait(mut self) -> Result<Ended, Failure> {
        let status =
            self.child.wait().map_err(|cause| format!("The stage {} was lost: {cause}.", self.name))?;
        let output = fs::read(&self.log).unwrap_or_default();
        Ok(Ended {
            seconds: self.began.elapsed().as_secs_f64(),
            output: String::from_utf8_lossy(&output).into_owned(),
            passed: status.success(),
        })
    }
}

/// One that nobody waits for any more is told to end, and does so in order.
impl Drop for Long {
    fn drop(&mut self) {
        let is_running = |child: &mut Child| matches!(child.try_wait(), Ok(None));
        if !is_running(&mut self.child) {
            return;
        }
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let began = Instant::now();
        while is_running(&mut self.child) && began.elapsed() < ENDING {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
