//! Approvals: stored with the pause, listed, decided once, extended, expired.
//!
//! Locks are taken approval first, then run, everywhere.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::{
    action,
    approval::{
        self, ApprovalCounts, ApprovalDetail, ApprovalRow, ApprovalStatus, AskOption, EXTEND_S, GRANT_MAX,
        GRANTS_MAX, Given, Grant, Reply, RequestKey, plain_option,
    },
    decision::{Answer, NOBODY_ANSWERED, Outcome},
    digest::{ActionDigest, ActionFields, AnswerDigest},
    edit,
    event::EVENT_TEXT_MAX,
    failure::Failure,
    id::{ApprovalId, DecisionId, RunId, SessionId, WorkerId},
    question::Questions,
    run::RunStatus,
    time::Timestamp,
    user::{Caller, Role},
};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use crate::{
    Error, Result, Store, Topic, audit,
    cursor::{Cursor, page},
    decision,
    error::word,
    sees_all,
};

const ROWS: usize = 25;

/// How many approvals the caller may read, by tab. Kept for a second while nothing changes.
pub async fn counts(store: &Store, caller: &Caller) -> Result<ApprovalCounts> {
    let version = store.changes().version(Topic::Approvals);
    if let Some(kept) = store.counts_kept(caller.id, version) {
        return Ok(kept);
    }
    let rows = sqlx::query!(
        r#"select p.status, count(*) as "n!"
           from approvals p join sessions s on s.id = p.session_id
           where (not s.private or s.owner_id = $1 or $2)
           group by p.status"#,
        caller.id.0,
        sees_all(caller),
    )
    .fetch_all(store.pool())
    .await?;
    let mut counts = ApprovalCounts::default();
    for r in rows {
        let n = u64::try_from(r.n).unwrap_or(0);
        match word(&r.status, "status", Uuid::nil())? {
            ApprovalStatus::Pending => counts.pending = n,
            ApprovalStatus::Approved | ApprovalStatus::Rejected => counts.decided += n,
            ApprovalStatus::Expired => counts.expired = n,
            ApprovalStatus::Cancelled => counts.cancelled = n,
        }
    }
    store.keep_counts(caller.id, version, counts);
    Ok(counts)
}

struct Row {
    id: Uuid,
    status: String,
    kind: String,
    tool: String,
    title: String,
    agent: String,
    sub_agent: Option<String>,
    folder: String,
    session_id: Uuid,
    session_title: String,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    left_ms: i64,
    findings: i32,
    checked: bool,
    decided_by: Option<String>,
    delivery: Option<String>,
}

impl Row {
    fn view(self) -> Result<ApprovalRow> {
        Ok(ApprovalRow {
            id: ApprovalId(self.id),
            status: word(&self.status, "status", self.id)?,
            kind: word(&self.kind, "kind", self.id)?,
            tool: self.tool,
            title: self.title,
            agent: self.agent,
            sub_agent: self.sub_agent,
            folder: self.folder,
            session: SessionId(self.session_id),
            session_title: self.session_title,
            created_at: self.created_at.into(),
            expires_at: self.expires_at.into(),
            left_ms: self.left_ms,
            findings: u32::try_from(self.findings).unwrap_or(0),
            checked: self.checked,
            decided_by: self.decided_by,
            delivery: self.delivery.map(|d| word(&d, "delivery", self.id)).transpose()?,
        })
    }
}

