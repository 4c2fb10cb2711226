//! Postgres. Queries by noun; each public function that writes is one transaction.
//!
//! - `app_now()` is the only clock of a rule. A bare `now()` in SQL fails a test.
//! - Nothing is announced inside a transaction: [`Changes::bump`] comes after the commit.
//! - *Not found* and *not yours* are the same answer.
//! - Named constraints are mapped to failures; messages of Postgres are never parsed.

pub mod agent;
pub mod approval;
pub mod audit;
pub mod changes;
pub mod cluster;
pub mod cursor;
pub mod data_folder;
pub mod decision;
pub mod error;
pub mod event;
pub mod login;
pub mod run;
pub mod session;
pub mod token;
pub mod user;
pub mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use domain::{
    approval::ApprovalCounts,
    id::UserId,
    user::{Caller, Made, Role},
};
use sqlx::{PgPool, migrate::Migrator, postgres::PgPoolOptions};
use uuid::Uuid;

pub use changes::{Changes, Topic};
#[cfg(feature = "scratch")]
pub use cluster::scratch;
pub use error::{Error, Result};
pub use sqlx::postgres::PgConnectOptions;
pub use token::Token;

/// The schema, compiled in.
pub static MIGRATOR: Migrator = sqlx::migrate!("../../migrations");

/// A connection that stood idle for so long is tested before it is used.
const IDLE_TESTED: Duration = Duration::from_millis(250);

/// How long a secret that was just made can be read back by who made it.
const MADE_FOR: Duration = Duration::from_mins(1);

/// The store: a pool, what has changed, and where new ids come from. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    pool: PgPool,
    changes: Changes,
    /// How people and workers reach this server: `http://127.0.0.1:7717`.
    public_url: String,
    new_id: fn() -> Uuid,
    made: Mutex<HashMap<UserId, (Instant, Made)>>,
    counts: Mutex<HashMap<UserId, (Instant, u64, ApprovalCounts)>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("public_url", &self.0.public_url).finish_non_exhaustive()
    }
}

impl Store {
    /// Connects, with at most `connections` at a time. Does not migrate.
    pub async fn connect(
        options: PgConnectOptions,
        connections: u32,
        public_url: &str,
        new_id: fn() -> Uuid,
    ) -> Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .min_connections(2)
            .acquire_timeout(Duration::from_secs(5))
            .test_before_acquire(false)
            // A connection that stood idle may have died with a restart of the database;
            // nobody's request should be the one that finds out. One in use costs nothing.
            .before_acquire(|conn, about| {
                Box::pin(async move {
                    Ok(about.idle_for < IDLE_TESTED || sqlx::Connection::ping(conn).await.is_ok())
                })
            })
            .connect_with(options.application_name("countersign"))
            .await?;
        Ok(Self(Arc::new(Inner {
            pool,
            changes: Changes::new(),
            public_url: public_url.trim_end_matches('/').to_owned(),
            new_id,
            made: Mutex::default(),
            counts: Mutex::default(),
        })))
    }

    /// Brings the schema up to this program's version. Refuses a newer one.
    pub async fn migrate(&self) -> Result<()> {
        MIGRATOR.run(self.pool()).await.map_err(|e| match e {
            sqlx::migrate::MigrateError::VersionMissing(version) => Error::NewerSchema { version },
            sqlx::migrate::MigrateError::VersionMismatch(version) => Error::ChangedSchema { version },
            other => Error::Migrate(other),
        })
    }

    pub fn pool(&self) -> &PgPool {
        &self.0.pool
    }

    pub fn changes(&self) -> &Changes {
        &self.0.changes
    }

    pub fn public_url(&self) -> &str {
        &self.0.public_url
    }

    /// The address of a one-time link.
    pub fn link_url(&self, token: &Token) -> String {
        format!("{}/link/{}", self.public_url(), token.reveal())
    }

    /// A new id, ordered by time.
    pub fn new_id(&self) -> Uuid {
        (self.0.new_id)()
    }

    /// What `user` made less than a minute ago.
    pub fn made(&self, user: UserId) -> Option<Made> {
        let mut made = self.0.made.lock().ok()?;
        made.retain(|_, (at, _)| at.elapsed() < MADE_FOR);
        made.get(&user).map(|(_, made)| made.clone())
    }

    pub(crate) fn keep_made(&self, user: UserId, secret: Made) {
        if let Ok(mut made) = self.0.made.lock() {
            made.insert(user, (Instant::now(), secret));
        }
    }

    /// Counts read no longer than a second ago and with nothing changed since.
    pub(crate) fn counts_kept(&self, user: UserId, version: u64) -> Option<ApprovalCounts> {
        let counts = self.0.counts.lock().ok()?;
        let (at, read_at, counts) = counts.get(&user)?;
        (*read_at == version && at.elapsed() < Duration::from_secs(1)).then_some(*counts)
    }

    pub(crate) fn keep_counts(&self, user: UserId, version: u64, read: ApprovalCounts) {
        if let Ok(mut counts) = self.0.counts.lock() {
            if counts.len() > 1000 {
                counts.clear();
            }
            counts.insert(user, (Instant::now(), version, read));
        }
    }
}

/// Whether the caller sees private sessions of others.
pub(crate) fn sees_all(caller: &Caller) -> bool {
    caller.role == Role::Admin
}
