//! `cargo xtask test`: everything that must hold, in stages.
//!
//! Native code is compiled once, as tests in the dev profile; the end-to-end
//! tests run those same programs. `frontend` is the one crate that is never
//! compiled natively: its feature `hydrate` of `app` would meet the server's
//! `ssr`, and the two exclude each other.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::long::{self, Long};
use crate::scratch::Scratch;
use crate::site::{self, Native};
use crate::{Failure, Places, Profile, run};

/// The native part of the workspace.
pub const NATIVE: [&str; 3] = ["--workspace", "--exclude", "frontend"];

/// How long what the tests said on their standard error may take to arrive.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// How many tests did what.
#[derive(Default, Clone, Debug, PartialEq, Eq)]
struct Count {
    passed: u32,
    failed: u32,
    skipped: u32,
    /// What tests said that could not be done here.
    reasons: Vec<String>,
}

impl Count {
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.reasons.extend_from_slice(&other.reasons);
    }

    /// Takes in what a test says that returns without testing: `SKIPPED: why.`
    fn read_skipped(&mut self, line: &str) {
        if let Some(at) = line.find("SKIPPED") {
            self.reasons.push(line[at..].trim().to_owned());
        }
    }

    /// Cargo counts a test that returned without testing as passed.
    fn returned_early(&mut self) {
        let early = u32::try_from(self.reasons.len()).unwrap_or(u32::MAX);
        self.passed = self.passed.saturating_sub(early);
        self.skipped += early;
    }

    /// Takes in a line of cargo: `test result: ok. 3 passed; 0 failed; 1 ignored; …`.
    fn read_cargo(&mut self, line: &str) {
        let Some((_, numbers)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in numbers.split(';') {
            self.take(part);
        }
    }

    /// Takes in a line of Playwright's closing ones: `  3 failed`, `  12 passed (30.1s)`.
    fn read_playwright(&mut self, line: &str) {
        let line = line.trim();
        let bare = line.split(" (").next().unwrap_or(line);
        let words = bare.split_whitespace().count();
        if words == 2 || bare.ends_with(" did not run") {
            self.take(bare);
        }
    }

    fn take(&mut self, part: &str) {
        let mut words = part.split_whitespace();
        let (Some(Ok(number)), Some(word)) = (words.next().map(str::parse::<u32>), words.next()) else {
            return;
        };
        match word {
            "passed" | "flaky" => self.passed += number,
            "failed" | "interrupted" => self.failed += number,
            "ignored" | "skipped" | "did" => self.skipped += number,
            _ => {}
        }
    }
}

/// One stage that is over.
struct Stage {
    name: &'static str,
    seconds: f64,
    count: Count,
    failure: Option<Failure>,
}

/// Runs the stages asked for, all unless some are named.
pub fn test(places: &Places, arguments: &[String]) -> Result<(), Failure> {
    let named = |stage: &str| arguments.iter().any(|argument| argument == stage);
    let filters: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|word| !matches!(*word, "lint" | "unit" | "e2e"))
        .collect();
    if let Some(option) = filters.iter().find(|word| word.starts_with('-')) {
        return Err(format!("Unknown option {option}."));
    }
    let all = !named("lint") && !named("unit") && !named("e2e");
    let lint = named("lint") || (all && filters.is_empty());
    let (unit, e2e) = (all || named("unit"), all || named("e2e"));

    let mut stages = Vec::new();
    if lint {
        stage(&mut stages, "format", |_| run::run(&mut run::cargo(places, &["fmt", "--all", "--check"])));
        stage(&mut stages, "clippy", |_| clippy(places));
    }
    if unit || e2e {
        let built = stage(&mut stages, "build", |_| {
            let mut arguments = vec!["test", "--no-run"];
            arguments.extend(NATIVE);
            run::run(&mut run::cargo(places, &arguments))?;
            // The fault runs sign in through the pages too.
            let needs_site = e2e || long::has_faults(&filters);
            if needs_site { site::build(places, Profile::Dev, Native::Built) } else { Ok(()) }
        });
        if built {
            match Scratch::start(places, None) {
                Ok(scratch) => {
                    let mut long = Vec::new();
                    if unit {
                        stage(&mut stages, "start long", |_| {
                            long = long::start(places, &scratch, &filters, unit_harness(places)?.as_ref())?;
                            Ok(())
                        });
                        stage(&mut stages, "unit", |count| cargo_test(places, &scratch, &filters, count));
                    }
                    if e2e {
                        stage(&mut stages, "e2e", |count| end_to_end(places, &scratch, &filters, count));
                    }
                    for long in long {
                        stage(&mut stages, long.name, |count| finish(long, count));
                    }
                }
                Err(why) => {
                    stage(&mut stages, "scratch cluster", |_| Err(why));
                }
            }
        }
    }
    close(&stages)
}