/// Approvals of these statuses that the caller may read, 25 at a time. Pending ones
/// alone come oldest first; everything else newest first.
pub async fn list(
    store: &Store,
    caller: &Caller,
    statuses: &[ApprovalStatus],
    after: Option<&str>,
) -> Result<(Vec<ApprovalRow>, Option<String>)> {
    let after = Cursor::read(after)?;
    let (after_at, after_id) = (after.map(|a| a.at), after.map_or(Uuid::nil(), |a| a.id));
    // Each status is read along its own index, then merged: a page costs the same
    // however many approvals there are.
    let rows = if statuses == [ApprovalStatus::Pending] {
        sqlx::query_as!(
            Row,
            r#"select p.id, p.status, p.kind, p.tool, p.title, a.name as agent, p.folder, p.session_id,
                      coalesce(p.sub_agent_title, p.sub_agent) as sub_agent,
                      s.title as session_title, p.created_at, p.expires_at, p.findings, p.checked,
                      greatest((extract(epoch from p.expires_at - app_now()) * 1000)::bigint, 0) as "left_ms!",
                      null::text as decided_by, null::text as delivery
               from approvals p join sessions s on s.id = p.session_id join agents a on a.id = p.agent_id
               where p.status = 'pending' and (not s.private or s.owner_id = $1 or $2)
                 and ($3::timestamptz is null or (p.created_at, p.id) > ($3, $4))
               order by p.created_at, p.id limit 26"#,
            caller.id.0,
            sees_all(caller),
            after_at,
            after_id,
        )
        .fetch_all(store.pool())
        .await?
    } else {
        let words: Vec<String> = statuses.iter().map(ToString::to_string).collect();
        sqlx::query_as!(
            Row,
            r#"select p.id as "id!", p.status as "status!", p.kind as "kind!", p.tool as "tool!",
                      p.title as "title!", a.name as agent, p.folder as "folder!", p.session_id as "session_id!",
                      coalesce(p.sub_agent_title, p.sub_agent) as sub_agent,
                      p.session_title as "session_title!", p.created_at as "created_at!",
                      p.expires_at as "expires_at!", p.findings as "findings!", p.checked as "checked!",
                      greatest((extract(epoch from p.expires_at - app_now()) * 1000)::bigint, 0) as "left_ms!",
                      u.name as "decided_by?", d.delivery as "delivery?"
               from unnest($5::text[]) st(word)
               cross join lateral (
                   select p.*, s.title as session_title
                   from approvals p join sessions s on s.id = p.session_id
                   where p.status = st.word and (not s.private or s.owner_id = $1 or $2)
                     and ($3::timestamptz is null or (p.created_at, p.id) < ($3, $4))
                   order by p.created_at desc, p.id desc limit 26) p
               join agents a on a.id = p.agent_id
               left join decisions d on d.approval_id = p.id and d.delivery <> 'void'
               left join users u on u.id = d.decided_by
               order by p.created_at desc, p.id desc limit 26"#,
            caller.id.0,
            sees_all(caller),
            after_at,
            after_id,
            &words,
        )
        .fetch_all(store.pool())
        .await?
    };
    let (rows, next) = page(rows, ROWS, |r| Cursor { at: r.created_at, id: r.id });
    Ok((rows.into_iter().map(Row::view).collect::<Result<_>>()?, next))
}

/// One approval in full, with its history.
pub async fn read(store: &Store, caller: &Caller, id: ApprovalId) -> Result<ApprovalDetail> {
    let mut tx = store.pool().begin().await?;
    let mut detail = read_where(&mut tx, caller, Some(id), &[])
        .await?
        .pop()
        .map(|(_, _, detail)| detail)
        .ok_or_else(|| Failure::not_found("request"))?;
    detail.history = audit::history(&mut tx, "approval", id.0).await?;
    tx.commit().await?;
    Ok(detail)
}

/// The most approvals of one run read at once.
const OF_A_RUN: i64 = 100;

/// How many approvals each of these runs has.
pub(crate) async fn count_of_runs(tx: &mut PgConnection, runs: &[Uuid]) -> Result<HashMap<Uuid, u64>> {
    let rows = sqlx::query!(
        r#"select run_id, count(*) as "n!" from approvals where run_id = any($1) group by run_id"#,
        runs,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(|r| (r.run_id, u64::try_from(r.n).unwrap_or(0))).collect())
}

/// The approvals of runs, with their place in the transcript, in the order asked; of runs
/// with very many those that wait and the newest.
pub(crate) async fn read_of_runs(
    tx: &mut PgConnection,
    caller: &Caller,
    runs: &[Uuid],
) -> Result<Vec<(i64, Uuid, ApprovalDetail)>> {
    read_where(tx, caller, None, runs).await
}

