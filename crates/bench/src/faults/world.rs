//! The product as processes: a database, a server, workers behind proxies. Each can be
//! killed and started again while the others go on.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Mutex,
    time::{Duration, Instant},
};

use cluster::{Cluster, Source};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::{
    process::{Child, Command},
    sync::{Mutex as AsyncMutex, MutexGuard},
};
use uuid::Uuid;

use super::{books::Life, locked, proxy::Proxy};
use crate::{
    Result,
    http::{self, Connection},
    product::{beside, free_address, set_up, setup_token, site, terminate, worker_token},
    unless_interrupted,
};

/// The shortest time a request may wait for people, in seconds.
pub const SHORT_S: i64 = 10;
const PATIENCE: Duration = Duration::from_mins(1);

/// How large a world is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub workers: usize,
    /// Connections of the server to its database.
    pub connections: usize,
    /// One worker's agents wait for *Continue Run*, another's have a short time limit.
    pub mixed: bool,
}

pub struct World {
    pub data: PathBuf,
    pub address: String,
    pub cookie: String,
    /// The bench's own connections: for reading what is stored.
    pub pool: PgPool,
    pub workers: Vec<Worker>,
    /// Where sockets are: removed with the folder.
    runtime: PathBuf,
    url: String,
    size: Size,
    pub database: AsyncMutex<Option<Cluster>>,
    pub server: AsyncMutex<Option<Child>>,
}

pub struct Worker {
    /// Short, for sockets.
    runtime: PathBuf,
    pub id: Uuid,
    pub demo: Uuid,
    pub claude: Uuid,
    pub proxy: Proxy,
    pub folder: PathBuf,
    pub child: AsyncMutex<Option<Child>>,
    lives: Mutex<Vec<Life>>,
}

/// Milliseconds since 1970, on the clock the database and the ledgers use too.
pub fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn url_of(cluster: &Cluster) -> String {
    let options = cluster.options();
    let socket = options.get_socket().map(|s| s.display().to_string()).unwrap_or_default();
    format!(
        "postgres://{}@localhost/{}?host={socket}&sslmode=disable",
        options.get_username(),
        options.get_database().unwrap_or_default()
    )
}

/// Kills a process at once; whether it was there.
fn kill(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_ok())
}

async fn kill_child(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill().await;
    }
}

impl World {
    /// Everything started, signed in, linked.
    pub async fn start(size: Size) -> Result<Self> {
        let data = std::env::temp_dir().join(format!("countersign-faults-{}", Uuid::now_v7()));
        std::fs::create_dir(&data)?;
        // The user that runs Postgres passes through.
        std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
        let runtime = std::env::temp_dir().join(format!("csf-{}", &Uuid::new_v4().simple().to_string()[..8]));
        std::fs::create_dir(&runtime)?;
        let cluster =
            cluster::open(Source::Private { data: data.clone() }, &|line| eprintln!("{line}")).await?;
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .acquire_timeout(Duration::from_secs(5))
            .connect_with(cluster.options())
            .await?;
        let mut world = Self {
            runtime,
            url: url_of(&cluster),
            address: free_address()?,
            cookie: String::new(),
            pool,
            workers: Vec::new(),
            size,
            database: AsyncMutex::new(Some(cluster)),
            server: AsyncMutex::new(None),
            data,
        };
        if let Err(why) = unless_interrupted(world.begin()).await {
            world.stop(true).await;
            return Err(why);
        }
        Ok(world)
    }