/// Runs one stage; whether it passed.
fn stage(
    stages: &mut Vec<Stage>,
    name: &'static str,
    work: impl FnOnce(&mut Count) -> Result<(), Failure>,
) -> bool {
    println!("\n== {name}");
    let began = Instant::now();
    let mut count = Count::default();
    let failure = work(&mut count).err();
    if let Some(why) = &failure {
        eprintln!("{why}");
        // A stage that could not even run counts as one failure.
        count.failed = count.failed.max(1);
    }
    let passed = failure.is_none();
    stages.push(Stage { name, seconds: began.elapsed().as_secs_f64(), count, failure });
    passed
}

fn close(stages: &[Stage]) -> Result<(), Failure> {
    let mut total = Count::default();
    println!();
    for Stage { name, seconds, count, failure } in stages {
        let word = if failure.is_none() { "ok" } else { "FAILED" };
        println!("{name:<16} {word:<7} {seconds:>7.1} s");
        total.add(count);
    }
    total.reasons.sort();
    total.reasons.dedup();
    for reason in &total.reasons {
        println!("{reason}");
    }
    // The last line of all: other programs read it.
    println!("{} passed, {} failed, {} skipped", total.passed, total.failed, total.skipped);
    if stages.iter().all(|stage| stage.failure.is_none()) { Ok(()) } else { Err(Failure::new()) }
}

fn clippy(places: &Places) -> Result<(), Failure> {
    let mut arguments = vec!["clippy", "--all-targets"];
    arguments.extend(NATIVE);
    arguments.extend(["--", "-D", "warnings"]);
    run::run(&mut run::cargo(places, &arguments))?;
    // The other half of `app`.
    site::add_target()?;
    let browser = ["clippy", "-p", "frontend", "-p", "app", "--lib", "--target", site::TARGET];
    run::run(run::cargo(places, &browser).args(["--", "-D", "warnings"]))
}

fn cargo_test(
    places: &Places,
    scratch: &Scratch,
    filters: &[&str],
    count: &mut Count,
) -> Result<(), Failure> {
    let mut arguments = vec!["test", "--no-fail-fast"];
    arguments.extend(NATIVE);
    if !filters.is_empty() {
        arguments.push("--");
        arguments.extend(filters);
    }
    let mut cargo = run::cargo(places, &arguments);
    cargo.env("SQLX_OFFLINE", "true").env("COUNTERSIGN_SCRATCH", &scratch.url);
    if let Some(claude) = unit_harness(places)? {
        cargo.env("CLAUDE_BIN", claude);
    }
    let (errors, writer) = std::io::pipe().map_err(|cause| format!("No pipe could be made: {cause}."))?;
    cargo.stderr(writer);
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(errors).lines().map_while(Result::ok) {
            eprintln!("{line}");
            // Nobody may listen any more.
            let _ = said.send(line);
        }
    });
    let passed = run::run_reading(&mut cargo, |line| count.read_cargo(line));
    // The pipe ends with the last that holds it, which may be something a test left running.
    drop(cargo);
    while let Ok(line) = heard.recv_timeout(LAST_WORDS) {
        count.read_skipped(&line);
    }
    // Those ignored here are the long ones, which run beside this and are counted there.
    count.skipped = 0;
    count.returned_early();
    if passed? { Ok(()) } else { Err("Some tests failed.".to_owned()) }
}

/// The worker is tested with the real program too, where it can be had.
fn unit_harness(places: &Places) -> Result<Option<PathBuf>, Failure> {
    if run::works("node") && run::works("npm") { harness(&places.root.join("end2end")) } else { Ok(None) }
}

/// Waits for a long test and counts it: as cargo's tests, or else as one.
fn finish(long: Long, count: &mut Count) -> Result<(), Failure> {
    let name = long.name;
    let ended = long.wait()?;
    print!("{}", ended.output);
    for line in ended.output.lines() {
        count.read_cargo(line);
        count.read_skipped(line);
    }
    count.returned_early();
    if ended.output.lines().all(|line| !line.starts_with("test result: ")) {
        count.passed += u32::from(ended.passed);
    }
    println!("It was started {:.0} s ago.", ended.seconds);
    if ended.passed { Ok(()) } else { Err(format!("The stage {name} failed.")) }
}

