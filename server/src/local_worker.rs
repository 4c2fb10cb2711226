//! The worker the server starts itself: beside it, on the same machine, with a token
//! of its own that is new at each start.

use std::{
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use store::Store;
use tokio::{
    process::{Child, Command},
    sync::watch,
};

/// How long the worker may take to end its sessions.
const GRACE: Duration = Duration::from_secs(12);

/// The worker's program, beside this one.
pub fn program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?.with_file_name("countersign-worker");
    program.is_file().then_some(program)
}

/// Keeps the local worker running until the server ends, then ends its sessions in order.
pub async fn keep(
    store: Store,
    program: PathBuf,
    data: PathBuf,
    server: String,
    mut ending: watch::Receiver<bool>,
) {
    let mut pause = Duration::from_millis(200);
    while !*ending.borrow() {
        let started = tokio::time::Instant::now();
        match start(&store, &program, &data, &server).await {
            Ok(mut child) => {
                // Held for as long as this server lives: the worker ends when it ends.
                let _tie = child.stdin.take();
                tokio::select! {
                    status = child.wait() => match status {
                        Ok(status) => tracing::warn!(%status, "the local worker ended; starting it again"),
                        Err(error) => tracing::warn!(%error, "the local worker is lost; starting it again"),
                    },
                    _ = ending.changed() => {
                        end(child).await;
                        return;
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the local worker could not be started; trying again"),
        }
        if started.elapsed() > Duration::from_secs(30) {
            pause = Duration::from_millis(200);
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = ending.changed() => return,
        }
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

async fn start(store: &Store, program: &Path, data: &Path, server: &str) -> Result<Child, String> {
    let token = store::worker::local_token(store).await.map_err(|e| e.to_string())?;
    let folder = data.join("worker");
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?;
    let file = folder.join("token");
    write_secret(&file, &token.reveal()).map_err(|e| format!("{}: {e}", file.display()))?;
    Command::new(program)
        .arg("run")
        .arg("--server")
        .arg(server)
        .arg("--token-file")
        .arg(&file)
        .arg("--data")
        .arg(&folder)
        // A server that is killed takes its worker with it: it would hold the folder
        // against the worker of the next one. Harnesses stay, in their holders.
        .arg("--until-stdin-ends")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        // Ctrl-C is for the server alone; it ends the worker in order.
        .process_group(0)
        .env_remove("DATABASE_URL")
        .spawn()
        .map_err(|e| format!("{}: {e}", program.display()))
}

/// Writes a file only its owner can read, replacing an older one.
fn write_secret(file: &Path, secret: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    let fresh = file.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    out.write_all(secret.as_bytes())?;
    out.sync_all()?;
    std::fs::rename(fresh, file)
}

async fn end(mut child: Child) {
    if let Some(pid) = child.id().and_then(|p| i32::try_from(p).ok()).and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        tracing::warn!("the local worker did not end its sessions in time; killing it");
        let _ = child.kill().await;
    }
}
