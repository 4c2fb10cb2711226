//! Runs: dispatch to a worker, cancel, continue, end.

use domain::{
    agent::AgentSpec,
    failure::Failure,
    id::{AgentId, RunId, SessionId, WorkerId},
    run::RunStatus,
    user::{Caller, Role},
    worker::HarnessOffer,
};
use sqlx::{PgConnection, types::Json};

use crate::{Result, Store, Topic, approval, audit, error::word};

/// What is left of the native execution when a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// The process lives, or ended in order: sent decisions keep their truthful result.
    Nothing,
    /// The process is gone: what was sent and not applied cannot be known.
    Execution,
}

/// Ends a run inside a transaction: its open approvals become cancelled with the
/// reason, its decisions that were never sent void. A run that is over stays as it is.
pub(crate) async fn end_in(
    tx: &mut PgConnection,
    store: &Store,
    run: RunId,
    status: RunStatus,
    detail: Option<&str>,
    gone: Gone,
) -> Result<bool> {
    let reason = match (status, gone) {
        (_, Gone::Execution) => "The execution that asked is gone.",
        (RunStatus::Cancelled, _) => "The run was cancelled.",
        _ => "The run ended before it was decided.",
    };
    // Approvals before the run: the order of locks everywhere.
    close_approvals(&mut *tx, store, run, reason).await?;
    // What waits to be sent again after a broken link was sent once: only the worker knows
    // whether it was applied.
    sqlx::query!(
        "update decisions d
         set delivery = case
                 when d.sent_at is null and $4 then 'void'
                 when d.sent_at is null then 'not_applied'
                 when $2 then 'outcome_unknown'
                 else d.delivery end,
             note = case when d.sent_at is null or $2 then $3 else d.note end
         from approvals a where a.id = d.approval_id and a.run_id = $1 and d.delivery in ('queued', 'sent')",
        run.0,
        gone == Gone::Execution,
        reason,
        status == RunStatus::Cancelled,
    )
    .execute(&mut *tx)
    .await?;
    let ended = sqlx::query!(
        "update runs set status = $2, detail = coalesce($3, detail), open_approvals = 0, ended_at = app_now()
         where id = $1 and status in ('pending', 'running', 'paused')",
        run.0,
        status.as_str(),
        detail,
    )
    .execute(&mut *tx)
    .await?;
    // One more may have been stored while the run's row was waited for; none can be after.
    close_approvals(tx, store, run, reason).await?;
    Ok(ended.rows_affected() == 1)
}

/// The open approvals of a run become cancelled.
async fn close_approvals(tx: &mut PgConnection, store: &Store, run: RunId, reason: &str) -> Result<()> {
    let closed = sqlx::query_scalar!(
        "update approvals set status = 'cancelled', closed_reason = $2, closed_at = app_now()
         where run_id = $1 and status = 'pending' returning id",
        run.0,
        reason,
    )
    .fetch_all(&mut *tx)
    .await?;
    for approval in closed {
        audit::add(&mut *tx, store, None, "approval", approval, "was cancelled", Some(reason)).await?;
    }
    Ok(())
}

/// Cancels a run: closes it, its approvals and its unsent decisions in one
/// transaction. The worker is told after; until it confirms, the page says so.
pub async fn cancel(store: &Store, caller: &Caller, run: RunId) -> Result<SessionId> {
    let mut tx = store.pool().begin().await?;
    let row = seen(&mut tx, caller, run).await?;
    if row.status.is_over() {
        return Err(Failure::Conflict {
            who: None,
            what: format!("This run is over already: {}.", row.status.label().to_lowercase()),
        }
        .into());
    }
    let detail = format!("Cancelled by {}.", caller.name);
    end_in(&mut tx, store, run, RunStatus::Cancelled, Some(&detail), Gone::Nothing).await?;
    sqlx::query!(
        "update runs set cancel_asked_at = app_now(),
             cancel_settled_at = case when started_at is null then app_now() end
         where id = $1",
        run.0
    )
    .execute(&mut *tx)
    .await?;
    audit::add(&mut tx, store, Some(caller.id), "run", run.0, "cancelled the run", None).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Approvals, Topic::Sessions, Topic::Outbox]);
    Ok(row.session)
}

