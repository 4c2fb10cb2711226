//! Why there is no database. Each message is finished text for a terminal: what
//! is so, and what to do.

use std::path::PathBuf;

use crate::programs::Version;

/// Why there is no database.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// `DATABASE_URL` cannot be read. Its text is left out: it may hold a password.
    #[error(
        "DATABASE_URL is not a Postgres address. Write it as postgres://user:password@host:5432/database."
    )]
    Url,
    /// Nothing answers at the address.
    #[error(
        "The database server {at} named in DATABASE_URL does not answer: {why}. Start it, correct the address, or \
         unset DATABASE_URL to let Countersign run a Postgres of its own."
    )]
    Unreachable {
        /// Host and port, or the socket folder.
        at: String,
        /// The cause in words.
        why: String,
    },
    /// The server answers and refuses.
    #[error("The database server {at} refused the user {user} of DATABASE_URL: {why}.")]
    Refused {
        /// Host and port, or the socket folder.
        at: String,
        /// The role.
        user: String,
        /// The words of the server.
        why: String,
    },
    /// The server has no such database.
    #[error("The database server {at} has no database {name}. Create it with: createdb {name}")]
    NoDatabase {
        /// Host and port, or the socket folder.
        at: String,
        /// The database.
        name: String,
    },
    /// The server is older than [`crate::OLDEST`].
    #[error("The database server {at} is Postgres {version}. Countersign needs Postgres {oldest} or newer.", oldest = crate::OLDEST)]
    TooOld {
        /// Host and port, or the socket folder.
        at: String,
        /// What it is.
        version: Version,
    },
    /// The database cannot hold every text.
    #[error(
        "The database {name} has the encoding {encoding}. Countersign needs UTF8; create it with: \
         createdb --encoding=UTF8 --template=template0 {name}"
    )]
    Encoding {
        /// The database.
        name: String,
        /// Its encoding.
        encoding: String,
    },
    /// The data folder was made by a version that is not here.
    #[error(
        "The data in {} was made by Postgres {version}, and no Postgres {version} was found. Looked in {looked}. \
         Install Postgres {version}, or move the folder away to begin with an empty database.", folder.display()
    )]
    NoSuchVersion {
        /// The folder of the cluster.
        folder: PathBuf,
        /// Its major version.
        version: u32,
        /// The places, in words.
        looked: String,
    },
    /// No Postgres at all.
    #[error("No Postgres was found, and npm could not bring one ({npm}). {install}")]
    NoPrograms {
        /// Why the npm package is not there.
        npm: String,
        /// One sentence with the command to install Postgres.
        install: String,
    },
    /// The dedicated user cannot be made.
    #[error(
        "Postgres does not run as root, and the user countersign for it could not be created: {why}. Create it with \
         useradd --system countersign, or start Countersign as an ordinary user."
    )]
    NoAccount {
        /// The cause in words.
        why: String,
    },
    /// The dedicated user cannot reach the data folder.
    #[error(
        "The user countersign, which runs Postgres when Countersign is started as root, can't enter {}. \
         Allow it with: chmod o+x {}, or choose another data folder.", folder.display(), folder.display()
    )]
    Closed {
        /// The first folder on the way that is closed.
        folder: PathBuf,
    },
    /// The socket folder is not ours alone.
    #[error("The socket folder {} can't be used: {why}. Remove it and start again.", folder.display())]
    SocketFolder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// `initdb` failed.
    #[error("A new database could not be made in {}. initdb said:\n{said}", folder.display())]
    Initdb {
        /// The folder.
        folder: PathBuf,
        /// Its last lines.
        said: String,
    },
    /// The server ended instead of starting.
    #[error("Postgres did not start. The last lines of {}:\n{tail}", log.display())]
    Ended {
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// The server was not ready in time.
    #[error("Postgres was not ready within {seconds} seconds. The last lines of {}:\n{tail}", log.display())]
    Late {
        /// How long was waited.
        seconds: u64,
        /// The log file.
        log: PathBuf,
        /// Its last lines.
        tail: String,
    },
    /// A Postgres of this folder runs, answers nobody, and cannot be stopped.
    #[error(
        "Postgres (process {pid}) is running on this data folder and does not answer. End it with: kill -INT {pid}"
    )]
    Stuck {
        /// Its process id.
        pid: i32,
    },
    /// The operating system refused something.
    #[error("{doing} failed: {source}.")]
    Io {
        /// What was being done, as a noun phrase.
        doing: String,
        /// The cause.
        source: std::io::Error,
    },
    /// A query failed that cannot fail on a healthy server.
    #[error("The database answered with an error: {0}.")]
    Query(#[from] sqlx::Error),
}

impl ClusterError {
    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }

    /// The variant for a connection of `DATABASE_URL` that failed.
    pub(crate) fn of_url(cause: sqlx::Error, at: String, name: String, user: &str) -> Self {
        match &cause {
            sqlx::Error::Database(told) => match told.code().as_deref() {
                // 3D000 is invalid_catalog_name.
                Some("3D000") => Self::NoDatabase { at, name },
                _ => Self::Refused { at, user: user.to_owned(), why: told.message().to_owned() },
            },
            sqlx::Error::Io(io) => Self::Unreachable { at, why: io.to_string() },
            other => Self::Unreachable { at, why: other.to_string() },
        }
    }
}
