//! Decisions: the outbox to workers, and the receipt.

use std::collections::HashMap;

use domain::{
    action,
    approval::{AskOption, Grant, RequestKey},
    decision::{Answer, Delivery, NOBODY_ANSWERED, Outcome, REJECTED_WITHOUT_WORDS, Receipt},
    digest::{ActionDigest, AnswerDigest},
    id::{ApprovalId, DecisionId, SessionId, WorkerId},
    question,
    time::Timestamp,
};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use crate::{Error, Result, Store, Topic, error::word};

/// The receipts of approvals, by approval.
pub(crate) async fn receipts(tx: &mut PgConnection, approvals: &[Uuid]) -> Result<HashMap<Uuid, Receipt>> {
    let rows = sqlx::query!(
        r#"select d.id, d.approval_id, d.outcome, d.option_id, d.message, u.name as "by?", d.delivery,
                  d.decided_at, d.continued_at, d.sent_at, d.applied_at, d.effect_at, d.note,
                  d.edited_input, d.content, d.grants, p.tool, p.folder,
                  p.grants as "offered: Json<Vec<Grant>>",
                  p.options as "options: Json<Vec<AskOption>>",
                  (extract(epoch from app_now() - greatest(d.continued_at, d.sent_at, d.applied_at)) * 1000)::bigint
                      as waiting_ms
           from decisions d join approvals p on p.id = d.approval_id left join users u on u.id = d.decided_by
           where d.approval_id = any($1)
           order by d.delivery = 'void' desc, d.decided_at"#,
        approvals,
    )
    .fetch_all(tx)
    .await?;
    // The one that counts comes last and wins over a void one.
    let mut all = HashMap::new();
    for r in rows {
        let delivery: Delivery = word(&r.delivery, "delivery", r.id)?;
        let outcome: Outcome = word(&r.outcome, "outcome", r.id)?;
        let own_words = r.message.filter(|m| m != REJECTED_WITHOUT_WORDS && m != NOBODY_ANSWERED);
        all.insert(
            r.approval_id,
            Receipt {
                decision: DecisionId(r.id),
                outcome,
                option_name: r
                    .option_id
                    .and_then(|id| r.options.0.iter().find(|o| o.id == id).map(|o| o.name.clone())),
                message: own_words,
                edited: r.edited_input.map(|input| action::view(&r.tool, &r.folder, input.as_bytes())),
                answers: r.content.as_deref().map(question::answers_in).unwrap_or_default(),
                grants: r
                    .grants
                    .into_iter()
                    .map(|native| {
                        let offered = r.offered.0.iter().find(|g| g.native == native);
                        offered.map_or(native, |g| g.words.clone())
                    })
                    .collect(),
                by: r.by,
                delivery,
                decided_at: r.decided_at.into(),
                continued_at: r.continued_at.map(Timestamp::from),
                sent_at: r.sent_at.map(Timestamp::from),
                applied_at: r.applied_at.map(Timestamp::from),
                effect_at: r.effect_at.map(Timestamp::from),
                note: r.note,
                waiting_ms: r.waiting_ms.filter(|_| !delivery.is_settled()),
            },
        );
    }
    Ok(all)
}

/// A decision to send.
#[derive(Clone, Debug)]
pub struct Due {
    pub session: SessionId,
    pub approval: ApprovalId,
    pub request_key: RequestKey,
    pub decision: DecisionId,
    pub action_digest: ActionDigest,
    pub answer_digest: AnswerDigest,
    pub answer: Answer,
    pub decided_by: Option<String>,
}