struct Seen {
    session: SessionId,
    status: RunStatus,
}

/// Locks a run the caller may act on.
async fn seen(tx: &mut PgConnection, caller: &Caller, run: RunId) -> Result<Seen> {
    approval::lock_of_runs(&mut *tx, &[run.0]).await?;
    let row = sqlx::query!(
        "select r.session_id, r.status from runs r join sessions s on s.id = r.session_id
         where r.id = $1 and (not s.private or s.owner_id = $2 or $3) for update of r",
        run.0,
        caller.id.0,
        caller.role == Role::Admin,
    )
    .fetch_optional(tx)
    .await?
    .ok_or_else(|| Failure::not_found("run"))?;
    Ok(Seen { session: SessionId(row.session_id), status: word(&row.status, "status", run.0)? })
}

/// *Continue Run*: releases the decisions that wait for it. Refused while a request of
/// the run is still open, and when nothing waits.
pub async fn continue_run(store: &Store, caller: &Caller, run: RunId) -> Result<SessionId> {
    let mut tx = store.pool().begin().await?;
    let row = seen(&mut tx, caller, run).await?;
    let open = sqlx::query_scalar!("select open_approvals from runs where id = $1", run.0)
        .fetch_one(&mut *tx)
        .await?;
    if open > 0 {
        return Err(Failure::Conflict {
            who: None,
            what: format!("Decide the {open} open request{} first.", if open == 1 { "" } else { "s" }),
        }
        .into());
    }
    let released = sqlx::query!(
        "update decisions d set continued_at = app_now()
         from approvals a where a.id = d.approval_id and a.run_id = $1
           and d.delivery = 'queued' and d.continued_at is null",
        run.0
    )
    .execute(&mut *tx)
    .await?;
    if released.rows_affected() == 0 {
        return Err(Failure::Conflict { who: None, what: "Nothing waits for Continue run.".into() }.into());
    }
    sqlx::query!("update runs set status = 'running' where id = $1 and status = 'paused'", run.0)
        .execute(&mut *tx)
        .await?;
    audit::add(&mut tx, store, Some(caller.id), "run", run.0, "continued the run", None).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Approvals, Topic::Sessions, Topic::Outbox]);
    Ok(row.session)
}

/// A prompt to hand to a worker.
#[derive(Clone, Debug)]
pub struct DuePrompt {
    pub run: RunId,
    pub session: SessionId,
    pub agent: AgentSpec,
    pub text: String,
    pub native_session: Option<String>,
}

/// Prompts this worker should have: the oldest waiting one of each session without a
/// live run (it becomes `running`), and those whose acceptance was never heard.
pub async fn due_prompts(store: &Store, worker: WorkerId) -> Result<Vec<DuePrompt>> {
    let mut tx = store.pool().begin().await?;
    let refused = refuse_unaskable(&mut tx, store, worker).await?;
    let started = sqlx::query!(
        "update runs set status = 'running', started_at = app_now() where id in (
             select distinct on (r.session_id) r.id
             from runs r join sessions s on s.id = r.session_id join agents a on a.id = s.agent_id
             where r.status = 'pending' and a.worker_id = $1
               and not exists (select from runs l where l.session_id = r.session_id
                     and (l.status in ('running', 'paused')
                          or (l.cancel_asked_at is not null and l.cancel_settled_at is null)))
             order by r.session_id, r.id)
         and status = 'pending'",
        worker.0
    )
    .execute(&mut *tx)
    .await?;
    let rows = sqlx::query!(
        "select r.id, r.session_id, r.prompt, s.native_session, a.id as agent_id, a.name, a.harness, a.folder,
                a.mode, a.hitl_timeout_s, a.asks_everything
         from runs r join sessions s on s.id = r.session_id join agents a on a.id = s.agent_id
         where a.worker_id = $1 and r.status = 'running' and r.prompted_at is null
         order by r.id limit 100",
        worker.0
    )
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    if started.rows_affected() > 0 || refused > 0 {
        store.changes().bump(&[Topic::Sessions]);
    }
    Ok(rows
        .into_iter()
        .map(|r| DuePrompt {
            run: RunId(r.id),
            session: SessionId(r.session_id),
            agent: AgentSpec {
                id: AgentId(r.agent_id),
                name: r.name,
                harness: r.harness,
                folder: r.folder,
                mode: r.mode,
                asks_everything: r.asks_everything,
                hitl_timeout_s: r.hitl_timeout_s,
            },
            text: r.prompt,
            native_session: r.native_session,
        })
        .collect())
}

