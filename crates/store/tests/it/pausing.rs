//! Pause, decide, deliver, end.

use domain::{
    decision::{Delivery, Outcome},
    event::EventBody,
    run::RunStatus,
    user::Role,
};
use store::{approval::Paused, event::Stored};

use crate::place::{Place, conflict, said};

#[tokio::test]
async fn pause_and_approval_are_written_together() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    assert_eq!(p.status(run).await, "paused");
    assert_eq!(p.approval_status(id).await, "pending");
    // The run's row refuses the pause: then the approval is not there either.
    sqlx::query("update runs set status = 'completed' where id = $1")
        .bind(run.0)
        .execute(p.store.pool())
        .await
        .expect("ended");
    assert_eq!(p.ask(session, run, "2", b"{}").await, Paused::Refused { why: "The run is over." });
    assert_eq!(p.count("select count(*) from approvals").await, 1);
}

#[tokio::test]
async fn a_request_sent_three_times_is_one_card_and_a_new_id_is_another() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    assert_eq!(p.pending(session, run, "1").await, id);
    assert_eq!(p.pending(session, run, "1").await, id);
    assert_ne!(p.pending(session, run, "2").await, id);
    assert_eq!(p.count("select count(*) from approvals").await, 2);
    assert_eq!(p.count("select open_approvals::bigint from runs").await, 2);
}

#[tokio::test]
async fn the_same_id_with_another_action_is_refused() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    p.pending(session, run, "1").await;
    let swapped = p.ask(session, run, "1", br#"{"path":"/w/a","content":"other"}"#).await;
    assert!(matches!(swapped, Paused::Refused { .. }), "{swapped:?}");
}

#[tokio::test]
async fn an_old_epoch_writes_nothing() {
    let mut p = Place::new().await;
    let (session, run) = p.running().await;
    let old = p.epoch;
    crate::place::relink(&p.store, p.worker, uuid::Uuid::nil()).await.expect("a newer link");
    p.epoch = old;
    assert_eq!(p.ask(session, run, "1", b"{}").await, Paused::Fenced);
    assert_eq!(p.events(session, &[(1, run, said("late"))]).await, Stored::Fenced);
    assert_eq!(p.count("select count(*) from approvals").await, 0);
    assert_eq!(p.count("select count(*) from run_events").await, 0);
}

#[tokio::test]
async fn the_last_decision_continues_the_run() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let (a, b) = (p.pending(session, run, "1").await, p.pending(session, run, "2").await);
    p.resolve(&p.admin, b, Outcome::Reject).await.expect("rejected");
    assert_eq!(p.status(run).await, "paused");
    p.resolve(&p.admin, a, Outcome::Approve).await.expect("approved");
    assert_eq!(p.status(run).await, "running");
    let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    let mut outcomes: Vec<_> = due.iter().map(|d| (d.approval, d.answer.option_id.clone())).collect();
    outcomes.sort();
    let mut expected = vec![(a, Some("yes".to_owned())), (b, Some("no".to_owned()))];
    expected.sort();
    assert_eq!(outcomes, expected);
    let under_way: Vec<_> = due.iter().map(|d| d.decision).collect();
    assert!(
        store::decision::take_due(&p.store, p.worker, p.epoch, &under_way).await.expect("due").is_empty()
    );
}

