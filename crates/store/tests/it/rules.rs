//! The rules of deciding where two transactions meet: made certain by a lock a test holds
//! until both wait for it.

use std::time::{Duration, Instant};

use domain::{
    approval::ApprovalStatus,
    decision::{Delivery, Outcome},
    event::EventBody,
    failure::Failure,
    id::RunId,
    run::RunStatus,
};
use sqlx::{Postgres, Transaction};
use store::{
    approval::Paused,
    worker::{Announced, Known},
};
use uuid::Uuid;

use crate::place::{Place, conflict, relink};

/// A run's row, held.
async fn hold(p: &Place, run: RunId) -> Transaction<'static, Postgres> {
    let mut held = p.store.pool().begin().await.expect("a transaction");
    sqlx::query("select id from runs where id = $1 for update")
        .bind(run.0)
        .execute(&mut *held)
        .await
        .expect("a lock");
    held
}

/// Until so many transactions wait for a lock.
async fn until_waiting(p: &Place, many: i64) {
    let began = Instant::now();
    let waiting = "select count(*) from pg_stat_activity
                   where datname = current_database() and wait_event_type = 'Lock'";
    while p.count(waiting).await < many {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody waits");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn status(p: &Place, run: RunId) -> (String, i64) {
    (p.status(run).await, p.count("select count(*) from approvals where status = 'pending'").await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_stored_while_its_run_ends_does_not_stay_open() {
    let p = Place::new().await;
    // Of the two that wait for the run, either may get it first. Where it is the end, the
    // request is refused; it is stored in some of the tries.
    for _ in 0..50 {
        let (session, run) = p.running().await;
        let held = hold(&p, run).await;
        let pausing = p.ask(session, run, "1", b"{}");
        let ending = async {
            // The end comes second, and does not see the request yet.
            until_waiting(&p, 1).await;
            let ended = EventBody::Ended { status: RunStatus::Completed, detail: None };
            p.events(session, &[(1, run, ended)]).await
        };
        let releasing = async {
            until_waiting(&p, 2).await;
            held.commit().await.expect("released");
        };
        let (paused, _, ()) = tokio::join!(pausing, ending, releasing);
        let over = ("completed".to_owned(), 0);
        assert_eq!(status(&p, run).await, over, "a run that is over has no open request");
        if matches!(paused, Paused::Stored { .. }) {
            return;
        }
    }
    panic!("the request never came before the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_stored_while_its_run_is_cancelled_does_not_stay_open() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let held = hold(&p, run).await;
    let pausing = p.ask(session, run, "1", b"{}");
    let cancelling = async {
        until_waiting(&p, 1).await;
        store::run::cancel(&p.store, &p.admin, run).await
    };
    let releasing = async {
        until_waiting(&p, 2).await;
        held.commit().await.expect("released");
    };
    let (_, cancelled, ()) = tokio::join!(pausing, cancelling, releasing);
    cancelled.expect("cancelled");
    assert_eq!(status(&p, run).await, ("cancelled".to_owned(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_an_old_link_under_way_at_hello_does_not_outlive_it_unseen() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let held = hold(&p, run).await;
    // The old link stores it; the worker has given it up, and says so on a newer link.
    let pausing = p.ask(session, run, "1", b"{}");
    let linking = async {
        until_waiting(&p, 1).await;
        relink(&p.store, p.worker, Uuid::nil()).await.expect("linked");
        let announced = [Announced { session, pending: Vec::new() }];
        let known: Vec<Known> =
            store::worker::reconcile(&p.store, p.worker, &announced).await.expect("known");
        assert!(known[0].ours);
    };
    let releasing = async {
        // The hello waits for what is under way.
        until_waiting(&p, 2).await;
        held.commit().await.expect("released");
    };
    tokio::join!(pausing, linking, releasing);
    assert_eq!(p.count("select count(*) from approvals where status = 'cancelled'").await, 1);
    assert_eq!(status(&p, run).await, ("running".to_owned(), 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_continue_and_the_deadline_at_once_end_in_one_answer() {
    for round in 0..8 {
        let p = Place::new().await;
        p.edit_agent(|a| a.waits_for_continue = true).await;
        let (session, run) = p.running().await;
        let id = p.pending(session, run, "1").await;
        p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
        sqlx::query("update approvals set expires_at = app_now()")
            .execute(p.store.pool())
            .await
            .expect("due");
        let (continued, expired) = tokio::join!(
            store::run::continue_run(&p.store, &p.admin, run),
            store::approval::expire_due(&p.store),
        );
        let expired = expired.expect("looked");
        let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
        assert_eq!(due.len(), 1, "round {round}");
        if continued.is_ok() {
            assert_eq!(due[0].answer.outcome, Outcome::Approve, "round {round}");
            assert_eq!(p.approval_status(id).await, "approved", "round {round}");
        } else {
            assert_eq!((due[0].answer.outcome, expired), (Outcome::Expire, 1), "round {round}");
            assert_eq!(p.approval_status(id).await, "expired", "round {round}");
        }
        assert_eq!(p.status(run).await, "running", "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_that_look_for_what_is_due_refuse_it_once() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    for n in 0..12 {
        p.pending(session, run, &n.to_string()).await;
    }
    sqlx::query("update approvals set expires_at = app_now()").execute(p.store.pool()).await.expect("due");
    let looks = (0..6).map(|_| store::approval::expire_due(&p.store));
    let expired: usize =
        futures::future::join_all(looks).await.into_iter().map(|found| found.expect("looked")).sum();
    // Who skips what another holds leaves it to that one, or to the next look.
    let rest = store::approval::expire_due(&p.store).await.expect("looked");
    assert_eq!(expired + rest, 12);
    assert_eq!(p.count("select count(*) from decisions where outcome = 'expire'").await, 12);
    assert_eq!(p.count("select count(*) from decisions").await, 12);
    assert_eq!(status(&p, run).await, ("running".to_owned(), 0));
}

#[tokio::test]
async fn an_extension_at_the_deadline_is_refused_by_the_clock_of_the_database() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    store::approval::extend(&p.store, &p.admin, id).await.expect("extended");
    p.later(1_799).await;
    store::approval::extend(&p.store, &p.admin, id).await.expect("in time");
    p.later(2_701).await;
    let late = store::approval::extend(&p.store, &p.admin, id).await;
    assert_eq!(conflict(late).1, "This request has expired. Nobody answered it in time.");
}

#[tokio::test]
async fn the_database_itself_holds_one_counting_decision_for_each_request() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    p.resolve(&p.admin, id, Outcome::Reject).await.expect("rejected");
    let forged = sqlx::query(
        "insert into decisions (id, approval_id, outcome, action_digest, answer_digest)
         select gen_random_uuid(), approval_id, 'approve', action_digest, answer_digest from decisions",
    )
    .execute(p.store.pool())
    .await;
    let error = store::Error::from(forged.expect_err("refused"));
    assert_eq!(error.constraint(), Some("decisions_one_counts"));
}

#[tokio::test]
async fn a_decision_under_way_is_taken_again_only_where_it_is_not_under_way() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
    let take = async |under_way: &[domain::id::DecisionId]| {
        store::decision::take_due(&p.store, p.worker, p.epoch, under_way).await.expect("due")
    };
    let first = take(&[]).await.remove(0);
    assert!(take(&[first.decision]).await.is_empty());
    let again = take(&[]).await.remove(0);
    assert_eq!((again.decision, again.answer_digest), (first.decision, first.answer_digest));
    store::decision::settled(&p.store, p.worker, first.decision, Delivery::Applied, None).await.expect("ok");
    assert!(take(&[]).await.is_empty());
}

#[tokio::test]
async fn a_decision_sent_once_is_never_called_void_or_not_applied_by_us() {
    // Sent, put back by a newer link, and the run cancelled or forgotten before it goes again.
    for forgotten in [false, true] {
        let mut p = Place::new().await;
        let (session, run) = p.running().await;
        let id = p.pending(session, run, "1").await;
        p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
        store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
        p.epoch = relink(&p.store, p.worker, Uuid::nil()).await.expect("linked");
        if forgotten {
            store::worker::reconcile(&p.store, p.worker, &[]).await.expect("reconciled");
            assert_eq!(p.delivery(id).await, "outcome_unknown");
        } else {
            store::run::cancel(&p.store, &p.admin, run).await.expect("cancelled");
            assert_ne!(p.delivery(id).await, "void");
            store::decision::effect(&p.store, p.worker, &p.key("1"), Delivery::Effect, "It ran.")
                .await
                .expect("ok");
            assert_eq!(p.delivery(id).await, "effect");
        }
    }
}

#[tokio::test]
async fn no_final_state_is_left_by_any_report_of_the_worker() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    p.resolve(&p.admin, id, Outcome::Reject).await.expect("rejected");
    let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due").remove(0);
    store::decision::settled(&p.store, p.worker, due.decision, Delivery::NotApplied, Some("Gone."))
        .await
        .expect("ok");
    for next in Delivery::ALL {
        store::decision::settled(&p.store, p.worker, due.decision, *next, None).await.expect("ok");
        store::decision::effect(&p.store, p.worker, &p.key("1"), *next, "x").await.expect("ok");
        assert_eq!(p.delivery(id).await, "not_applied", "{next}");
    }
    store::approval::withdraw(&p.store, p.worker, &p.key("1"), "Gone.", true).await.expect("ok");
    let detail = store::approval::read(&p.store, &p.admin, id).await.expect("it");
    assert_eq!(detail.row.status, ApprovalStatus::Rejected);
    assert_eq!(detail.receipt.expect("a receipt").by.as_deref(), Some("Ana"));
}

#[tokio::test]
async fn another_worker_moves_nothing_that_is_not_its_own() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    let stranger = store::worker::create(&p.store, &p.admin, "stranger").await.expect("a worker");
    let epoch = relink(&p.store, stranger, Uuid::now_v7()).await.expect("linked");
    store::approval::withdraw(&p.store, stranger, &p.key("1"), "Not mine.", true).await.expect("nothing");
    assert_eq!(p.approval_status(id).await, "pending");
    p.resolve(&p.admin, id, Outcome::Approve).await.expect("approved");
    let taken = store::decision::take_due(&p.store, stranger, epoch, &[]).await.expect("due");
    assert!(taken.is_empty());
    let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due").remove(0);
    let moved = store::decision::settled(&p.store, stranger, due.decision, Delivery::Applied, None).await;
    assert!(!moved.expect("asked"));
    assert!(
        !store::decision::effect(&p.store, stranger, &p.key("1"), Delivery::Effect, "x")
            .await
            .expect("asked")
    );
    assert_eq!(p.delivery(id).await, "sent");
    store::worker::reconcile(&p.store, stranger, &[Announced { session, pending: Vec::new() }])
        .await
        .expect("reconciled");
    assert_eq!(p.status(run).await, "running");
    let refused = store::run::cancel(&p.store, &p.admin, RunId(Uuid::now_v7())).await.map(drop);
    assert_eq!(refused.expect_err("refused").into_failure(), Failure::not_found("run"));
}
