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
            error => {
                let id = Uuid::new_v4().simple().to_string()[..8].to_owned();
                if let Self::Database(error) = &error
                    && let Some(words) = outage(error)
                {
                    tracing::warn!(%id, %error, "the database does not do its work");
                    return Failure::Unavailable {
                        what: format!("{words} The log has the details under {id}."),
                    };
                }
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

/// What is the matter where the database is away or takes nothing, not wrong: connection
/// errors, shutdown (57P*), out of resources (53*), read-only (25006). A connection that
/// was lost may have been lost after the commit: only the others say that nothing was
/// changed.
fn outage(error: &sqlx::Error) -> Option<&'static str> {
    const AWAY: &str = "The database cannot be reached. Try again in a moment, and look first whether it was stored: what the database has taken, it keeps.";
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Tls(_) => {
            Some(AWAY)
        }
        sqlx::Error::Database(e) => match e.code()?.as_ref() {
            "25006" => Some(
                "The database is read-only at the moment. Nothing was changed. Try again once it takes changes.",
            ),
            "53100" => {
                Some("The disk of the database is full. Nothing was changed. Try again once there is room.")
            }
            c if c.starts_with("53") => Some(
                "The database has no connections or memory left. Nothing was changed. Try again in a moment.",
            ),
            // Two changes waited for each other; Postgres gave one up.
            "40P01" => Some("Something else was changed at the same moment. Nothing was changed. Try again."),
            c if c.starts_with("57P") || c.starts_with("08") => Some(AWAY),
            _ => None,
        },
        _ => None,
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
