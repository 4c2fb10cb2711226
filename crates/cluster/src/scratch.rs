//! Throw-away databases for tests.
//!
//! One cluster a process, or the one `COUNTERSIGN_SCRATCH` names, which
//! `cargo xtask test` starts for all test binaries. The migrations run once into a
//! template; each test gets its own copy. A small shell watches a pipe of this
//! process and takes the cluster down when it ends, in whatever way it ends.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Child;
use std::str::FromStr as _;

use sha2::{Digest as _, Sha256};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::sync::OnceCell;

use crate::postmaster::{Durability, watch};
use crate::{Cluster, ClusterError, Npm, ROLE, Search};

/// The variable that names a scratch cluster to use: the URL [`Scratch::url`] gives.
pub const VARIABLE: &str = "COUNTERSIGN_SCRATCH";

/// A cluster that ends with this process. Nothing in it is durable.
pub struct Scratch {
    options: PgConnectOptions,
    socket: PathBuf,
    /// The watcher acts when the pipe to it is closed.
    _watcher: Child,
    /// Kept so that it is not asked to stop twice.
    _cluster: Cluster,
}

impl Scratch {
    /// Starts a cluster in a new temporary folder.
    pub async fn start() -> Result<Self, ClusterError> {
        let data = std::env::temp_dir().join(format!("countersign-scratch-{}", uuid::Uuid::now_v7()));
        let io = |source| ClusterError::Io { doing: "making a temporary folder".to_owned(), source };
        std::fs::create_dir(&data).map_err(io)?;
        // The user that runs Postgres passes through.
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o711)).map_err(io)?;
        let search = Search::of_this_machine(std::env::var_os("PATH").as_deref());
        let say = |text: &str| eprintln!("{text}");
        let cluster =
            match crate::open_private(&data, &search, &Npm::default(), Durability::Scratch, &say).await {
                Ok(cluster) => cluster,
                Err(cause) => {
                    let _ = std::fs::remove_dir_all(&data);
                    return Err(cause);
                }
            };
        let Some(running) = cluster.private.as_ref() else {
            return Err(ClusterError::io("starting a private cluster")(std::io::Error::other(
                "it is not private",
            )));
        };
        let socket = running.socket().to_owned();
        let watcher =
            watch(running.pid(), &[&data, &socket]).map_err(ClusterError::io("starting the watcher"))?;
        Ok(Self { options: running.options("postgres"), socket, _watcher: watcher, _cluster: cluster })
    }

    /// How a program connects to `database`: for `DATABASE_URL` and
    /// `COUNTERSIGN_SCRATCH` (there with the database `postgres`).
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{ROLE}@localhost/{database}?host={}&sslmode=disable", self.socket.display())
    }

    /// The options of the database `postgres`.
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }
}

/// An own database with all migrations, dropped with this value.
pub struct Database {
    /// Connected to it.
    pub pool: PgPool,
    name: String,
    root: PgConnectOptions,
}

impl Database {
    /// How to connect to it.
    pub fn options(&self) -> PgConnectOptions {
        self.root.clone().database(&self.name)
    }

    /// The same as a URL, for a program under test.
    pub fn url(&self) -> String {
        let socket = self.root.get_socket().map(|socket| socket.display().to_string()).unwrap_or_default();
        format!(
            "postgres://{}@localhost:{}/{}?host={socket}&sslmode=disable",
            self.root.get_username(),
            self.root.get_port(),
            self.name
        )
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (root, name) = (self.root.clone(), self.name.clone());
        // The runtime of the test may be the only one, and it is busy dropping this.
        let drop = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                let Ok(mut connection) = PgConnection::connect_with(&root).await else { return };
                let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
                let _ = sqlx::query(AssertSqlSafe(sql)).execute(&mut connection).await;
            });
        });
        let _ = drop.join();
    }
}

/// A fresh database with all of `migrator`.
///
/// # Panics
///
/// When there is no Postgres or a migration fails: the test cannot go on.
pub async fn database(migrator: &Migrator) -> Database {
    let made = async { make(root().await?, migrator).await };
    match made.await {
        Ok(database) => database,
        Err(cause) => panic!("no scratch database: {cause}"),
    }
}

/// A fresh, empty database.
///
/// # Panics
///
/// When there is no Postgres: the test cannot go on.
pub async fn empty() -> Database {
    let made = async {
        let root = root().await?;
        copy(&root, "template0").await
    };
    match made.await {
        Ok(database) => database,
        Err(cause) => panic!("no scratch database: {cause}"),
    }
}

/// [`database`] in a cluster of one's own.
pub async fn in_cluster(scratch: &Scratch, migrator: &Migrator) -> Result<Database, ClusterError> {
    make(scratch.options(), migrator).await
}

/// The cluster of this process.
static OURS: OnceCell<Scratch> = OnceCell::const_new();

async fn root() -> Result<PgConnectOptions, ClusterError> {
    if let Ok(url) = std::env::var(VARIABLE) {
        return Ok(PgConnectOptions::from_str(&url)?);
    }
    Ok(OURS.get_or_try_init(Scratch::start).await?.options())
}

async fn make(root: PgConnectOptions, migrator: &Migrator) -> Result<Database, ClusterError> {
    let mut digest = Sha256::new();
    for migration in migrator.iter() {
        digest.update(migration.version.to_be_bytes());
        digest.update(&migration.checksum);
    }
    let template = format!("template_{}", hex::encode(&digest.finalize()[..8]));
    let mut connection = PgConnection::connect_with(&root).await?;
    if !exists(&mut connection, &template).await? {
        // Other tests and other test binaries want the same template.
        sqlx::query("SELECT pg_advisory_lock(7717)").execute(&mut connection).await?;
        if !exists(&mut connection, &template).await? {
            // Under another name until it is whole.
            let raw = format!("raw_{}", uuid::Uuid::now_v7().simple());
            run(&mut connection, format!("CREATE DATABASE {raw} TEMPLATE template0")).await?;
            let mut inside = PgConnection::connect_with(&root.clone().database(&raw)).await?;
            migrator.run_direct(None, &mut inside, false).await.map_err(sqlx::Error::from)?;
            inside.close().await?;
            run(&mut connection, format!("ALTER DATABASE {raw} RENAME TO {template}")).await?;
            run(&mut connection, format!("ALTER DATABASE {template} ALLOW_CONNECTIONS false")).await?;
        }
        sqlx::query("SELECT pg_advisory_unlock(7717)").execute(&mut connection).await?;
    }
    let _ = connection.close().await;
    copy(&root, &template).await
}

async fn exists(connection: &mut PgConnection, database: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)")
        .bind(database)
        .fetch_one(connection)
        .await
}

async fn copy(root: &PgConnectOptions, template: &str) -> Result<Database, ClusterError> {
    let name = format!("test_{}", uuid::Uuid::now_v7().simple());
    let mut connection = PgConnection::connect_with(root).await?;
    run(&mut connection, format!("CREATE DATABASE {name} TEMPLATE {template}")).await?;
    let _ = connection.close().await;
    let pool = PgPoolOptions::new().max_connections(10).connect_lazy_with(root.clone().database(&name));
    Ok(Database { pool, name, root: root.clone() })
}

/// Runs a statement whose names are made here.
async fn run(connection: &mut PgConnection, sql: String) -> Result<(), ClusterError> {
    sqlx::query(AssertSqlSafe(sql)).execute(connection).await?;
    Ok(())
}