fn end_to_end(
    places: &Places,
    scratch: &Scratch,
    filters: &[&str],
    count: &mut Count,
) -> Result<(), Failure> {
    let folder = places.root.join("end2end");
    if !folder.join("package.json").exists() {
        return Err("There are no end-to-end tests in end2end.".to_owned());
    }
    if !run::works("node") || !run::works("npm") {
        return Err(
            "The end-to-end tests need Node 20 or newer with npm. Install it from https://nodejs.org."
                .to_owned(),
        );
    }
    install_packages(&folder)?;
    let chromium = chromium()?;
    let mut command = Command::new("npx");
    command
        .args(["--no-install", "playwright", "test"])
        .args(filters)
        .current_dir(&folder)
        .env_remove("DATABASE_URL")
        .env("COUNTERSIGN_SITE", places.site())
        .env("COUNTERSIGN_BIN", places.programs(Profile::Dev))
        .env("COUNTERSIGN_SCRATCH", &scratch.url)
        .env("CHROMIUM", chromium);
    if let Some(claude) = harness(&folder)? {
        command.env("CLAUDE_BIN", claude);
    }
    let passed = run::run_reading(&mut command, |line| {
        count.read_playwright(line);
        count.read_skipped(line);
    })?;
    if passed { Ok(()) } else { Err("Some end-to-end tests failed.".to_owned()) }
}

/// `npm ci`, unless what is there was made from the same lock file.
fn install_packages(folder: &Path) -> Result<(), Failure> {
    let lock = fs::read(folder.join("package-lock.json"))
        .map_err(|cause| format!("end2end/package-lock.json can't be read: {cause}."))?;
    let stamp = folder.join("node_modules/.made-from.json");
    if fs::read(&stamp).is_ok_and(|made_from| made_from == lock) {
        return Ok(());
    }
    let mut npm = Command::new("npm");
    run::run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder))?;
    fs::write(&stamp, lock).map_err(|cause| format!("{} can't be written: {cause}.", stamp.display()))
}

/// The harness programs at their pinned versions. The script prints the path of
/// `claude` on its last line.
fn harness(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    if !folder.join("install-harness.mjs").exists() {
        return Ok(None);
    }
    let mut last = String::new();
    let mut node = Command::new("node");
    node.arg("install-harness.mjs").current_dir(folder);
    let installed = run::run_reading(&mut node, |line| {
        if !line.trim().is_empty() {
            line.trim().clone_into(&mut last);
        }
    })?;
    if !installed {
        return Err("The harness programs could not be installed.".to_owned());
    }
    let named = folder.join(last);
    if named.is_file() { Ok(Some(named)) } else { Ok(None) }
}

/// A Chromium: the one named, one that is there, or Debian's.
fn chromium() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os("CHROMIUM") {
        return Ok(named.into());
    }
    if let Some(found) = find_chromium() {
        return Ok(found);
    }
    let root = run::output("id", &["-u"]).is_some_and(|id| id == "0");
    if root && Path::new("/etc/debian_version").exists() && run::works("apt-get") {
        println!("Installing chromium with apt-get.");
        let apt = |arguments: &[&str]| {
            run::run(Command::new("apt-get").args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
        };
        apt(&["update", "-q"])?;
        apt(&["install", "-q", "-y", "--no-install-recommends", "chromium"])?;
        if let Some(found) = find_chromium() {
            return Ok(found);
        }
    }
    let how = if cfg!(target_os = "macos") {
        "brew install --cask chromium"
    } else {
        "sudo apt-get install chromium"
    };
    Err(format!(
        "No Chromium was found for the end-to-end tests. Install one with: {how}, or name it in CHROMIUM."
    ))
}

fn find_chromium() -> Option<PathBuf> {
    let names = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let applications =
        ["Chromium.app/Contents/MacOS/Chromium", "Google Chrome.app/Contents/MacOS/Google Chrome"];
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .chain(applications.iter().map(|name| Path::new("/Applications").join(name)))
        .find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_are_counted() {
        let mut count = Count::default();
        count.read_cargo(
            "test result: ok. 3 passed; 1 failed; 2 ignored; 0 measured; 9 filtered out; finished in 1s",
        );
        count.read_cargo("test passed ... ok");
        assert_eq!(count, Count { passed: 3, failed: 1, skipped: 2, reasons: Vec::new() });
        for line in
            ["  1 failed", "    [a] › b.spec.ts:3:1 › 4 passed things", "  2 skipped", "  12 passed (30.1s)"]
        {
            count.read_playwright(line);
        }
        count.read_playwright("  5 did not run");
        count.read_playwright("  1 flaky");
        assert_eq!(count, Count { passed: 16, failed: 2, skipped: 9, reasons: Vec::new() });
    }

    #[test]
    fn a_test_that_returned_without_testing_did_not_pass() {
        let mut count = Count::default();
        count.read_cargo("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        count.read_skipped("test one ... SKIPPED: there is no disk.");
        count.read_skipped("test two ... ok");
        count.returned_early();
        let reasons = vec!["SKIPPED: there is no disk.".to_owned()];
        assert_eq!(count, Count { passed: 2, failed: 0, skipped: 1, reasons });
    }
}