#[tokio::test]
async fn a_broken_link_sends_again_what_was_not_settled() {
    let mut p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
    let first = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    p.epoch = crate::place::relink(&p.store, p.worker, uuid::Uuid::nil()).await.expect("linked");
    let again = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    assert_eq!(first[0].decision, again[0].decision);
    assert_eq!(first[0].answer_digest, again[0].answer_digest);
    store::decision::settled(&p.store, p.worker, again[0].decision, Delivery::Applied, None)
        .await
        .expect("ok");
    p.epoch = crate::place::relink(&p.store, p.worker, uuid::Uuid::nil()).await.expect("linked");
    assert!(store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due").is_empty());
}

#[tokio::test]
async fn a_run_that_ends_after_a_relink_does_not_deny_what_was_sent_before_it() {
    let mut p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
    store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    // The worker applied it, the agent went on to its end, and none of that was heard.
    p.epoch = crate::place::relink(&p.store, p.worker, uuid::Uuid::nil()).await.expect("linked");
    assert_eq!(p.delivery(id).await, "queued");
    let ended = EventBody::Ended { status: RunStatus::Completed, detail: None };
    p.events(session, &[(1, run, ended)]).await;
    assert_eq!(p.delivery(id).await, "queued");
    store::decision::effect(&p.store, p.worker, &p.key("1"), Delivery::Effect, "It ran.")
        .await
        .expect("seen");
    assert_eq!(p.delivery(id).await, "effect");
}

#[tokio::test]
async fn a_cancel_after_a_relink_does_not_void_what_was_sent_before_it() {
    let mut p = Place::new().await;
    let (session, run) = p.running().await;
    let (sent, held) = (p.pending(session, run, "1").await, p.pending(session, run, "2").await);
    p.resolve(&p.admin, sent, Outcome::Approve).await.expect("approved");
    store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    p.epoch = crate::place::relink(&p.store, p.worker, uuid::Uuid::nil()).await.expect("linked");
    p.resolve(&p.admin, held, Outcome::Approve).await.expect("approved");
    store::run::cancel(&p.store, &p.admin, run).await.expect("cancelled");
    // One was never sent; of the other the worker says what became of it.
    assert_eq!(p.delivery(sent).await, "queued");
    assert_eq!(p.one("select delivery from decisions where approval_id = $1", held.0).await, "void");
    assert_eq!(store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due").len(), 1);
}

#[tokio::test]
async fn continue_run_is_a_step_of_its_own_where_the_agent_waits_for_it() {
    let p = Place::new().await;
    p.edit_agent(|a| a.waits_for_continue = true).await;
    let (session, run) = p.running().await;
    let (a, b) = (p.pending(session, run, "1").await, p.pending(session, run, "2").await);
    p.resolve(&p.admin, a, Outcome::Approve).await.expect("approved");
    let early = store::run::continue_run(&p.store, &p.admin, run).await.map(drop);
    assert_eq!(conflict(early).1, "Decide the 1 open request first.");
    p.resolve(&p.admin, b, Outcome::Reject).await.expect("rejected");
    assert_eq!(p.status(run).await, "paused");
    assert!(store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due").is_empty());
    store::run::continue_run(&p.store, &p.admin, run).await.expect("continued");
    assert_eq!(p.status(run).await, "running");
    assert_eq!(store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due").len(), 2);
    let twice = store::run::continue_run(&p.store, &p.admin, run).await.map(drop);
    assert_eq!(conflict(twice).1, "Nothing waits for Continue run.");
}

#[tokio::test]
async fn a_time_out_is_nobodys_refusal() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    assert_eq!(store::approval::expire_due(&p.store).await.expect("looked"), 0);
    p.later(901).await;
    // Judged by the database clock before the sweep has come by.
    let late = p.resolve(&p.admin, id, Outcome::Approve).await;
    assert_eq!(conflict(late), (None, "This request has expired. Nobody answered it in time.".into()));
    assert_eq!(store::approval::expire_due(&p.store).await.expect("expired"), 1);
    assert_eq!(p.approval_status(id).await, "expired");
    assert_eq!(p.status(run).await, "running");
    assert_eq!(p.count("select count(*) from decisions where decided_by is not null").await, 0);
    let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    assert_eq!(due[0].answer.message.as_deref(), Some(domain::decision::NOBODY_ANSWERED));
    assert_eq!(store::approval::expire_due(&p.store).await.expect("looked"), 0);
}

#[tokio::test]
async fn a_decision_nobody_continued_is_void_and_the_harness_is_refused() {
    let p = Place::new().await;
    p.edit_agent(|a| a.waits_for_continue = true).await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
    p.later(901).await;
    assert_eq!(store::approval::expire_due(&p.store).await.expect("expired"), 1);
    assert_eq!(p.approval_status(id).await, "expired");
    assert_eq!(p.status(run).await, "running");
    let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].answer.outcome, Outcome::Expire);
    assert_eq!(p.count("select count(*) from decisions where delivery = 'void'").await, 1);
}

#[tokio::test]
async fn cancelling_closes_run_approvals_and_unsent_decisions() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let (sent, unsent, open) = (
        p.pending(session, run, "1").await,
        p.pending(session, run, "2").await,
        p.pending(session, run, "3").await,
    );
    p.resolve(&p.admin, sent, Outcome::Approve).await.expect("approved");
    let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    p.resolve(&p.admin, unsent, Outcome::Approve).await.expect("approved");
    store::run::cancel(&p.store, &p.admin, run).await.expect("cancelled");
    assert_eq!(p.status(run).await, "cancelled");
    assert_eq!(p.approval_status(open).await, "cancelled");
    assert_eq!(p.approval_status(sent).await, "approved");
    assert_eq!(p.delivery(sent).await, "sent");
    assert_eq!(p.count("select count(*) from decisions where delivery = 'void'").await, 1);
    let under_way = [due[0].decision];
    assert!(
        store::decision::take_due(&p.store, p.worker, p.epoch, &under_way).await.expect("due").is_empty()
    );
    // What was already sent keeps its truthful result.
    store::decision::settled(&p.store, p.worker, due[0].decision, Delivery::Applied, None).await.expect("ok");
    assert_eq!(p.delivery(sent).await, "applied");
    // Until the worker confirms, the stop is not.
    let unconfirmed = store::run::due_cancels(&p.store, p.worker).await.expect("cancels");
    assert_eq!(unconfirmed, [(run, session)]);
    let late = p.resolve(&p.admin, open, Outcome::Approve).await;
    assert_eq!(conflict(late).1, "This request was cancelled. The run was cancelled.");
    let asked_after = p.ask(session, run, "4", b"{}").await;
    assert!(matches!(asked_after, Paused::Refused { .. }));
}

