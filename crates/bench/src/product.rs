//! The built programs and a private database of their own, in a temporary folder.

use std::{
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use cluster::{Cluster, Source};
use domain::{
    digest::ActionDigest,
    id::{AgentId, ApprovalId},
};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use uuid::Uuid;

use crate::{
    Result,
    http::{self, Connection},
};

const PATIENCE: Duration = Duration::from_secs(30);
pub const PASSWORD: &str = "bench bench bench";

pub struct Product {
    data: PathBuf,
    cluster: Cluster,
    pool: PgPool,
}

pub fn beside(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

/// The folder of the built pages: `COUNTERSIGN_SITE`, or `site` beside the profile's folder.
pub fn site() -> Result<PathBuf> {
    match std::env::var_os("COUNTERSIGN_SITE") {
        Some(site) => Ok(site.into()),
        None => Ok(beside("../site")?),
    }
}

/// The first admin's token, as a server that starts prints it; what else it prints is
/// read and dropped.
pub async fn setup_token(server: &mut Child) -> Result<String> {
    let mut lines = BufReader::new(server.stdout.take().ok_or("no stdout")?).lines();
    let token = loop {
        let line = lines.next_line().await?.ok_or("the server ended")?;
        if let Some((_, token)) = line.split_once("/setup/") {
            break token.trim().to_owned();
        }
    };
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(token)
}

/// Sizes of the WASM as served.
pub fn wasm() -> Result<Value> {
    let pkg = site()?.join("pkg");
    let manifest: Value = serde_json::from_slice(&std::fs::read(pkg.join("manifest.json"))?)?;
    let name = manifest["wasm"].as_str().ok_or("the manifest names no WASM")?;
    let size = |file: PathBuf| std::fs::metadata(file).map(|m| m.len());
    Ok(json!({
        "raw_bytes": size(pkg.join(name))?,
        "brotli_bytes": size(pkg.join(format!("{name}.br")))?,
    }))
}

impl Product {
    pub async fn start() -> Result<Self> {
        let data = std::env::temp_dir().join(format!("countersign-bench-{}", Uuid::now_v7()));
        std::fs::create_dir(&data)?;
        // The user that runs Postgres passes through.
        std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
        let cluster =
            cluster::open(Source::Private { data: data.clone() }, &|line| eprintln!("{line}")).await?;
        let pool = PgPool::connect_with(cluster.options()).await?;
        Ok(Self { data, cluster, pool })
    }

    pub async fn stop(self) {
        self.pool.close().await;
        self.cluster.stop().await;
        let _ = std::fs::remove_dir_all(self.data);
    }

    fn url(&self) -> String {
        let options = self.cluster.options();
        let socket = options.get_socket().map(|s| s.display().to_string()).unwrap_or_default();
        format!(
            "postgres://{}@localhost/{}?host={socket}&sslmode=disable",
            options.get_username(),
            options.get_database().unwrap_or_default()
        )
    }

    fn command(&self, address: &str, worker: bool) -> Result<Command> {
        let mut command = Command::new(beside("countersign")?);
        command
            .args(["serve", "--listen", address, "--data"])
            .arg(self.data.join("server"))
            .env("DATABASE_URL", self.url())
            .env("COUNTERSIGN_SITE", site()?)
            .env("COUNTERSIGN_LOG", "error")
            .stdout(Stdio::piped())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if !worker {
            command.arg("--no-worker");
        }
        Ok(command)
    }

    /// Milliseconds from starting the process to its first answer.
    pub async fn startup(&self) -> Result<f64> {
        let address = free_address()?;
        let began = Instant::now();
        let mut child = self.command(&address, false)?.spawn()?;
        let answered = loop {
            if began.elapsed() > PATIENCE {
                return Err("the server did not start".into());
            }
            if let Ok(mut http) = Connection::open(&address).await
                && http.send(&http::Request::get("/health", "")).await.is_ok()
            {
                break began.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        terminate(&mut child).await;
        Ok((answered.as_secs_f64() * 10_000.0).round() / 10.0)
    }

    /// Starts the server, and signs in as its first admin.
    pub async fn serve(&self, worker: bool) -> Result<Server> {
        let address = free_address()?;
        let mut child = self.command(&address, worker)?.spawn()?;
        let token = setup_token(&mut child).await?;
        let cookie = set_up(&address, &token).await?;
        Ok(Server { address, cookie, child, pool: self.pool.clone() })
    }

    /// Durable single-row updates a second that this database gives at most.
    pub fn pgbench(&self, connections: usize, time: Duration) -> Result<f64> {
        let search = cluster::Search::of_this_machine(std::env::var_os("PATH").as_deref());
        let programs = cluster::find_programs(&search, None).ok_or("no Postgres programs")?;
        let script = self.data.join("update.sql");
        std::fs::write(
            &script,
            "\\set id random(1, 10000)\nupdate bench_rows set n = n + 1 where id = :id;\n",
        )?;
        let options = self.cluster.options();
        let psql = |sql: &str| {
            std::process::Command::new(programs.bin.join("psql"))
                .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", sql, &self.url()])
                .status()
        };
        let made = psql(
            "drop table if exists bench_rows; create table bench_rows (id int primary key, n bigint not null);
             insert into bench_rows select g, 0 from generate_series(1, 10000) g; checkpoint",
        )?;
        if !made.success() {
            return Err("psql could not make the table".into());
        }
        let output = std::process::Command::new(programs.bin.join("pgbench"))
            .args(["-n", "-M", "prepared", "-j", "2", "-c", &connections.to_string()])
            .args(["-T", &time.as_secs().to_string(), "-f"])
            .arg(&script)
            .args(["-h", &options.get_socket().map(|s| s.display().to_string()).unwrap_or_default()])
            .args(["-U", options.get_username(), options.get_database().unwrap_or_default()])
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        said.lines()
            .find_map(|l| l.strip_prefix("tps = "))
            .and_then(|l| l.split(' ').next()?.parse().ok())
            .ok_or_else(|| format!("pgbench said: {said}{}", String::from_utf8_lossy(&output.stderr)).into())
    }
}

/// A running server and the session of its first admin.
pub struct Server {
    pub address: String,
    pub cookie: String,
    child: Child,
    pool: PgPool,
}

impl Server {
    pub async fn stop(mut self) {
        terminate(&mut self.child).await;
    }

    /// Resident memory of the server process, in megabytes.
    pub fn resident_mb(&self) -> Result<f64> {
        resident_mb(self.child.id().ok_or("the server ended")?)
    }

    /// Makes a worker and reads its token back, as the page does.
    pub async fn worker_token(&self, name: &str) -> Result<String> {
        worker_token(&self.address, &self.cookie, name).await
    }

    pub async fn agent(&self, name: &str) -> Result<AgentId> {
        let began = Instant::now();
        loop {
            let id = sqlx::query_scalar::<_, Uuid>("select id from agents where name = $1")
                .bind(name)
                .fetch_optional(&self.pool)
                .await?;
            match id {
                Some(id) => return Ok(AgentId(id)),
                None if began.elapsed() > PATIENCE => return Err(format!("there is no agent {name}").into()),
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    pub async fn demo_agent(&self) -> Result<AgentId> {
        self.agent("Demo agent").await
    }

    pub async fn wait_pending(&self, session: Uuid) -> Result<(ApprovalId, ActionDigest)> {
        let sql = "select id, action_digest from approvals where session_id = $1 and status = 'pending'";
        let (id, digest): (Uuid, Vec<u8>) = self.wait(sql, session).await?;
        Ok((ApprovalId(id), ActionDigest::try_from(digest.as_slice())?))
    }

    pub async fn wait_applied(&self, id: ApprovalId) -> Result<()> {
        let sql = "select approval_id, action_digest from decisions where approval_id = $1
                   and delivery in ('applied', 'effect')";
        self.wait(sql, id.0).await.map(drop)
    }

    pub async fn wait_idle(&self, session: Uuid) -> Result<()> {
        let sql = "select s.id, ''::bytea from sessions s where s.id = $1 and not exists
                   (select from runs r where r.session_id = s.id and r.status in ('pending', 'running', 'paused'))";
        self.wait(sql, session).await.map(drop)
    }

    async fn wait(&self, sql: &'static str, id: Uuid) -> Result<(Uuid, Vec<u8>)> {
        let began = Instant::now();
        loop {
            if let Some(row) = sqlx::query_as(sql).bind(id).fetch_optional(&self.pool).await? {
                return Ok(row);
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("waited in vain for: {sql}").into());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

pub fn free_address() -> Result<String> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

pub async fn terminate(child: &mut Child) {
    if let Some(pid) = child.id().and_then(|p| i32::try_from(p).ok()).and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    if tokio::time::timeout(Duration::from_secs(20), child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// Sets name and password of the first admin, and gives the cookie of the session.
pub async fn set_up(address: &str, token: &str) -> Result<String> {
    let mut http = loop {
        match Connection::open(address).await {
            Ok(http) => break http,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    let password = http::encoded(PASSWORD);
    let form = format!("name=Bench&password={password}&repeat={password}");
    let set = http.send(&http::Request::post(&format!("/setup/{token}"), "", &form)).await?;
    set.head
        .lines()
        .find_map(|l| l.to_ascii_lowercase().starts_with("set-cookie:").then(|| l[11..].trim().to_owned()))
        .and_then(|c| c.split(';').next().map(str::to_owned))
        .ok_or_else(|| "signing in set no cookie".into())
}

/// Resident memory of a process, in megabytes.
pub fn resident_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kb: f64 = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .and_then(|l| l.trim().split(' ').next()?.parse().ok())
        .ok_or("no VmRSS")?;
    Ok((kb / 102.4).round() / 10.0)
}

/// Makes a worker and reads its token back, as the page does.
pub async fn worker_token(address: &str, cookie: &str, name: &str) -> Result<String> {
    let mut http = Connection::open(address).await?;
    http.send(&http::Request::post("/api/worker/create", cookie, &format!("name={name}"))).await?;
    let made = http.send(&http::Request::get("/api/place/made", cookie)).await?;
    let made: Value = serde_json::from_slice(&made.body)?;
    Ok(made["token"].as_str().ok_or("no token was made")?.to_owned())
}
