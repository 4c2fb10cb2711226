//! What has changed, as version numbers by topic. A change only wakes; whoever is
//! woken reads the tables again.
//!
//! Versions live in memory. One connection tells other servers with a coalesced
//! `NOTIFY`, at most 20 a second, and listens to theirs. Lost notifications are
//! covered by the timers of those who wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sqlx::{PgPool, postgres::PgListener};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Topic {
    Approvals,
    /// Sessions, their runs and events.
    Sessions,
    Workers,
    Agents,
    Users,
    /// Something to send to a worker: a prompt, a decision, a cancel.
    Outbox,
    /// Who may be connected: logins, disabled people, revoked tokens.
    Access,
}

impl Topic {
    pub const ALL: [Self; 7] = [
        Self::Approvals,
        Self::Sessions,
        Self::Workers,
        Self::Agents,
        Self::Users,
        Self::Outbox,
        Self::Access,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approvals => "approvals",
            Self::Sessions => "sessions",
            Self::Workers => "workers",
            Self::Agents => "agents",
            Self::Users => "users",
            Self::Outbox => "outbox",
            Self::Access => "access",
        }
    }
}

/// A version for each topic.
pub type Versions = [u64; Topic::ALL.len()];

const CHANNEL: &str = "countersign";
const COALESCE: Duration = Duration::from_millis(50);

/// See the module.
#[derive(Clone, Debug)]
pub struct Changes(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    versions: watch::Sender<Versions>,
    /// Topics to tell other servers of, as bits.
    untold: AtomicU32,
    tell: Notify,
    /// Names this server in notifications, so that it does not wake itself twice.
    me: Uuid,
}

impl Changes {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Shared {
            versions: watch::Sender::new([0; Topic::ALL.len()]),
            untold: AtomicU32::new(0),
            tell: Notify::new(),
            me: Uuid::new_v4(),
        }))
    }

    /// Says that topics have changed. Call it after the commit, never inside.
    pub fn bump(&self, topics: &[Topic]) {
        self.bump_here(topics);
        let bits = topics.iter().fold(0, |bits, t| bits | 1 << *t as u32);
        self.0.untold.fetch_or(bits, Ordering::AcqRel);
        self.0.tell.notify_one();
    }

    fn bump_here(&self, topics: &[Topic]) {
        self.0.versions.send_modify(|versions| {
            for topic in topics {
                versions[*topic as usize] += 1;
            }
        });
    }

    /// The version of one topic now.
    pub fn version(&self, topic: Topic) -> u64 {
        self.0.versions.borrow()[topic as usize]
    }

    /// Follows all versions.
    pub fn subscribe(&self) -> watch::Receiver<Versions> {
        self.0.versions.subscribe()
    }

    /// Tells other servers and listens to them, until the pool closes. Connection
    /// losses are retried; after each the local versions move, since notifications
    /// may have been missed.
    pub async fn run(self, pool: PgPool) {
        let talk = async {
            loop {
                self.0.tell.notified().await;
                let bits = self.0.untold.swap(0, Ordering::AcqRel);
                let payload = format!("{} {bits}", self.0.me);
                let told =
                    sqlx::query("select pg_notify($1, $2)").bind(CHANNEL).bind(payload).execute(&pool).await;
                if told.is_err() {
                    self.0.untold.fetch_or(bits, Ordering::AcqRel);
                    self.0.tell.notify_one();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                if pool.is_closed() {
                    return;
                }
                tokio::time::sleep(COALESCE).await;
            }
        };
        let listen = async {
            while !pool.is_closed() {
                if let Err(error) = self.listen(&pool).await {
                    tracing::debug!(%error, "not listening for changes of other servers; trying again");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::join!(talk, listen);
    }

    async fn listen(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        // Whatever was told before this moment, nobody here has heard.
        self.bump_here(&Topic::ALL);
        loop {
            match listener.try_recv().await? {
                Some(told) => self.heard(told.payload()),
                // The connection was lost and made again in between.
                None => self.bump_here(&Topic::ALL),
            }
        }
    }

    fn heard(&self, payload: &str) {
        let Some((from, bits)) = payload.split_once(' ') else { return };
        let Ok(bits) = bits.parse::<u32>() else { return };
        if from == self.0.me.to_string() {
            return;
        }
        let topics: Vec<Topic> = Topic::ALL.into_iter().filter(|t| bits & (1 << *t as u32) != 0).collect();
        self.bump_here(&topics);
    }
}