#[tokio::test]
async fn a_withdrawn_request_cannot_be_decided() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    store::approval::withdraw(&p.store, p.worker, &p.key("1"), "The process ended.", true).await.expect("ok");
    assert_eq!(p.approval_status(id).await, "cancelled");
    assert_eq!(p.status(run).await, "running");
    let late = p.resolve(&p.admin, id, Outcome::Approve).await;
    assert_eq!(conflict(late).1, "This request was cancelled. Execution gone. The process ended.");
}

#[tokio::test]
async fn a_decision_keeps_its_outcome_when_the_execution_is_gone() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
    store::approval::withdraw(&p.store, p.worker, &p.key("1"), "The process ended.", true).await.expect("ok");
    assert_eq!(p.approval_status(id).await, "approved");
    assert_eq!(p.delivery(id).await, "not_applied");
    // A new execution asks the same: a new approval, no decision carried over.
    let key = p.key("9");
    assert_ne!(Place::digest(&key, b"{}"), Place::digest(&p.key("1"), b"{}"));
}

#[tokio::test]
async fn an_effect_closes_the_receipt_even_if_it_overtakes_the_answer() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
    let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
    store::decision::effect(&p.store, p.worker, &p.key("1"), Delivery::Effect, "It ran.").await.expect("ok");
    store::decision::settled(&p.store, p.worker, due[0].decision, Delivery::Applied, None).await.expect("ok");
    assert_eq!(p.delivery(id).await, "effect");
    let receipt =
        store::approval::read(&p.store, &p.admin, id).await.expect("read").receipt.expect("a receipt");
    assert!(receipt.applied_at.is_some() && receipt.effect_at.is_some());
}

#[tokio::test]
async fn events_are_stored_once_and_in_order() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    assert_eq!(p.events(session, &[(1, run, said("a")), (2, run, said("b"))]).await, Stored::UpTo(2));
    assert_eq!(p.events(session, &[(2, run, said("again")), (4, run, said("gap"))]).await, Stored::UpTo(2));
    assert_eq!(p.events(session, &[(3, run, said("c"))]).await, Stored::UpTo(3));
    assert_eq!(p.count("select count(*) from run_events").await, 3);
    let ended = EventBody::Ended { status: RunStatus::Completed, detail: None };
    assert_eq!(p.events(session, &[(4, run, ended)]).await, Stored::UpTo(4));
    assert_eq!(p.status(run).await, "completed");
}

#[tokio::test]
async fn runs_of_a_session_the_worker_forgot_end_with_the_reason() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    store::worker::reconcile(&p.store, p.worker, &[]).await.expect("reconciled");
    assert_eq!(p.status(run).await, "error");
    assert_eq!(p.approval_status(id).await, "cancelled");
}

#[tokio::test]
async fn a_viewer_reads_and_decides_nothing() {
    let p = Place::new().await;
    let viewer = p.person("Vic", Role::Viewer).await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    let seen = store::approval::read(&p.store, &viewer, id).await.expect("read");
    assert!(!seen.may_decide);
    let detail = store::session::read(&p.store, &viewer, session, None).await.expect("read");
    assert!(!detail.may_prompt);
    assert_eq!(detail.turns[0].run.id, run);
}