async fn read_where(
    tx: &mut PgConnection,
    caller: &Caller,
    id: Option<ApprovalId>,
    runs: &[Uuid],
) -> Result<Vec<(i64, Uuid, ApprovalDetail)>> {
    let rows = sqlx::query!(
        r#"select p.id, p.status, p.kind, p.tool, p.title, a.name as agent, p.folder, p.session_id, p.run_id,
                  s.title as session_title, p.created_at, p.expires_at, p.findings, p.checked,
                  greatest((extract(epoch from p.expires_at - app_now()) * 1000)::bigint, 0) as "left_ms!",
                  (extract(epoch from p.expires_at - p.created_at) * 1000)::bigint as "timeout_ms!",
                  p.harness, p.sub_agent, p.mode, p.input, p.action_digest, p.words, p.closed_reason, p.after_seq,
                  p.options as "options: Json<Vec<AskOption>>", p.takes_message, a.waits_for_continue,
                  p.reply, p.takes_edit, p.grants as "grants: Json<Vec<Grant>>", p.sub_agent_title,
                  w.name as worker, w.linked and w.revoked_at is null as "linked!",
                  (select count(*) from approvals e where e.run_id = p.run_id and e.id <= p.id) as "number!"
           from approvals p join sessions s on s.id = p.session_id join agents a on a.id = p.agent_id
           join workers w on w.id = p.worker_id
           where (p.id = $1 or p.id in (
                     select n.id from unnest($2::uuid[]) run(id)
                     cross join lateral (
                         select q.id from approvals q where q.run_id = run.id
                         order by q.status = 'pending' desc, q.id desc limit $5) n))
             and (not s.private or s.owner_id = $3 or $4)
           order by p.id"#,
        id.map(|i| i.0),
        runs,
        caller.id.0,
        sees_all(caller),
        OF_A_RUN,
    )
    .fetch_all(&mut *tx)
    .await?;
    let ids: Vec<Uuid> = rows.iter().map(|r| r.id).collect();
    let mut receipts = decision::receipts(tx, &ids).await?;
    let mut all = Vec::with_capacity(rows.len());
    for r in rows {
        let receipt = receipts.remove(&r.id);
        let digest = ActionDigest::try_from(r.action_digest.as_slice()).map_err(|e| Error::Inconsistent {
            what: "action_digest",
            row: r.id,
            why: e.to_string(),
        })?;
        let row = Row {
            id: r.id,
            status: r.status,
            kind: r.kind,
            tool: r.tool.clone(),
            title: r.title,
            agent: r.agent,
            sub_agent: r.sub_agent_title.or(r.sub_agent),
            folder: r.folder.clone(),
            session_id: r.session_id,
            session_title: r.session_title,
            created_at: r.created_at,
            expires_at: r.expires_at,
            left_ms: r.left_ms,
            findings: r.findings,
            checked: r.checked,
            decided_by: receipt.as_ref().and_then(|x| x.by.clone()),
            delivery: receipt.as_ref().map(|x| x.delivery.to_string()),
        }
        .view()?;
        let may_decide = row.status == ApprovalStatus::Pending && caller.role.covers(Role::Approver);
        let reply: Reply = word(&r.reply, "reply", r.id)?;
        let questions = match reply {
            Reply::Answers => Questions::read(&r.input).map(|q| q.all().to_vec()).unwrap_or_default(),
            _ => Vec::new(),
        };
        let detail = ApprovalDetail {
            run: RunId(r.run_id),
            harness: r.harness,
            worker: r.worker,
            worker_linked: r.linked,
            mode: r.mode,
            action: action::view(&r.tool, &r.folder, &r.input),
            digest,
            fingerprint: digest.fingerprint(),
            words: r.words,
            options: r.options.0,
            reply,
            questions,
            grants: r.grants.0,
            editable: if may_decide && r.takes_edit && reply == Reply::Decision {
                edit::fields(&r.input)
            } else {
                Vec::new()
            },
            timeout_ms: r.timeout_ms,
            receipt,
            closed_reason: r.closed_reason,
            takes_message: r.takes_message,
            waits_for_continue: r.waits_for_continue,
            may_decide,
            number_in_run: u32::try_from(r.number).unwrap_or(u32::MAX),
            history: Vec::new(),
            row,
        };
        all.push((r.after_seq, r.run_id, detail));
    }
    Ok(all)
}

