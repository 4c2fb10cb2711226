//! `countersign serve` as a process, on a database of the test's own.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use domain::{
    digest::ActionDigest,
    id::{ApprovalId, SessionId},
};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::http::{self, FORM, Response};

pub const PASSWORD: &str = "correct horse battery";

pub struct Product {
    pub address: String,
    /// The cookie of the first admin.
    pub admin: String,
    pub setup_path: String,
    pub said: Arc<Mutex<String>>,
    pub child: Child,
    /// The database as a test looks at it, past the product.
    pub pool: sqlx::PgPool,
    pub url: String,
    env: Vec<(String, String)>,
    data: PathBuf,
    // Dropped last: the database goes with it.
    scratch: Option<cluster::scratch::Database>,
}

/// The program with a data folder of its own; nothing else is set.
pub fn command(data: &std::path::Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    command
        .args(["serve", "--no-worker", "--data"])
        .arg(data)
        .env_remove("PUBLIC_URL")
        .env_remove("DATABASE_URL")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

pub fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("countersign-it-{}", uuid::Uuid::now_v7()));
    std::fs::create_dir(&folder).expect("a folder");
    std::fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o711)).expect("open");
    folder
}

/// Starts the program; what it says is collected.
fn spawn(
    data: &std::path::Path,
    url: &str,
    env: &[(String, String)],
    listen: &str,
) -> (Child, Arc<Mutex<String>>) {
    let mut command = command(&data.join("data"));
    command.env("DATABASE_URL", url).args(["--listen", listen]);
    for (name, value) in env {
        command.env(name, value);
    }
    let mut child = command.spawn().expect("the program");
    let said = Arc::new(Mutex::new(String::new()));
    let listen = |stream: Box<dyn tokio::io::AsyncRead + Send + Unpin>| {
        let said = Arc::clone(&said);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stream).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                said.lock().expect("a lock").extend([line.as_str(), "\n"]);
            }
        });
    };
    listen(Box::new(child.stdout.take().expect("stdout")));
    listen(Box::new(child.stderr.take().expect("stderr")));
    (child, said)
}

impl Product {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(env: &[(&str, &str)]) -> Self {
        let database = cluster::scratch::database(&store::MIGRATOR).await;
        let mut product = Self::on(database.url(), env).await;
        product.scratch = Some(database);
        product.until_said("/setup/").await;
        product.read_setup_path();
        product
    }

    /// On a database that outlives it; nobody is set up.
    pub async fn on(url: String, env: &[(&str, &str)]) -> Self {
        let options: sqlx::postgres::PgConnectOptions = url.parse().expect("a url");
        // Under another name than the server's connections, which tests cut.
        let options = options.application_name("countersign-test");
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(4)
            .test_before_acquire(true)
            .connect_lazy_with(options);
        let env: Vec<_> = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let data = folder();
        let (child, said) = spawn(&data, &url, &env, "127.0.0.1:0");
        let mut product = Self {
            address: String::new(),
            admin: String::new(),
            setup_path: String::new(),
            said,
            child,
            pool,
            url,
            env,
            data,
            scratch: None,
        };
        product.until_said("Countersign is at ").await;
        let said = product.said();
        // With PUBLIC_URL the printed address is not the one listened on.
        let at = said.lines().find_map(|l| l.strip_prefix("Listening on ")).unwrap_or_else(|| {
            let url = said.lines().find_map(|l| l.strip_prefix("Countersign is at ")).expect("an address");
            url.split_once("://").expect("a url").1
        });
        at.trim().clone_into(&mut product.address);
        product
    }

    /// A second server over the same database. Sign-ins are the same, under the cookie's
    /// name there.
    pub async fn beside(&self) -> Self {
        let mut other = Self::on(self.url.clone(), &[]).await;
        other.admin = other.cookie_here(&self.admin);
        other
    }

    /// A cookie of another server over the same database, as this one names it.
    pub fn cookie_here(&self, cookie: &str) -> String {
        let port = self.address.rsplit(':').next().expect("a port");
        format!("countersign-{port}={}", cookie.split_once('=').expect("a cookie").1)
    }