/// Ends the messages that wait for an agent whose policy is to ask and whose harness has
/// no way to: it is not started (rule 9). Returns how many.
async fn refuse_unaskable(tx: &mut PgConnection, store: &Store, worker: WorkerId) -> Result<usize> {
    let agents = sqlx::query!(
        r#"select a.id, a.harness, a.mode, w.offers as "offers: Json<Vec<HarnessOffer>>"
           from agents a join workers w on w.id = a.worker_id
           where a.worker_id = $1 and exists (
               select from runs r join sessions s on s.id = r.session_id
               where s.agent_id = a.id and r.prompted_at is null and r.status in ('pending', 'running'))"#,
        worker.0
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut refused = 0;
    for agent in agents {
        let offer = agent.offers.0.iter().find(|o| o.id == agent.harness);
        let Some(why) = offer.and_then(|o| o.cannot_ask(&agent.mode)) else { continue };
        let runs = sqlx::query_scalar!(
            "select r.id from runs r join sessions s on s.id = r.session_id
             where s.agent_id = $1 and r.prompted_at is null and r.status in ('pending', 'running')
             order by r.id",
            agent.id
        )
        .fetch_all(&mut *tx)
        .await?;
        for run in runs {
            let ended = end_in(&mut *tx, store, RunId(run), RunStatus::Error, Some(&why), Gone::Nothing);
            refused += usize::from(ended.await?);
        }
    }
    Ok(refused)
}

/// Runs of which only background work goes on while a next message waits.
pub async fn due_finishes(store: &Store, worker: WorkerId) -> Result<Vec<(RunId, SessionId)>> {
    let rows = sqlx::query!(
        "select r.id, r.session_id
         from runs r join sessions s on s.id = r.session_id join agents a on a.id = s.agent_id
         where a.worker_id = $1 and r.status = 'running' and r.in_background
           and exists (select from runs n where n.session_id = r.session_id and n.status = 'pending')
         order by r.id limit 100",
        worker.0
    )
    .fetch_all(store.pool())
    .await?;
    Ok(rows.into_iter().map(|r| (RunId(r.id), SessionId(r.session_id))).collect())
}

/// The worker has journalled the prompt.
pub async fn prompted(store: &Store, run: RunId) -> Result<()> {
    sqlx::query!("update runs set prompted_at = coalesce(prompted_at, app_now()) where id = $1", run.0)
        .execute(store.pool())
        .await?;
    Ok(())
}

/// The worker will not run it.
pub async fn refused(store: &Store, run: RunId, why: &str) -> Result<()> {
    let mut tx = store.pool().begin().await?;
    end_in(&mut tx, store, run, RunStatus::Error, Some(why), Gone::Nothing).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Approvals, Topic::Sessions, Topic::Outbox]);
    Ok(())
}

/// Cancels the worker has not confirmed.
pub async fn due_cancels(store: &Store, worker: WorkerId) -> Result<Vec<(RunId, SessionId)>> {
    let rows = sqlx::query!(
        "select r.id, r.session_id
         from runs r join sessions s on s.id = r.session_id join agents a on a.id = s.agent_id
         where a.worker_id = $1 and r.cancel_asked_at is not null and r.cancel_settled_at is null
         order by r.id limit 100",
        worker.0
    )
    .fetch_all(store.pool())
    .await?;
    Ok(rows.into_iter().map(|r| (RunId(r.id), SessionId(r.session_id))).collect())
}

/// The harness has stopped, or had nothing to stop.
pub async fn cancel_settled(store: &Store, run: RunId) -> Result<()> {
    let settled = sqlx::query!(
        "update runs set cancel_settled_at = app_now() where id = $1 and cancel_settled_at is null",
        run.0
    )
    .execute(store.pool())
    .await?;
    if settled.rows_affected() > 0 {
        store.changes().bump(&[Topic::Sessions, Topic::Outbox]);
    }
    Ok(())
}
