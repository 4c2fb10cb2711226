//! `countersign serve` as a process, on a database of the test's own.

use std::{
    path::PathBuf,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
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
    pub database: cluster::scratch::Database,
    data: PathBuf,
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

impl Product {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(env: &[(&str, &str)]) -> Self {
        let database = cluster::scratch::database(&store::MIGRATOR).await;
        let data = folder();
        let mut command = command(&data.join("data"));
        command.env("DATABASE_URL", database.url()).args(["--listen", "127.0.0.1:0"]);
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
        let mut product = Self {
            address: String::new(),
            admin: String::new(),
            setup_path: String::new(),
            said,
            child,
            database,
            data,
        };
        product.until_said("/setup/").await;
        let said = product.said();
        let line = said.lines().find(|l| l.contains("/setup/")).expect("a link");
        let url = line.split(' ').next_back().expect("a link").to_owned();
        let rest = url.split_once("://").expect("a url").1;
        let (host, path) = rest.split_once('/').expect("a path");
        product.setup_path = format!("/{path}");
        // With PUBLIC_URL the printed address is not the one listened on.
        product.address = match said.lines().find_map(|l| l.strip_prefix("Listening on ")) {
            Some(at) => at.trim().to_owned(),
            None => host.to_owned(),
        };
        product
    }

    /// Starts, and makes the first admin.
    pub async fn with_admin() -> Self {
        let mut product = Self::start().await;
        let set = product.set_up("Ana").await;
        assert_eq!(set.status, 303, "{set:?}");
        product.admin = cookie(&set);
        product
    }

    pub async fn set_up(&self, name: &str) -> Response {
        let form = format!("name={name}&password={PASSWORD}&repeat={PASSWORD}");
        self.post("", &self.setup_path, &form).await
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