    /// SIGKILL.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("killed");
    }

    /// Starts again what was killed, at the same address and with the same folder.
    pub async fn revive(&mut self) {
        for _ in 0..200 {
            (self.child, self.said) = spawn(&self.data, &self.url, &self.env, &self.address);
            loop {
                if self.said().contains("Countersign is at ") {
                    return;
                }
                // Its port may be somebody's for a moment.
                if self.child.try_wait().expect("asked").is_some() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("the server does not start again: {}", self.said());
    }

    /// Starts, and makes the first admin.
    pub async fn with_admin() -> Self {
        let mut product = Self::start().await;
        product.make_admin().await;
        product
    }

    pub async fn set_up(&self, name: &str) -> Response {
        let form = format!("name={name}&password={PASSWORD}&repeat={PASSWORD}");
        self.post("", &self.setup_path, &form).await
    }

    fn read_setup_path(&mut self) {
        let said = self.said();
        let path = said.split("/setup/").nth(1).and_then(|rest| rest.lines().next()).expect("a link");
        self.setup_path = format!("/setup/{path}");
    }

    /// Makes the first admin of a server on a database without one.
    pub async fn make_admin(&mut self) {
        self.until_said("/setup/").await;
        self.read_setup_path();
        let set = self.set_up("Ana").await;
        assert_eq!(set.status, 303, "{set:?}");
        self.admin = cookie(&set);
    }

    pub fn said(&self) -> String {
        self.said.lock().expect("a lock").clone()
    }

    pub async fn until_said(&self, what: &str) {
        for _ in 0..3000 {
            if self.said().contains(what) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what:?} was not said: {}", self.said());
    }

    pub async fn get(&self, cookie: &str, path: &str) -> Response {
        http::send(&self.address, "GET", path, &[("Cookie", cookie), ("Accept", "text/html")], b"").await
    }

    /// A form as fetch sends it.
    pub async fn post(&self, cookie: &str, path: &str, form: &str) -> Response {
        let headers = [FORM, ("Cookie", cookie), ("Accept", "application/json")];
        http::send(&self.address, "POST", path, &headers, form.as_bytes()).await
    }

    pub async fn sign_in(&self, name: &str, password: &str) -> Response {
        self.post("", "/signin", &format!("name={name}&password={password}")).await
    }

    pub async fn read_json(&self, cookie: &str, path: &str) -> serde_json::Value {
        let answer = self.get_json(cookie, path).await;
        serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("{e}: {answer:?}"))
    }

    pub async fn get_json(&self, cookie: &str, path: &str) -> Response {
        let headers = [("Cookie", cookie), ("Accept", "application/json")];
        http::send(&self.address, "GET", path, &headers, b"").await
    }

    /// A worker's token, made as the page makes it.
    pub async fn worker_token(&self, name: &str) -> String {
        let made = self.post(&self.admin, "/api/worker/create", &format!("name={name}")).await;
        assert_eq!(made.status, 200, "{made:?}");
        let made = self.read_json(&self.admin, "/api/place/made").await;
        made["token"].as_str().expect("a token").to_owned()
    }

    /// The first agent's id.
    pub async fn agent(&self) -> String {
        let agents = self.read_json(&self.admin, "/api/agent/list").await;
        agents[0]["id"].as_str().expect("an agent").to_owned()
    }

    /// Changes the first agent; what is not named stays as the fixtures have it.
    pub async fn edit_agent(&self, change: &str) {
        let form = format!("id={}&name=Fake&folder=/w&{change}", self.agent().await);
        let edited = self.post(&self.admin, "/api/agent/edit", &form).await;
        assert_eq!(edited.status, 200, "{edited:?}");
    }

    /// Starts a session of the first agent, as `cookie`'s person.
    pub async fn start_session(&self, cookie: &str, more: &str) -> SessionId {
        let form = format!("agent={}&prompt=go{more}", self.agent().await);
        let started = self.post(cookie, "/api/session/start", &form).await;
        assert_eq!(started.status, 200, "{started:?}");
        serde_json::from_str(&started.body).expect("an id")
    }

    pub async fn session(&self, id: SessionId) -> serde_json::Value {
        self.read_json(&self.admin, &format!("/api/session/read?id={id}")).await
    }

    pub async fn approval(&self, id: ApprovalId) -> serde_json::Value {
        self.read_json(&self.admin, &format!("/api/approval/read?id={id}")).await
    }

    /// Decides as `cookie`'s person; `more` are further fields of the form.
    pub async fn decide(
        &self,
        cookie: &str,
        id: ApprovalId,
        digest: ActionDigest,
        outcome: &str,
        more: &str,
    ) -> Response {
        let form = format!("id={id}&digest={digest}&outcome={outcome}{more}");
        self.post(cookie, "/api/approval/resolve", &form).await
    }

    /// Reads a thing again and again until it is so.
    pub async fn until(
        &self,
        path: &str,
        what: &str,
        so: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let began = std::time::Instant::now();
        loop {
            let answer = self.get_json(&self.admin, path).await;
            let read = serde_json::from_str(&answer.body).unwrap_or_default();
            if so(&read) {
                return read;
            }
            assert!(began.elapsed() < Duration::from_secs(40), "not {what}: {answer:?}\n{}", self.said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until an approval's decision has come so far.
    pub async fn until_delivery(&self, id: ApprovalId, delivery: &str) -> serde_json::Value {
        let path = format!("/api/approval/read?id={id}");
        self.until(&path, delivery, |read| read["receipt"]["delivery"] == delivery).await
    }

    /// A number the database gives.
    pub async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.expect("a count")
    }

    /// A text the database has for one id.
    pub async fn text(&self, sql: &'static str, id: uuid::Uuid) -> String {
        sqlx::query_scalar(sql).bind(id).fetch_one(&self.pool).await.expect("a row")
    }

    /// Makes the database refuse a kind of write until [`Product::give_way`]: `on` is
    /// `insert on audit for each row when (…)`.
    pub async fn refuse(&self, on: &str) {
        for sql in [
            "create or replace function refused() returns trigger language plpgsql as
             $$ begin raise exception 'refused by a test'; end $$"
                .to_owned(),
            format!("create trigger refused before {on} execute function refused()"),
        ] {
            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await.expect("a trigger");
        }
    }

    pub async fn give_way(&self) {
        sqlx::query("drop function refused() cascade").execute(&self.pool).await.expect("dropped");
    }

    /// Moves the database's clock. The server's connections are cut: the setting counts
    /// for new ones.
    pub async fn later(&self, seconds: i64) {
        let name: String = sqlx::query_scalar("select current_database()::text")
            .fetch_one(&self.pool)
            .await
            .expect("a name");
        let sql = format!("alter database \"{name}\" set countersign.clock_offset = '{seconds} seconds'");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&self.pool).await.expect("a setting");
        self.cut_database().await;
    }

    /// Ends every connection of the server to its database, as a restart of it does.
    pub async fn cut_database(&self) {
        sqlx::query(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and application_name = 'countersign'",
        )
        .execute(&self.pool)
        .await
        .expect("cut");
    }

    /// A person's id.
    pub async fn user(&self, name: &str) -> String {
        let users = self.read_json(&self.admin, "/api/user/list").await;
        let user = users.as_array().expect("people").iter().find(|u| u["name"] == name);
        user.expect("a person")["id"].as_str().expect("an id").to_owned()
    }

    /// Adds a person, who sets a password; their cookie.
    pub async fn person(&self, name: &str, role: &str) -> String {
        let added = self.post(&self.admin, "/api/user/add", &format!("name={name}&role={role}")).await;
        assert_eq!(added.status, 200, "{added:?}");
        let made = self.read_json(&self.admin, "/api/place/made").await;
        let url = made["url"].as_str().expect("a link").to_owned();
        let path = url.split_once("/link/").expect("a link").1;
        let form = format!("password={PASSWORD}&repeat={PASSWORD}");
        let set = self.post("", &format!("/link/{path}"), &form).await;
        assert_eq!(set.status, 303, "{set:?}");
        cookie(&set)
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        let _ = self.child.start_kill();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// `name=value` of the cookie a response sets.
pub fn cookie(response: &Response) -> String {
    let set = response.header("set-cookie").unwrap_or_else(|| panic!("no cookie: {response:?}"));
    set.split(';').next().unwrap_or_default().to_owned()
}
