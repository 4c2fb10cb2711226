//! `countersign-worker`: see the library.

use std::{ffi::OsString, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Parser, Subcommand};
use worker::run::{Options, Token};

/// The process beside coding agents: it starts them and links them to a Countersign server.
#[derive(Parser)]
#[command(name = "countersign-worker", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Run,
}

#[derive(Subcommand)]
enum Command {
    /// Link to the server and serve its sessions. The same as without a command.
    Run(Run),
    /// Hold one harness. Started by the worker itself.
    #[command(hide = true)]
    Hold,
    /// Become a harness that dies with its holder. Started by the holder itself.
    #[command(hide = true)]
    Tether {
        #[arg(long)]
        parent: u32,
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
}

#[derive(Args)]
struct Run {
    /// The server: http://host:port or https://host:port.
    #[arg(long, env = "COUNTERSIGN_SERVER")]
    server: Option<String>,
    /// The file that holds this worker's token. `COUNTERSIGN_TOKEN` may hold the token itself.
    #[arg(long, env = "COUNTERSIGN_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Where this worker keeps its journal. Without it, a folder under ~/.local/share.
    #[arg(long, env = "COUNTERSIGN_WORKER_DATA", overrides_with = "data")]
    data: Option<PathBuf>,
    /// Where it runs.
    #[arg(long, env = "COUNTERSIGN_ENVIRONMENT", default_value = "local", value_parser = ["local", "docker", "agentcore"])]
    environment: String,
    /// Leave the harnesses running when the worker is stopped; the next one goes on with them.
    #[arg(long, env = "COUNTERSIGN_LEAVE_HARNESSES")]
    leave_harnesses: bool,
    /// Minutes an agent may have nothing to do before its process is ended. The next message
    /// takes its conversation up where it can. 0: never.
    #[arg(long, env = "COUNTERSIGN_IDLE_MINUTES", default_value = "30", value_parser = minutes)]
    idle_minutes: Duration,
    /// End at once, as if killed, when standard input does. For the server that started it.
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// Minutes, also parts of one, up to a year.
fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "give a number of minutes".to_owned())?;
    if !(0.0..=525_600.0).contains(&minutes) {
        return Err("give a number of minutes from 0 to 525600".to_owned());
    }
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

impl Run {
    fn options(self) -> Result<Options, String> {
        let server = self.server.ok_or("Say which server to link to, with --server http://host:port.")?;
        let token = match (self.token_file, std::env::var("COUNTERSIGN_TOKEN")) {
            (Some(path), _) => Token::File(path),
            (None, Ok(text)) => Token::Text(text),
            (None, Err(_)) => {
                return Err(
                    "Give the worker's token, with --token-file PATH or in COUNTERSIGN_TOKEN. An admin makes one on the server's Workers page.".to_owned(),
                );
            }
        };
        Ok(Options {
            server,
            token,
            data: self.data,
            environment: self.environment,
            leave_harnesses: self.leave_harnesses,
            idle_end: Some(self.idle_minutes).filter(|time| !time.is_zero()),
            until_stdin_ends: self.until_stdin_ends,
        })
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let run = match cli.command {
        Some(Command::Hold) => {
            return match worker::hold::hold() {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("The holder failed: {error}.");
                    ExitCode::FAILURE
                }
            };
        }
        Some(Command::Tether { parent, program }) => {
            let (program, args) =
                program.split_first().map_or((OsString::new(), &[][..]), |(p, a)| (p.clone(), a));
            let error = worker::tether::tether(parent, &program, args);
            eprintln!("{} cannot be run: {error}.", program.display());
            return ExitCode::from(127);
        }
        Some(Command::Run(run)) => run,
        None => cli.run,
    };
    let options = match run.options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("COUNTERSIGN_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .with_writer(std::io::stderr)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("The worker cannot work: {error}.");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(worker::run::run(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}
