//! `countersign`: the server. Serves the pages, keeps the links of workers, and owns
//! the clock of expiries. See `docs/ARCHITECTURE.md` for the picture.

mod admin;
mod auth;
mod background;
mod config;
mod gateway;
mod health;
mod live;
mod local_worker;
mod routes;
mod serve;
mod site;
mod state;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = config::Cli::parse();
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("COUNTERSIGN_LOG")
                .unwrap_or_else(|_| "warn,countersign=info,server=info,store=info".into()),
        )
        .with_writer(std::io::stderr)
        .with_target(false)
        .init();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("The server cannot start its threads: {error}.");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(async move {
        match cli.command {
            config::Command::Serve(settings) => serve::serve(settings).await,
            config::Command::Admin { command: config::AdminCommand::Reset { name, at } } => {
                admin::reset(at, name.as_deref()).await
            }
        }
    });
    // Blocking tasks (password hashing) must not hold up the end.
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
