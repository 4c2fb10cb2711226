//! Events of a run, as a worker reports them: stored in sequence, exactly once.

use chrono::DateTime;
use domain::{
    event::EventBody,
    id::{RunId, SessionId, WorkerId},
    time::Timestamp,
};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Result, Store, Topic, approval, run};

/// One event that has arrived.
#[derive(Clone, Debug)]
pub struct Arrived {
    pub seq: i64,
    pub run: RunId,
    pub at: Timestamp,
    pub body: EventBody,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// Everything up to this sequence is stored: acknowledge it.
    UpTo(i64),
    /// The session is not this worker's, or its epoch is old: nothing was written.
    Fenced,
    /// There is no such session.
    Unknown,
}

/// Stores events of one session in one transaction. Those stored before and
/// those beyond a gap are skipped: the sender goes back to what is acknowledged.
pub async fn store_all(
    store: &Store,
    worker: WorkerId,
    epoch: i64,
    session: SessionId,
    events: &[Arrived],
) -> Result<Stored> {
    let mut tx = store.pool().begin().await?;
    let Some(row) = sqlx::query!(
        r#"select s.stored_seq, a.worker_id = $2 and w.epoch = $3 and w.revoked_at is null as "ours!"
           from sessions s join agents a on a.id = s.agent_id join workers w on w.id = a.worker_id
           where s.id = $1 for no key update of s"#,
        session.0,
        worker.0,
        epoch,
    )
    .fetch_optional(&mut *tx)
    .await?
    else {
        return Ok(Stored::Unknown);
    };
    if !row.ours {
        return Ok(Stored::Fenced);
    }
    let mut stored = row.stored_seq;
    let (mut ended, mut background) = (false, false);
    // A worker moves no run but those of the session it speaks of.
    let named: Vec<Uuid> = events.iter().map(|e| e.run.0).collect();
    let runs =
        sqlx::query_scalar!("select id from runs where session_id = $1 and id = any($2)", session.0, &named)
            .fetch_all(&mut *tx)
            .await?;
    if events.iter().any(|e| matches!(e.body, EventBody::Ended { .. })) {
        approval::lock_of_runs(&mut tx, &runs).await?;
    }
    for event in events {
        // The rule of `link::sequence::arrival`.
        if event.seq != stored + 1 {
            continue;
        }
        if !runs.contains(&event.run.0) {
            stored = event.seq;
            continue;
        }
        sqlx::query!(
            "insert into run_events (run_id, seq, at, body) values ($1, $2, $3, $4) on conflict do nothing",
            event.run.0,
            event.seq,
            DateTime::from_timestamp_millis(event.at.0).unwrap_or_default(),
            Json(&event.body) as _,
        )
        .execute(&mut *tx)
        .await?;
        match &event.body {
            EventBody::Started { native_session, .. } => {
                sqlx::query!(
                    "update sessions set native_session = coalesce($2, native_session) where id = $1",
                    session.0,
                    native_session.as_deref(),
                )
                .execute(&mut *tx)
                .await?;
                sqlx::query!(
                    "update runs set prompted_at = coalesce(prompted_at, app_now()) where id = $1",
                    event.run.0
                )
                .execute(&mut *tx)
                .await?;
            }
            EventBody::Ended { status, detail } => {
                // What became of decisions under way the worker says for each request.
                run::end_in(&mut tx, store, event.run, *status, detail.as_deref(), run::Gone::Nothing)
                    .await?;
                sqlx::query!(
                    "update runs set cancel_settled_at = app_now()
                     where id = $1 and cancel_asked_at is not null and cancel_settled_at is null",
                    event.run.0
                )
                .execute(&mut *tx)
                .await?;
                ended = true;
            }
            EventBody::Background { tasks } => {
                sqlx::query!(
                    "update runs set in_background = $2 where id = $1",
                    event.run.0,
                    !tasks.is_empty(),
                )
                .execute(&mut *tx)
                .await?;
                background = true;
            }
            _ => {}
        }
        stored = event.seq;
    }
    if stored > row.stored_seq {
        sqlx::query!(
            "update sessions set stored_seq = $2, updated_at = app_now() where id = $1",
            session.0,
            stored,
        )
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    if ended {
        store.changes().bump(&[Topic::Approvals, Topic::Sessions, Topic::Outbox]);
    } else if background {
        store.changes().bump(&[Topic::Sessions, Topic::Outbox]);
    } else if stored > row.stored_seq {
        store.changes().bump(&[Topic::Sessions]);
    }
    Ok(Stored::UpTo(stored))
}
