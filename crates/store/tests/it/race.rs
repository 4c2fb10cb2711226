//! Many at once: exactly one wins.

use domain::{decision::Outcome, user::Role};
use futures::future::join_all;

use crate::place::{Place, conflict};

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_decisions_one_wins_and_the_rest_learn_whose() {
    let p = Place::new().await;
    let tomas = p.person("Tomas", Role::Approver).await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    let tries = (0..50).map(|i| {
        let (caller, outcome) =
            if i % 2 == 0 { (&p.admin, Outcome::Approve) } else { (&tomas, Outcome::Reject) };
        p.resolve(caller, id, outcome)
    });
    let results = join_all(tries).await;
    assert_eq!(results.iter().filter(|r| r.is_ok()).count(), 1);
    let winner = if p.approval_status(id).await == "approved" { "Ana" } else { "Tomas" };
    for refused in results.into_iter().filter(Result::is_err) {
        let (who, what) = conflict(refused);
        assert_eq!(who.as_deref(), Some(winner));
        assert!(what.starts_with(winner), "{what}");
    }
    assert_eq!(p.count("select count(*) from decisions").await, 1);
    assert_eq!(
        p.count("select count(*) from audit where noun = 'approval' and user_id is not null").await,
        1
    );
    assert_eq!(p.status(run).await, "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_on_many_requests_of_one_run_at_once_leave_it_running() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let mut ids = Vec::new();
    for i in 0..12 {
        ids.push(p.pending(session, run, &i.to_string()).await);
    }
    for result in join_all(ids.iter().map(|id| p.resolve(&p.admin, *id, Outcome::Approve))).await {
        result.expect("decided");
    }
    assert_eq!(p.status(run).await, "running");
    assert_eq!(p.count("select open_approvals::bigint from runs").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deciding_expiring_withdrawing_and_cancelling_at_once_end_in_one_state() {
    for round in 0..8 {
        let p = Place::new().await;
        let (session, run) = p.running().await;
        let id = p.pending(session, run, "1").await;
        sqlx::query("update approvals set expires_at = app_now() + interval '2 milliseconds'")
            .execute(p.store.pool())
            .await
            .expect("a short deadline");
        let key = p.key("1");
        let (decided, expired, gone, cancelled) = tokio::join!(
            p.resolve(&p.admin, id, Outcome::Approve),
            store::approval::expire_due(&p.store),
            store::approval::withdraw(&p.store, p.worker, &key, "Gone.", false),
            store::run::cancel(&p.store, &p.admin, run),
        );
        gone.expect("withdrawn or nothing to withdraw");
        let expired = expired.expect("looked");
        let status = p.approval_status(id).await;
        let counting = p.count("select count(*) from decisions where delivery <> 'void'").await;
        let all = p.count("select count(*) from decisions").await;
        assert!(all <= 1 && counting <= 1, "round {round}");
        match status.as_str() {
            "approved" => assert!(decided.is_ok() && expired == 0, "round {round}"),
            "expired" => assert!(decided.is_err() && expired == 1, "round {round}"),
            "cancelled" => assert!(decided.is_err() && expired == 0 && all == 0, "round {round}"),
            other => panic!("round {round}: {other}"),
        }
        cancelled.expect("a live run can be cancelled");
        assert_eq!(p.status(run).await, "cancelled");
    }
}