    async fn begin(&mut self) -> Result<()> {
        let mut child = self.server_command()?.stdout(Stdio::piped()).spawn()?;
        let token = setup_token(&mut child).await?;
        *self.server.lock().await = Some(child);
        self.cookie = set_up(&self.address, &token).await?;
        for number in 0..self.size.workers {
            let folder = self.data.join(format!("worker-{number}"));
            for name in ["work", "home", "claude"] {
                std::fs::create_dir_all(folder.join(name))?;
            }
            let token = worker_token(&self.address, &self.cookie, &format!("w{number}")).await?;
            std::fs::write(folder.join("token"), token)?;
            let proxy = Proxy::start(self.address.clone()).await?;
            let id: Uuid = sqlx::query_scalar("select id from workers where name = $1")
                .bind(format!("w{number}"))
                .fetch_one(&self.pool)
                .await?;
            let mut worker = Worker {
                runtime: self.runtime.clone(),
                id,
                demo: Uuid::nil(),
                claude: Uuid::nil(),
                proxy,
                folder,
                child: AsyncMutex::new(None),
                lives: Mutex::new(Vec::new()),
            };
            worker.start().await?;
            worker.demo = self.agent(id, "demo").await?;
            worker.claude = self.agent(id, "claude").await?;
            // What differs between agents is spread over the workers.
            sqlx::query(
                "update agents set waits_for_continue = $2, hitl_timeout_s = $3 where worker_id = $1",
            )
            .bind(id)
            .bind(self.size.mixed && number % 4 == 1)
            .bind(if self.size.mixed && number % 4 == 2 { SHORT_S } else { 900_i64 })
            .execute(&self.pool)
            .await?;
            self.workers.push(worker);
        }
        Ok(())
    }

