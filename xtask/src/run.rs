//! Running other programs.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::process::{Command, Stdio};

use crate::{Failure, Places};

/// Cargo, in the root of the repository, with its output on the terminal.
pub fn cargo(places: &Places, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(&places.root);
    // What `cargo run` said about this package would make build scripts run again.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|p| name.starts_with(p))
        {
            command.env_remove(&*name);
        }
    }
    // A user's own database never reaches a build or a test.
    command.env_remove("DATABASE_URL");
    command
}

/// Runs to the end; anything but success is a failure.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status().map_err(|cause| cannot_start(command, &cause))?;
    if status.success() { Ok(()) } else { Err(format!("{} failed ({status}).", line(command))) }
}

/// Runs to the end with each line of its output shown and handed to `each`.
/// Whether it succeeded.
pub fn run_reading(command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool, Failure> {
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|cause| cannot_start(command, &cause))?;
    if let Some(output) = child.stdout.take() {
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {
            let text = String::from_utf8_lossy(&bytes);
            print!("{text}");
            each(text.trim_end());
            bytes.clear();
        }
    }
    let status = child.wait().map_err(|cause| format!("{}: {cause}.", line(command)))?;
    Ok(status.success())
}

/// What a program prints, when it succeeds.
pub fn output(program: impl AsRef<OsStr>, arguments: &[&str]) -> Option<String> {
    let told =
        Command::new(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    told.status.success().then(|| String::from_utf8_lossy(&told.stdout).trim().to_owned())
}

/// Whether a program is there and works.
pub fn works(program: &str) -> bool {
    output(program, &["--version"]).is_some()
}

/// The command as a person would type it, for messages.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn cannot_start(command: &Command, cause: &std::io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    if cause.kind() == ErrorKind::NotFound {
        format!("{program} is not installed.")
    } else {
        format!("{program} could not be started: {cause}.")
    }
}
