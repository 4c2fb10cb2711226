//! The commands of this repository: `cargo xtask serve`, `test` and their kin.
//!
//! They need Rust, and Node for a smaller WASM and for the browser tests; all else
//! they bring along. Nothing here depends on the crates of the product, so a
//! change there never has to compile before the command that builds it runs.

mod bench;
mod long;
mod npm;
mod prepare;
mod run;
mod scratch;
mod serve;
mod site;
mod test;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask serve [--dev] [ARGUMENT…]       build all and run the server with the arguments
cargo xtask build [--dev]                   build all
cargo xtask test [lint|unit|e2e] [FILTER…]  run all tests, or those chosen
cargo xtask prepare [--check]               renew .sqlx, or say whether it is up to date
cargo xtask bench [MEASURE…]                one line of JSON a measure
cargo xtask bench faults [--seconds N]      10,000 decisions while everything is killed
cargo xtask bench soak                      a day's work, with the memory it takes
";

/// A failure in words for a person; empty when they have been told.
type Failure = String;

/// Where things are.
struct Places {
    /// The root of the repository.
    root: PathBuf,
    /// Cargo's target folder.
    target: PathBuf,
}

impl Places {
    fn new() -> Self {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = manifest.parent().unwrap_or(manifest).to_owned();
        let target = match std::env::var_os("CARGO_TARGET_DIR") {
            Some(folder) => root.join(folder),
            None => root.join("target"),
        };
        Self { root, target }
    }

    /// The folder of the browser's files.
    fn site(&self) -> PathBuf {
        self.target.join("site")
    }

    /// The folder of the programs of one profile.
    fn programs(&self, profile: Profile) -> PathBuf {
        self.target.join(match profile {
            Profile::Dev => "debug",
            Profile::Release => "release",
        })
    }
}

/// How native code is compiled. The WASM is always `wasm-release`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Profile {
    Dev,
    Release,
}

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let command = if arguments.is_empty() { String::new() } else { arguments.remove(0) };
    let places = Places::new();
    let done = match command.as_str() {
        "serve" => serve::serve(&places, arguments),
        "build" => match profile(&mut arguments) {
            profile if arguments.is_empty() => site::build(&places, profile, site::Native::Build),
            _ => Err(format!("Unknown argument {}.\n{USAGE}", arguments[0])),
        },
        "test" => test::test(&places, &arguments),
        "prepare" => prepare::prepare(&places, &arguments),
        "bench" => bench::bench(&places, &arguments),
        "" | "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(format!("Unknown command {other}.\n{USAGE}")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            if !words.is_empty() {
                eprintln!("{words}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Takes `--dev` out of the arguments.
fn profile(arguments: &mut Vec<String>) -> Profile {
    let before = arguments.len();
    arguments.retain(|argument| argument != "--dev");
    if arguments.len() == before { Profile::Release } else { Profile::Dev }
}