    async fn agent(&self, worker: Uuid, harness: &str) -> Result<Uuid> {
        let began = Instant::now();
        loop {
            let id = sqlx::query_scalar("select id from agents where worker_id = $1 and harness = $2")
                .bind(worker)
                .bind(harness)
                .fetch_optional(&self.pool)
                .await?;
            match id {
                Some(id) => return Ok(id),
                None if began.elapsed() > PATIENCE => {
                    return Err(format!("a worker did not offer {harness}").into());
                }
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    fn server_command(&self) -> Result<Command> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.data.join("server.log"))?;
        let mut command = Command::new(beside("countersign")?);
        command
            .args(["serve", "--no-worker", "--listen", &self.address])
            .args(["--db-connections", &self.size.connections.to_string(), "--data"])
            .arg(self.data.join("server"))
            .env("DATABASE_URL", &self.url)
            .env("COUNTERSIGN_SITE", site()?)
            .env("COUNTERSIGN_LOG", std::env::var("COUNTERSIGN_LOG").unwrap_or_else(|_| "warn".to_owned()))
            .stdout(Stdio::null())
            .stderr(log)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Kills the server and starts it again after `down`; whether it was there to be killed.
    pub async fn restart_server(&self, down: Duration) -> Result<bool> {
        let Ok(mut server) = self.server.try_lock() else { return Ok(false) };
        kill_child(&mut server).await;
        tokio::time::sleep(down).await;
        self.keep_server(server).await?;
        Ok(true)
    }

    /// Starts the server, again and again until it answers: its database may be away.
    async fn keep_server(&self, mut server: MutexGuard<'_, Option<Child>>) -> Result<()> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let mut child = self.server_command()?.spawn()?;
            loop {
                if let Ok(mut http) = Connection::open(&self.address).await
                    && http.send(&http::Request::get("/health", "")).await.is_ok()
                {
                    *server = Some(child);
                    return Ok(());
                }
                if child.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let _ = child.kill().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err("the server did not come back".into())
    }

    /// Takes the database away, as hard as asked for, and brings it back after `down`;
    /// whether it was there to be taken.
    pub async fn restart_database(&self, end: DatabaseEnd, down: Duration) -> Result<bool> {
        let Ok(mut database) = self.database.try_lock() else { return Ok(false) };
        let Some(cluster) = database.take() else { return Ok(false) };
        match end {
            DatabaseEnd::Kill => {
                if let Some(pid) = cluster.pid().and_then(|pid| u32::try_from(pid).ok()) {
                    kill(pid);
                }
                cluster.leave();
            }
            DatabaseEnd::Stop => cluster.stop().await,
            DatabaseEnd::Freeze => {
                let pid = cluster.pid().and_then(rustix::process::Pid::from_raw);
                let signal = |signal| pid.map(|pid| rustix::process::kill_process(pid, signal));
                // New connections hang; those that are open go on.
                signal(rustix::process::Signal::STOP);
                tokio::time::sleep(down).await;
                signal(rustix::process::Signal::CONT);
                *database = Some(cluster);
                return Ok(true);
            }
        }
        tokio::time::sleep(down).await;
        let began = Instant::now();
        loop {
            match cluster::open(Source::Private { data: self.data.clone() }, &|_| {}).await {
                Ok(cluster) => {
                    *database = Some(cluster);
                    return Ok(true);
                }
                Err(why) if began.elapsed() > PATIENCE => return Err(why.into()),
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Everything that should run does: what ended by itself is started again. What had.
    pub async fn keep(&self) -> Result<Vec<String>> {
        let mut ended = Vec::new();
        if let Ok(mut server) = self.server.try_lock() {
            let gone = gone(&mut server)?;
            if let Some(how) = gone {
                ended.push(format!("the server ended by itself ({how})"));
                self.keep_server(server).await?;
            }
        }
        for worker in &self.workers {
            let Ok(mut child) = worker.child.try_lock() else { continue };
            if let Some(how) = gone(&mut child)? {
                ended.push(format!("the worker in {} ended by itself ({how})", worker.folder.display()));
                worker.ended();
                *child = Some(worker.spawn()?);
            }
        }
        Ok(ended)
    }

    /// Lines of the logs that tell of a panic.
    pub fn panics(&self) -> Result<Vec<String>> {
        let mut all = Vec::new();
        let workers = self.workers.iter().map(|w| w.folder.join("worker.log"));
        for log in workers.chain([self.data.join("server.log")]) {
            let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
            let panics = text.lines().filter(|line| line.contains("panicked"));
            all.extend(panics.map(|line| format!("{}: {line}", log.display())));
        }
        Ok(all)
    }

    /// Ends everything in order and removes its folder, if it is not to be looked at.
    pub async fn stop(&self, keep_folder: bool) {
        for worker in &self.workers {
            worker.proxy.cut();
            if let Some(mut child) = worker.child.lock().await.take() {
                terminate(&mut child).await;
            }
            for held in holders(&worker.folder) {
                held.kill_harness();
                held.kill_holder();
            }
        }
        if let Some(mut child) = self.server.lock().await.take() {
            terminate(&mut child).await;
        }
        self.pool.close().await;
        if let Some(cluster) = self.database.lock().await.take() {
            cluster.stop().await;
        }
        let _ = std::fs::remove_dir_all(&self.runtime);
        if keep_folder {
            eprintln!("Left to be looked at: {}", self.data.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.data);
        }
    }

    pub fn lives(&self) -> HashMap<Uuid, Vec<Life>> {
        self.workers.iter().map(|w| (w.id, w.lives().clone())).collect()
    }
}

/// How a process ended that should run.
fn gone(child: &mut Option<Child>) -> Result<Option<String>> {
    match child {
        Some(child) => Ok(child.try_wait()?.map(|status| status.to_string())),
        None => Ok(Some("it could not be started".to_owned())),
    }
}

/// How a database ends.
#[derive(Clone, Copy, Debug)]
pub enum DatabaseEnd {
    Kill,
    Stop,
    /// It takes no new connections for a while.
    Freeze,
}

impl Worker {
    fn lives(&self) -> std::sync::MutexGuard<'_, Vec<Life>> {
        locked(&self.lives)
    }

    /// Its life is over, or will be in a moment.
    fn ended(&self) {
        if let Some(life) = self.lives().last_mut() {
            life.to.get_or_insert_with(now);
        }
    }

    fn spawn(&self) -> Result<Child> {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(self.folder.join("worker.log"))?;
        let child = Command::new(beside("countersign-worker")?)
            .arg("run")
            .args(["--server", &format!("http://{}", self.proxy.address)])
            .arg("--token-file")
            .arg(self.folder.join("token"))
            .arg("--data")
            .arg(self.folder.join("data"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.join("home"))
            .env("XDG_RUNTIME_DIR", &self.runtime)
            .env("CLAUDE_CONFIG_DIR", self.folder.join("claude"))
            .env("CLAUDE_BIN", beside("countersign-scripted-claude")?)
            .env("COUNTERSIGN_LOG", std::env::var("COUNTERSIGN_LOG").unwrap_or_else(|_| "warn".to_owned()))
            .current_dir(self.folder.join("work"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        // Noted after the start: what happens from here on cannot be of the life before.
        self.lives().push(Life { from: now(), to: None });
        Ok(child)
    }

    async fn start(&self) -> Result<()> {
        *self.child.lock().await = Some(self.spawn()?);
        Ok(())
    }

    /// Kills it and starts it again after `down`; whether it was there to be killed. Its
    /// link may fall silent before: what is decided then waits for the next life.
    pub async fn restart(&self, silent: Duration, down: Duration) -> Result<bool> {
        let Ok(mut child) = self.child.try_lock() else { return Ok(false) };
        if !silent.is_zero() {
            self.proxy.hold(silent, true).await;
        }
        self.ended();
        kill_child(&mut child).await;
        tokio::time::sleep(down).await;
        *child = Some(self.spawn()?);
        Ok(true)
    }

    /// Stops it for a while, as a machine that sleeps does, and lets it go on; whether it
    /// was there to be stopped.
    pub async fn freeze(&self, time: Duration) -> bool {
        let Ok(child) = self.child.try_lock() else { return false };
        let pid = child.as_ref().and_then(Child::id).and_then(|p| i32::try_from(p).ok());
        let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) else { return false };
        let stopped = rustix::process::kill_process(pid, rustix::process::Signal::STOP).is_ok();
        tokio::time::sleep(time).await;
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::CONT);
        stopped
    }
}

/// A harness with its holder, as the holder describes itself. The description may be
/// older than the processes: nothing is signalled by a number that went to another.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub incarnation: Uuid,
    pub holder: u32,
    pid: u32,
    /// When the kernel started the harness.
    started: Option<u64>,
}

impl Held {
    /// Kills the harness; whether it was there.
    pub fn kill_harness(&self) -> bool {
        let is_it = self.started.is_some() && started_at(self.pid) == self.started;
        is_it && kill(self.pid)
    }

    /// Kills the holder; whether it was there.
    pub fn kill_holder(&self) -> bool {
        let program = std::fs::read_link(format!("/proc/{}/exe", self.holder));
        let worker = beside("countersign-worker").and_then(|path| Ok(path.canonicalize()?));
        let is_it = matches!((program, worker), (Ok(program), Ok(worker)) if program == worker);
        is_it && kill(self.holder)
    }
}

/// When the kernel started a process, in its ticks.
fn started_at(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets and may hold anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Every holder that a worker's folder knows of.
pub fn holders(worker: &Path) -> Vec<Held> {
    let folders = |path: &Path| {
        std::fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path()).collect::<Vec<_>>()
    };
    let processes = folders(&worker.join("data/sessions")).into_iter().flat_map(|session| folders(&session));
    processes.filter_map(|process| held(&std::fs::read(process.join("holder.json")).ok()?)).collect()
}

fn held(described: &[u8]) -> Option<Held> {
    let held: serde_json::Value = serde_json::from_slice(described).ok()?;
    let number = |name: &str| held[name].as_u64().and_then(|n| u32::try_from(n).ok());
    Some(Held {
        incarnation: held["incarnation"].as_str()?.parse().ok()?,
        holder: number("holder")?,
        pid: number("pid")?,
        started: held["started"].as_u64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_was_described_is_killed() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let described = |started: Option<u64>| {
            let text = serde_json::json!({"incarnation": Uuid::nil(), "socket": "/s", "holder": child.id(),
                                          "pid": child.id(), "started": started});
            held(text.to_string().as_bytes()).unwrap()
        };
        let started = started_at(child.id());
        let (other, none, right) = (described(started.map(|s| s + 1)), described(None), described(started));
        assert!(!other.kill_harness() && !none.kill_harness());
        // Its number went to a program that is no worker.
        assert!(!right.kill_holder());
        assert!(child.try_wait().unwrap().is_none());
        assert!(right.kill_harness());
        child.wait().unwrap();
        assert!(!right.kill_harness());
    }
}
