//! What can go wrong in the store: failures that are the caller's to see, and
//! internals that are logged whole and shown as an id.

use domain::failure::Failure;
use uuid::Uuid;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Failure(#[from] Failure),
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
    #[error(
        "the database's schema has version {version}, which this program does not know. Run a newer Countersign, or restore the backup made before it"
    )]
    NewerSchema { version: i64 },
    #[error(
        "migration {version} in the database is not the one this program ships. Run the program that made the database"
    )]
    ChangedSchema { version: i64 },
    #[error("a migration failed: {0}")]
    Migrate(sqlx::migrate::MigrateError),
    #[error("{what} of {row} is inconsistent: {why}")]
    Inconsistent { what: &'static str, row: Uuid, why: String },
}

impl Error {
    /// What a person sees. Internals go to the log with the id they can quote.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Failure(failure) => failure,
            Self::Database(error) if is_outage(&error) => {
                tracing::warn!(%error, "the database cannot be reached");
                Failure::Unavailable {
                    what: "The database cannot be reached. Nothing was changed. Try again in a moment."
                        .into(),
                }
            }
            error => {
                let id = Uuid::new_v4().simple().to_string()[..8].to_owned();
                tracing::error!(%id, error = ?error, "a request failed");
                Failure::Internal { id }
            }
        }
    }

    /// The name of the constraint that refused a row.
    pub fn constraint(&self) -> Option<&str> {
        match self {
            Self::Database(sqlx::Error::Database(error)) => error.constraint(),
            _ => None,
        }
    }
}

/// Whether the database is away, not wrong: connection errors, shutdown (57P*),
/// out of resources (53*), read-only (25006).
fn is_outage(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Tls(_) => {
            true
        }
        sqlx::Error::Database(e) => e.code().is_some_and(|c| {
            c.starts_with("57P") || c.starts_with("53") || c.starts_with("08") || c == "25006"
        }),
        _ => false,
    }
}

/// Reads a word stored by this program; anything else is an inconsistency.
pub(crate) fn word<T>(text: &str, what: &'static str, row: Uuid) -> Result<T>
where
    T: std::str::FromStr,
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|e: T::Err| Error::Inconsistent { what, row, why: e.to_string() })
}