/// Takes the decisions that wait for this worker and marks them sent. Those marked before
/// and not `under_way` on this link are taken again: they went over an earlier link, or
/// the answer to their marking was lost. They stay *sent* all the while, since they may
/// have been applied.
pub async fn take_due(
    store: &Store,
    worker: WorkerId,
    epoch: i64,
    under_way: &[DecisionId],
) -> Result<Vec<Due>> {
    let under_way: Vec<Uuid> = under_way.iter().map(|d| d.0).collect();
    let rows = sqlx::query!(
        r#"with due as (
               select d.id from decisions d join approvals p on p.id = d.approval_id
               join workers w on w.id = p.worker_id
               where p.worker_id = $1 and w.epoch = $2 and d.continued_at is not null
                 and (d.delivery = 'queued' or d.delivery = 'sent' and not (d.id = any($3)))
               order by d.id limit 100 for update of d skip locked)
           update decisions d set delivery = 'sent', sent_at = app_now()
           from due, approvals p
           where d.id = due.id and p.id = d.approval_id
           returning d.id, d.approval_id, d.outcome, d.option_id, d.edited_input, d.content,
                     d.grants, d.message, d.stop,
                     d.action_digest, d.answer_digest, p.session_id, p.request_key,
                     (select u.name from users u where u.id = d.decided_by) as decided_by"#,
        worker.0,
        epoch,
        &under_way,
    )
    .fetch_all(store.pool())
    .await?;
    if !rows.is_empty() {
        store.changes().bump(&[Topic::Approvals, Topic::Sessions]);
    }
    rows.into_iter()
        .map(|r| {
            let wrong = |what: &'static str, why: String| Error::Inconsistent { what, row: r.id, why };
            Ok(Due {
                session: SessionId(r.session_id),
                approval: ApprovalId(r.approval_id),
                request_key: word(&r.request_key, "request_key", r.id)?,
                decision: DecisionId(r.id),
                action_digest: r
                    .action_digest
                    .as_slice()
                    .try_into()
                    .map_err(|e: domain::digest::NotADigest| wrong("action_digest", e.to_string()))?,
                answer_digest: r
                    .answer_digest
                    .as_slice()
                    .try_into()
                    .map_err(|e: domain::digest::NotADigest| wrong("answer_digest", e.to_string()))?,
                answer: Answer {
                    outcome: word(&r.outcome, "outcome", r.id)?,
                    option_id: r.option_id,
                    edited_input: r.edited_input,
                    content: r.content,
                    grants: r.grants,
                    message: r.message,
                    stop: r.stop,
                },
                decided_by: r.decided_by,
            })
        })
        .collect()
}

/// Puts a decision back that the worker could not take. That it was sent once stays
/// known.
pub async fn unsend(store: &Store, decision: DecisionId) -> Result<()> {
    sqlx::query!("update decisions set delivery = 'queued' where id = $1 and delivery = 'sent'", decision.0)
        .execute(store.pool())
        .await?;
    Ok(())
}

/// Moves a decision on, as [`Delivery::may_become`] allows; anything else is dropped.
/// An approval that was stopped by its answer ends nothing here: the run's end follows
/// as an event.
async fn advance(
    store: &Store,
    worker: WorkerId,
    which: Which<'_>,
    next: Delivery,
    note: Option<&str>,
) -> Result<bool> {
    let from: Vec<String> =
        Delivery::ALL.iter().filter(|d| d.may_become(next)).map(ToString::to_string).collect();
    let (decision, key) = match which {
        Which::Decision(id) => (Some(id.0), None),
        Which::Request(key) => (None, Some(key.to_string())),
    };
    let moved = sqlx::query!(
        "update decisions d set delivery = $4, note = coalesce($5, d.note),
             sent_at = coalesce(d.sent_at, app_now()),
             applied_at = case when $4 in ('applied', 'effect') then coalesce(d.applied_at, app_now())
                               else d.applied_at end,
             effect_at = case when $4 = 'effect' then app_now() else d.effect_at end
         from approvals p
         where p.id = d.approval_id and p.worker_id = $1 and (d.id = $2 or p.request_key = $3)
           and d.delivery = any($6)",
        worker.0,
        decision,
        key,
        next.as_str(),
        note,
        &from,
    )
    .execute(store.pool())
    .await?;
    if moved.rows_affected() > 0 {
        store.changes().bump(&[Topic::Approvals, Topic::Sessions]);
    }
    Ok(moved.rows_affected() > 0)
}

#[derive(Clone, Copy)]
enum Which<'a> {
    Decision(DecisionId),
    Request(&'a RequestKey),
}

/// The worker's answer to a decision.
pub async fn settled(
    store: &Store,
    worker: WorkerId,
    decision: DecisionId,
    next: Delivery,
    note: Option<&str>,
) -> Result<bool> {
    advance(store, worker, Which::Decision(decision), next, note).await
}

/// What the harness showed after an answer, or that it cannot be known. An effect
/// without an applied decision raises an alarm on the run (see the gateway).
pub async fn effect(
    store: &Store,
    worker: WorkerId,
    request_key: &RequestKey,
    next: Delivery,
    note: &str,
) -> Result<bool> {
    advance(store, worker, Which::Request(request_key), next, Some(note)).await
}