/// A native request that has arrived.
#[derive(Debug)]
pub struct Asked<'a> {
    pub session: SessionId,
    pub run: RunId,
    pub request_key: &'a RequestKey,
    pub after_seq: i64,
    pub harness: &'a str,
    pub tool: &'a str,
    pub folder: &'a str,
    pub sub_agent: Option<&'a str>,
    pub call_id: Option<&'a str>,
    pub mode: &'a str,
    pub input: &'a [u8],
    pub action_digest: ActionDigest,
    pub words: Option<&'a str>,
    pub options: &'a [AskOption],
    pub sub_agent_title: Option<&'a str>,
    pub grants: &'a [Grant],
    pub takes: Takes,
    pub native_deadline_ms: Option<i64>,
}

/// What the harness takes as an answer, by its capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takes {
    /// Words of a refusal reach the model.
    pub message: bool,
    /// Another input than the one it asked for.
    pub edit: bool,
    /// Answers to questions.
    pub answers: bool,
    /// What is allowed besides until its process ends.
    pub grants: bool,
}

/// How a native request was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paused {
    /// Stored, or stored before: the approval and the time left.
    Stored { approval: ApprovalId, remaining_ms: i64 },
    /// Never stored, and never will be; the worker refuses it natively.
    Refused { why: &'static str },
    /// The link is not current.
    Fenced,
}

/// Stores the approval and the pause together, or nothing (rule 1). Idempotent by
/// request key; the same key with another action is refused.
pub async fn pause(store: &Store, worker: WorkerId, epoch: i64, asked: Asked<'_>) -> Result<Paused> {
    let key = asked.request_key.to_string();
    let fields = ActionFields {
        request_key: &key,
        harness: asked.harness,
        tool: asked.tool,
        folder: asked.folder,
        sub_agent: asked.sub_agent,
        input: asked.input,
    };
    if ActionDigest::of(fields) != asked.action_digest {
        return Ok(Paused::Refused { why: "The action does not fit its digest." });
    }
    let view = action::view(asked.tool, asked.folder, asked.input);
    let grants = if asked.takes.grants { asked.grants } else { &[] };
    if grants.len() > GRANTS_MAX || grants.iter().any(|g| g.native.len() + g.words.len() > 2 * GRANT_MAX) {
        return Ok(Paused::Refused { why: "It carries more suggestions than can be shown." });
    }
    let plain = |text: &str, most: usize| {
        let mut text = text.replace('\0', "\u{fffd}");
        domain::event::cut(&mut text, most);
        text
    };
    let words = asked.words.map(|w| plain(w, EVENT_TEXT_MAX));
    let sub_agent_title = asked.sub_agent_title.map(|t| plain(t, 500));
    let id = store.new_id();
    let mut tx = store.pool().begin().await?;
    // The worker's row is held until the commit: a newer link's hello then finds all that
    // an older one stored.
    let ours = sqlx::query!(
        r#"select w.epoch = $2 and w.revoked_at is null as "current!", r.status as "status?",
                  r.cancel_asked_at is not null as "stopping?"
           from workers w
           left join (runs r join sessions s on s.id = r.session_id join agents a on a.id = s.agent_id)
             on r.id = $3 and s.id = $4 and a.worker_id = w.id
           where w.id = $1 for share of w"#,
        worker.0,
        epoch,
        asked.run.0,
        asked.session.0,
    )
    .fetch_one(&mut *tx)
    .await?;
    if !ours.current {
        return Ok(Paused::Fenced);
    }
    if let Some(before) = sqlx::query!(
        r#"select id, action_digest, status,
                  greatest((extract(epoch from expires_at - app_now()) * 1000)::bigint, 0) as "left_ms!"
           from approvals where worker_id = $1 and request_key = $2"#,
        worker.0,
        key,
    )
    .fetch_optional(&mut *tx)
    .await?
    {
        if before.action_digest != asked.action_digest.0 {
            return Ok(Paused::Refused { why: "Another action was asked under the same native id before." });
        }
        return Ok(Paused::Stored { approval: ApprovalId(before.id), remaining_ms: before.left_ms });
    }
    let Some(status) = ours.status else {
        return Ok(Paused::Refused { why: "The run is not known to this server." });
    };
    let status: RunStatus = word(&status, "status", asked.run.0)?;
    if status.is_over() || ours.stopping == Some(true) {
        return Ok(Paused::Refused { why: "The run is over." });
    }
    let stored = sqlx::query!(
        r#"with asked as (
               insert into approvals (id, run_id, session_id, agent_id, worker_id, incarnation, request_key,
                   harness, tool, folder, sub_agent, call_id, mode, input, action_digest, words, options,
                   takes_message, kind, title, findings, checked, after_seq, reply, takes_edit, grants,
                   sub_agent_title, created_at, expires_at)
               select $1, r.id, s.id, a.id, a.worker_id, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                   $16, $17, $18, $19, $20, $21, $24, $25, $26, $27, app_now(),
                   app_now() + least(make_interval(secs => a.hitl_timeout_s::float8),
                                     make_interval(secs => $22::float8 / 1000))
               from runs r join sessions s on s.id = r.session_id join agents a on a.id = s.agent_id
               where r.id = $2 and s.id = $3
               returning id, run_id, expires_at),
           paused as (
               update runs r set status = 'paused', open_approvals = r.open_approvals + 1
               from asked where r.id = asked.run_id and r.status in ('running', 'paused')
               returning r.id),
           noted as (
               insert into audit (id, noun, noun_id, what)
               select $23, 'approval', asked.id, 'asked. The run is paused.' from asked)
           select (extract(epoch from asked.expires_at - app_now()) * 1000)::bigint as "left_ms!",
                  exists (select from paused) as "paused!"
           from asked"#,
        id,
        asked.run.0,
        asked.session.0,
        asked.request_key.incarnation.0,
        key,
        asked.harness,
        asked.tool,
        asked.folder,
        asked.sub_agent,
        asked.call_id,
        asked.mode,
        asked.input,
        &asked.action_digest.0[..],
        words,
        Json(asked.options) as _,
        asked.takes.message,
        view.kind.as_str(),
        view.title(),
        i32::try_from(view.findings.len()).unwrap_or(i32::MAX),
        view.checked,
        asked.after_seq,
        asked.native_deadline_ms.and_then(|ms| u32::try_from(ms).ok()).map(f64::from),
        store.new_id(),
        Reply::of(view.kind, asked.input, asked.takes.answers).as_str(),
        asked.takes.edit,
        Json(grants) as _,
        sub_agent_title,
    )
    .fetch_one(&mut *tx)
    .await?;
    if !stored.paused {
        // The run ended between the look and the insert: nothing is kept.
        return Ok(Paused::Refused { why: "The run is over." });
    }
    tx.commit().await?;
    store.changes().bump(&[Topic::Approvals, Topic::Sessions]);
    Ok(Paused::Stored { approval: ApprovalId(id), remaining_ms: stored.left_ms })
}

