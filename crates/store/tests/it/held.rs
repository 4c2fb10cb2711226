//! Decisions that are held for *Continue Run*, and workers that speak of what is not theirs.

use domain::{decision::Outcome, event::EventBody, run::RunStatus};
use uuid::Uuid;

use crate::place::{Place, relink, said};

#[tokio::test]
async fn a_request_taken_back_while_its_decision_is_held_lets_the_run_go_on() {
    let p = Place::new().await;
    p.edit_agent(|a| a.waits_for_continue = true).await;
    let (session, run) = p.running().await;
    let (a, b) = (p.pending(session, run, "1").await, p.pending(session, run, "2").await);
    p.resolve(&p.admin, a, Outcome::Approve).await.expect("approved");
    p.resolve(&p.admin, b, Outcome::Approve).await.expect("approved");
    let taken_back = |native: &'static str| {
        let key = p.key(native);
        let store = p.store.clone();
        let worker = p.worker;
        async move { store::approval::withdraw(&store, worker, &key, "Taken back.", false).await }
    };
    taken_back("1").await.expect("withdrawn");
    assert_eq!(p.status(run).await, "paused", "the other decision is held still");
    taken_back("2").await.expect("withdrawn");
    assert_eq!(p.status(run).await, "running");
    assert_eq!((p.delivery(a).await, p.delivery(b).await), ("not_applied".into(), "not_applied".into()));
}

#[tokio::test]
async fn a_run_with_a_held_decision_stays_paused_when_the_agent_waits_no_more() {
    let p = Place::new().await;
    p.edit_agent(|a| a.waits_for_continue = true).await;
    let (session, run) = p.running().await;
    let (a, b) = (p.pending(session, run, "1").await, p.pending(session, run, "2").await);
    p.resolve(&p.admin, a, Outcome::Approve).await.expect("approved");
    p.edit_agent(|agent| agent.waits_for_continue = false).await;
    p.resolve(&p.admin, b, Outcome::Approve).await.expect("approved");
    assert_eq!(p.status(run).await, "paused");
    store::run::continue_run(&p.store, &p.admin, run).await.expect("continued");
    assert_eq!(p.status(run).await, "running");
}

#[tokio::test]
async fn an_agent_that_asks_the_same_again_after_a_time_out_is_stopped_at_the_second() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let expire = async |native: &str, later: i64| {
        p.pending(session, run, native).await;
        p.later(later).await;
        assert_eq!(store::approval::expire_due(&p.store).await.expect("expired"), 1);
        let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due");
        let refused = due.iter().find(|d| d.request_key == p.key(native)).expect("the refusal");
        assert_eq!(refused.answer.outcome, Outcome::Expire);
        refused.answer.stop
    };
    assert!(!expire("1", 901).await);
    assert!(expire("2", 1802).await);
}

#[tokio::test]
async fn an_event_of_one_session_moves_no_run_of_another() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let (_, other) = p.running().await;
    let ended = EventBody::Ended { status: RunStatus::Completed, detail: None };
    let stored = p.events(session, &[(1, other, said("a")), (2, other, ended), (3, run, said("b"))]).await;
    assert_eq!(stored, store::event::Stored::UpTo(3));
    assert_eq!(p.status(other).await, "running");
    assert_eq!(p.count("select count(*) from run_events").await, 1);
}

#[tokio::test]
async fn what_a_revoked_worker_held_is_nobodys() {
    let p = Place::new().await;
    let (session, _) = p.running().await;
    let announced = [store::worker::Announced { session, pending: Vec::new() }];
    let another = store::worker::create(&p.store, &p.admin, "another").await.expect("a worker");
    relink(&p.store, another, Uuid::nil()).await.expect("an epoch");
    let known = store::worker::reconcile(&p.store, another, &announced).await.expect("reconciled");
    assert_eq!(known.iter().map(|k| k.ours).collect::<Vec<_>>(), [false]);
    store::worker::revoke(&p.store, &p.admin, p.worker).await.expect("revoked");
    let known = store::worker::reconcile(&p.store, another, &announced).await.expect("reconciled");
    assert!(known.is_empty(), "{known:?}");
}
