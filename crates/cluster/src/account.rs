//! The user that runs Postgres.
//!
//! `initdb` and `postgres` refuse to run as root. Started as root, Countersign
//! makes the system user `countersign` once and runs both as that user. Users are
//! asked of `id`, not read from `/etc/passwd`: they may live in a directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{ClusterError, Say};

const NAME: &str = "countersign";

/// The user and group to run Postgres as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub uid: u32,
    pub gid: u32,
}

/// The account to switch to, `None` when this process is not root and Postgres
/// simply runs as the same user.
pub(crate) fn for_postgres(say: Say<'_>) -> Result<Option<Account>, ClusterError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    if let Some(account) = look_up()? {
        return Ok(Some(account));
    }
    say("Creating the system user countersign, which runs Postgres.");
    let why = create();
    match look_up()? {
        Some(account) => Ok(Some(account)),
        None => Err(ClusterError::NoAccount { why }),
    }
}

fn look_up() -> Result<Option<Account>, ClusterError> {
    let ask = |what: &str| {
        let told = Command::new("id").args([what, NAME]).stderr(Stdio::null()).output().ok()?;
        if !told.status.success() {
            return None;
        }
        String::from_utf8(told.stdout).ok()?.trim().parse::<u32>().ok()
    };
    match (ask("-u"), ask("-g")) {
        (Some(0), _) => {
            Err(ClusterError::NoAccount { why: "the user of that name has the id of root".into() })
        }
        (Some(uid), Some(gid)) => Ok(Some(Account { uid, gid })),
        _ => Ok(None),
    }
}

/// Tries the three dialects of making a system user; returns what the last one
/// that exists said. Another process may be making it too, which is why the
/// caller looks the user up instead of trusting the exit status.
fn create() -> String {
    let dialects: [(&str, &[&str]); 3] = [
        (
            "useradd",
            &[
                "--system",
                "--user-group",
                "--no-create-home",
                "--home-dir",
                "/nonexistent",
                "--shell",
                "/bin/false",
            ],
        ),
        ("adduser", &["--system", "--group", "--no-create-home", "--shell", "/bin/false"]),
        // Alpine's busybox.
        ("adduser", &["-S", "-D", "-H", "-s", "/bin/false"]),
    ];
    let mut why = "neither useradd nor adduser is installed".to_owned();
    for (program, arguments) in dialects {
        let Ok(told) = Command::new(program).args(arguments).arg(NAME).stdin(Stdio::null()).output() else {
            continue;
        };
        if told.status.success() {
            return String::new();
        }
        let words = String::from_utf8_lossy(&told.stderr);
        why = format!("{program} said: {}", words.lines().last().unwrap_or_default().trim_end_matches('.'));
        // The loser of a race for the password file's lock.
        for _ in 0..20 {
            if matches!(look_up(), Ok(Some(_))) {
                return String::new();
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    why
}

/// The first folder on the way to `path` that `account` may not pass through,
/// by the mode bits.
pub(crate) fn closed_ancestor(path: &Path, account: Account) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt as _;
    let mut way: Vec<&Path> = path.ancestors().collect();
    way.reverse();
    way.into_iter()
        .find(|folder| {
            let Ok(metadata) = folder.metadata() else { return false };
            let bit = if metadata.uid() == account.uid {
                0o100
            } else if metadata.gid() == account.gid {
                0o010
            } else {
                0o001
            };
            metadata.mode() & bit == 0
        })
        .map(Path::to_owned)
}