/// The native request is gone: the approval, if still pending, becomes cancelled with
/// the reason; a decision that was not sent cannot be applied any more.
pub async fn withdraw(
    store: &Store,
    worker: WorkerId,
    request_key: &RequestKey,
    reason: &str,
    execution_gone: bool,
) -> Result<()> {
    let mut tx = store.pool().begin().await?;
    let reason = if execution_gone { format!("Execution gone. {reason}") } else { reason.to_owned() };
    let row = sqlx::query!(
        "select id, run_id, status from approvals where worker_id = $1 and request_key = $2 for update",
        worker.0,
        request_key.to_string(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    // Not stored: nothing was shown, nothing is to withdraw.
    let Some(row) = row else { return Ok(()) };
    if row.status == "pending" {
        sqlx::query!(
            "update approvals set status = 'cancelled', closed_reason = $2, closed_at = app_now() where id = $1",
            row.id,
            reason,
        )
        .execute(&mut *tx)
        .await?;
        close_one(&mut tx, row.run_id).await?;
        audit::add(&mut tx, store, None, "approval", row.id, "was withdrawn", Some(&reason)).await?;
    } else if row.status == "cancelled" && execution_gone {
        // The run's end came first; this says why.
        sqlx::query!("update approvals set closed_reason = $2 where id = $1", row.id, reason)
            .execute(&mut *tx)
            .await?;
    }
    let unsent = sqlx::query!(
        "update decisions set delivery = 'not_applied', note = $2 where approval_id = $1 and delivery = 'queued'",
        row.id,
        reason,
    )
    .execute(&mut *tx)
    .await?;
    if unsent.rows_affected() > 0 {
        go_on(&mut tx, row.run_id).await?;
    }
    tx.commit().await?;
    store.changes().bump(&[Topic::Approvals, Topic::Sessions]);
    Ok(())
}

/// A run of which nothing is open and nothing waits for *Continue Run* is not paused.
async fn go_on(tx: &mut PgConnection, run: Uuid) -> Result<()> {
    sqlx::query!(
        "update runs r set status = 'running' where r.id = $1 and r.status = 'paused'
           and r.open_approvals = 0 and not exists (
             select from decisions d join approvals p on p.id = d.approval_id
             where p.run_id = r.id and d.delivery = 'queued' and d.continued_at is null)",
        run
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Locks the approvals of runs that are open, or decided and not sent: before the runs
/// themselves, as everywhere.
pub(crate) async fn lock_of_runs(tx: &mut PgConnection, runs: &[Uuid]) -> Result<()> {
    sqlx::query!(
        "select p.id from approvals p where p.run_id = any($1) and (p.status = 'pending' or exists (
             select from decisions d where d.approval_id = p.id and d.delivery = 'queued'))
         order by p.id for update of p",
        runs
    )
    .fetch_all(tx)
    .await?;
    Ok(())
}

/// One approval of the run is no longer pending: with the last one the run goes on,
/// unless decisions wait for *Continue Run*.
pub(crate) async fn close_one(tx: &mut PgConnection, run: Uuid) -> Result<()> {
    sqlx::query!(
        "update runs r set open_approvals = r.open_approvals - 1,
             status = case when r.open_approvals = 1 and not exists (
                 select from decisions d join approvals p on p.id = d.approval_id
                 where p.run_id = r.id and d.delivery = 'queued' and d.continued_at is null)
               then 'running' else r.status end
         where r.id = $1 and r.status = 'paused' and r.open_approvals > 0",
        run
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// A person's decision as it comes in.
#[derive(Debug)]
pub struct Resolve {
    pub approval: ApprovalId,
    /// The action that was shown.
    pub action_digest: ActionDigest,
    pub given: Given,
}

/// Stores a decision: one statement sets the approval, writes decision and audit, and
/// lets the run go on. Exactly one wins; everyone else learns who decided what.
pub async fn resolve(store: &Store, caller: &Caller, asked: Resolve) -> Result<DecisionId> {
    let found = sqlx::query!(
        r#"select p.options as "options: Json<Vec<AskOption>>", p.action_digest, p.reply, p.takes_edit,
                  p.grants as "grants: Json<Vec<Grant>>",
                  case when $4 or p.reply = 'answers' then p.input end as "input?"
           from approvals p join sessions s on s.id = p.session_id
           where p.id = $1 and (not s.private or s.owner_id = $2 or $3)"#,
        asked.approval.0,
        caller.id.0,
        sees_all(caller),
        !asked.given.edit.is_empty(),
    )
    .fetch_optional(store.pool())
    .await?
    .ok_or_else(|| Failure::not_found("request"))?;
    if found.action_digest != asked.action_digest.0 {
        return Err(Failure::Conflict {
            who: None,
            what: "The request is not the one that was shown. Read it again before deciding.".into(),
        }
        .into());
    }
    let given = &asked.given;
    let answer = approval::answer(
        approval::Asked {
            reply: word(&found.reply, "reply", asked.approval.0)?,
            options: &found.options.0,
            grants: &found.grants.0,
            takes_edit: found.takes_edit,
            input: found.input.as_deref().unwrap_or_default(),
        },
        given,
    )?;
    let decision = DecisionId(store.new_id());
    let digest = AnswerDigest::of(asked.approval, decision, asked.action_digest, &answer);
    let status = ApprovalStatus::from(given.outcome);
    let what = match (given.outcome, given.stop, &answer) {
        (Outcome::Approve, _, Answer { edited_input: Some(_), .. }) => "changed and approved it",
        (Outcome::Approve, _, Answer { content: Some(_), .. }) => "answered it",
        (Outcome::Approve, _, a) if !a.grants.is_empty() => {
            "approved it and the like until the agent's process ends"
        }
        (Outcome::Approve, ..) => "approved it",
        (_, false, _) => "rejected it",
        (_, true, _) => "rejected it and stopped the run",
    };
    let won = sqlx::query!(
        r#"with won as (
               update approvals p set status = $2, closed_at = app_now()
               from sessions s join agents a on a.id = s.agent_id
               where p.id = $1 and s.id = p.session_id and p.status = 'pending' and p.expires_at > app_now()
                 and p.action_digest = $3
               returning p.id, p.run_id, a.waits_for_continue),
           decided as (
               insert into decisions (id, approval_id, outcome, option_id, message, stop, action_digest,
                   answer_digest, decided_by, edited_input, content, grants, continued_at)
               select $4, won.id, $5, $6, $7, $8, $3, $9, $10, $13, $14, $15,
                   case when won.waits_for_continue and not $8 then null else app_now() end
               from won),
           noted as (
               insert into audit (id, user_id, noun, noun_id, what, words)
               select $11, $10, 'approval', won.id, $12, $7 from won),
           moved as (
               update runs r set open_approvals = r.open_approvals - 1,
                   status = case when r.open_approvals = 1 and not won.waits_for_continue and not exists (
                                     select from decisions d join approvals p on p.id = d.approval_id
                                     where p.run_id = r.id and d.delivery = 'queued' and d.continued_at is null)
                                 then 'running' else r.status end
               from won where r.id = won.run_id and r.status = 'paused' and r.open_approvals > 0
               returning r.id)
           select won.run_id as "run_id!" from won left join moved on true"#,
        asked.approval.0,
        status.as_str(),
        &asked.action_digest.0[..],
        decision.0,
        given.outcome.as_str(),
        answer.option_id,
        answer.message,
        answer.stop,
        &digest.0[..],
        caller.id.0,
        store.new_id(),
        what,
        answer.edited_input,
        answer.content,
        &answer.grants,
    )
    .fetch_optional(store.pool())
    .await?;
    if won.is_none() {
        return Err(who_was_first(store, asked.approval).await?.into());
    }
    store.changes().bump(&[Topic::Approvals, Topic::Sessions, Topic::Outbox]);
    Ok(decision)
}

/// Why an approval cannot be decided any more, and by whom.
async fn who_was_first(store: &Store, id: ApprovalId) -> Result<Failure> {
    let row = sqlx::query!(
        r#"select p.status, p.closed_reason, u.name as "by?"
           from approvals p
           left join decisions d on d.approval_id = p.id and d.delivery <> 'void'
           left join users u on u.id = d.decided_by
           where p.id = $1"#,
        id.0
    )
    .fetch_one(store.pool())
    .await?;
    let status: ApprovalStatus = word(&row.status, "status", id.0)?;
    let what = match (status, &row.by) {
        (ApprovalStatus::Approved, Some(by)) => format!("{by} approved this first."),
        (ApprovalStatus::Rejected, Some(by)) => format!("{by} rejected this first."),
        (ApprovalStatus::Cancelled, _) => {
            format!("This request was cancelled. {}", row.closed_reason.unwrap_or_default())
        }
        (ApprovalStatus::Pending | ApprovalStatus::Expired, _) => {
            "This request has expired. Nobody answered it in time.".to_owned()
        }
        (status, None) => format!("This request is {} already.", status.label().to_lowercase()),
    };
    Ok(Failure::Conflict { who: row.by, what })
}

/// Gives an open approval 15 minutes more.
pub async fn extend(store: &Store, caller: &Caller, id: ApprovalId) -> Result<()> {
    let mut tx = store.pool().begin().await?;
    let extended = sqlx::query!(
        "update approvals p set expires_at = p.expires_at + make_interval(secs => $4)
         from sessions s where p.id = $1 and s.id = p.session_id and p.status = 'pending'
           and p.expires_at > app_now() and (not s.private or s.owner_id = $2 or $3)",
        id.0,
        caller.id.0,
        sees_all(caller),
        f64::from(EXTEND_S),
    )
    .execute(&mut *tx)
    .await?;
    if extended.rows_affected() == 0 {
        // Not found, or not theirs, or over: told apart only for who may see it.
        drop(tx);
        read(store, caller, id).await?;
        return Err(who_was_first(store, id).await?.into());
    }
    audit::add(&mut tx, store, Some(caller.id), "approval", id.0, "gave it 15 minutes more", None).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Approvals, Topic::Sessions]);
    Ok(())
}

/// Expires what is due: each becomes a refusal nobody made (rule 7). Also voids
/// decisions that waited for *Continue Run* beyond the same deadline. Returns how many.
pub async fn expire_due(store: &Store) -> Result<usize> {
    let mut tx = store.pool().begin().await?;
    let due = sqlx::query!(
        r#"select p.id, p.run_id, p.status, p.action_digest, p.options as "options: Json<Vec<AskOption>>",
                  exists (select from approvals e where e.run_id = p.run_id and e.id < p.id
                      and e.status = 'expired' and e.tool = p.tool and e.folder = p.folder
                      and e.input = p.input) as "again!"
           from approvals p
           where (p.status = 'pending' and p.expires_at <= app_now())
              or (p.expires_at <= app_now() and p.status in ('approved', 'rejected') and exists (
                      select from decisions d where d.approval_id = p.id and d.delivery = 'queued'
                        and d.continued_at is null))
           order by p.id limit 100 for update of p skip locked"#
    )
    .fetch_all(&mut *tx)
    .await?;
    for p in &due {
        let digest = ActionDigest::try_from(p.action_digest.as_slice()).map_err(|e| Error::Inconsistent {
            what: "action_digest",
            row: p.id,
            why: e.to_string(),
        })?;
        let id = DecisionId(store.new_id());
        let option = plain_option(&p.options.0, Outcome::Expire)?;
        let answer = Answer {
            option_id: option,
            message: Some(NOBODY_ANSWERED.to_owned()),
            // An agent that asks the same again after every time-out would never end.
            stop: p.again,
            ..Answer::plain(Outcome::Expire)
        };
        let answer_digest = AnswerDigest::of(ApprovalId(p.id), id, digest, &answer);
        let voided = sqlx::query!(
            "update decisions set delivery = 'void', note = 'Nobody continued the run in time.'
             where approval_id = $1 and delivery = 'queued' and continued_at is null",
            p.id
        )
        .execute(&mut *tx)
        .await?;
        if p.status != "pending" && voided.rows_affected() == 0 {
            // Somebody continued the run between the look and this.
            continue;
        }
        sqlx::query!("update approvals set status = 'expired', closed_at = app_now() where id = $1", p.id)
            .execute(&mut *tx)
            .await?;
        sqlx::query!(
            "insert into decisions (id, approval_id, outcome, option_id, message, stop, action_digest,
                 answer_digest, continued_at)
             values ($1, $2, 'expire', $3, $4, $5, $6, $7, app_now())",
            id.0,
            p.id,
            answer.option_id,
            answer.message,
            answer.stop,
            &p.action_digest[..],
            &answer_digest.0[..],
        )
        .execute(&mut *tx)
        .await?;
        if p.status == "pending" {
            close_one(&mut tx, p.run_id).await?;
        } else {
            go_on(&mut tx, p.run_id).await?;
        }
        let what = match (voided.rows_affected() > 0, answer.stop) {
            (true, _) => "expired: decided, but nobody continued the run in time",
            (false, false) => "expired: nobody answered in time",
            (false, true) => "expired: nobody answered in time, for the second time. The run is stopped",
        };
        audit::add(&mut tx, store, None, "approval", p.id, what, None).await?;
    }
    tx.commit().await?;
    if !due.is_empty() {
        store.changes().bump(&[Topic::Approvals, Topic::Sessions, Topic::Outbox]);
    }
    Ok(due.len())
}

/// Milliseconds until the next approval expires, if one is pending: for the timer.
pub async fn next_expiry_ms(store: &Store) -> Result<Option<i64>> {
    Ok(sqlx::query_scalar!(
        "select (extract(epoch from min(expires_at) - app_now()) * 1000)::bigint from approvals
         where status = 'pending'"
    )
    .fetch_one(store.pool())
    .await?)
}

/// A timestamp helper for tests and pages that need the database's clock.
pub async fn clock(store: &Store) -> Result<Timestamp> {
    let now: DateTime<Utc> =
        sqlx::query_scalar!(r#"select app_now() as "now!""#).fetch_one(store.pool()).await?;
    Ok(now.into())
}
