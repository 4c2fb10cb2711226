//! Eight defects seen in another product that does this job, as kinds of faults.

use domain::{decision::Outcome, id::Incarnation};
use futures::future::join_all;
use link::{
    frame::{REFUSED, UNAVAILABLE},
    message::{Cancel, CancelOutcome, CancelReply},
};
use uuid::Uuid;

use crate::{
    http::{self, FORM},
    product::Product,
    worker::{INPUT, Paused, Worker},
};

async fn place() -> (Product, Worker) {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let w = Worker::link(&p, &token, Uuid::nil()).await;
    (p, w)
}

const RUN: &str = "select status from runs where id = $1";
const APPROVAL: &str = "select status from approvals where id = $1";

/// *Continue run* with whatever another product's client would send along.
async fn continue_with(p: &Product, paused: &Paused, more: &str) -> http::Response {
    p.post(&p.admin, "/api/run/continue", &format!("run={}{more}", paused.run)).await
}

const CONFIRMED: &str = "&tools%5B0%5D%5Btool_call_id%5D=1&tools%5B0%5D%5Bconfirmed%5D=true\
    &requirements%5B0%5D%5Bconfirmed%5D=true&approval_type=&confirmed=true";
const CHANGED: &str = "&tools%5B0%5D%5Bconfirmed%5D=true&tools%5B0%5D%5Btool_args%5D%5Bcommand%5D=rm\
    &tool_args=%7B%22command%22%3A%22rm%22%7D&edited_input=%7B%22command%22%3A%22rm%22%7D&edit%5Bcommand%5D=rm";

#[tokio::test]
async fn a_pending_request_cannot_be_run_by_confirming_it_in_a_continue() {
    let (p, mut w) = place().await;
    let paused = w.paused(&p).await;
    let refused = continue_with(&p, &paused, CONFIRMED).await;
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.body.contains("Decide the 1 open request first."), "{refused:?}");
    assert!(w.calls_until_quiet().await.is_empty());
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "pending");
    assert_eq!(p.text(RUN, paused.run.0).await, "paused");
}

#[tokio::test]
async fn a_pending_request_cannot_be_run_with_other_arguments() {
    let (p, mut w) = place().await;
    let paused = w.paused(&p).await;
    assert_eq!(continue_with(&p, &paused, CHANGED).await.status, 409);
    // As JSON too, which other products take.
    let body =
        format!(r#"{{"run":"{}","tools":[{{"confirmed":true,"tool_args":{{"n":999}}}}]}}"#, paused.run);
    for path in ["/api/run/continue", "/api/approval/resolve"] {
        let headers = [
            ("Content-Type", "application/json"),
            ("Cookie", p.admin.as_str()),
            ("Accept", "application/json"),
        ];
        let refused = http::send(&p.address, "POST", path, &headers, body.as_bytes()).await;
        assert!(refused.status >= 400, "{path}: {refused:?}");
    }
    assert!(w.calls_until_quiet().await.is_empty());
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "pending");
    let input: Vec<u8> =
        sqlx::query_scalar("select input from approvals").fetch_one(&p.pool).await.expect("bytes");
    assert_eq!(input, INPUT);
}

#[tokio::test]
async fn arguments_sent_with_the_continue_after_an_approval_are_not_what_runs() {
    let (p, mut w) = place().await;
    p.edit_agent("mode=ask&hitl_timeout_s=900&waits_for_continue=on").await;
    let paused = w.paused(&p).await;
    assert_eq!(p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await.status, 200);
    let continued = continue_with(&p, &paused, CHANGED).await;
    assert_eq!(continued.status, 200, "{continued:?}");
    let resolve = w.apply().await;
    assert_eq!(resolve.action_digest, paused.ask.action_digest);
    assert_eq!(resolve.answer, domain::decision::Answer::plain(Outcome::Approve));
    assert!(p.approval(paused.id).await["action"].to_string().contains("echo hi"));
}

#[tokio::test]
async fn a_rejected_request_cannot_be_run_by_confirming_it_again() {
    let (p, mut w) = place().await;
    p.edit_agent("mode=ask&hitl_timeout_s=900&waits_for_continue=on").await;
    let paused = w.paused(&p).await;
    assert_eq!(p.decide(&p.admin, paused.id, paused.ask.action_digest, "reject", "").await.status, 200);
    assert_eq!(
        p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", CONFIRMED).await.status,
        409
    );
    let continued = continue_with(&p, &paused, CONFIRMED).await;
    assert_eq!(continued.status, 200, "{continued:?}");
    assert_eq!(w.apply().await.answer.outcome, Outcome::Reject);
    p.until_delivery(paused.id, "applied").await;
    assert_eq!(continue_with(&p, &paused, CONFIRMED).await.status, 409);
    assert_eq!(
        p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", CONFIRMED).await.status,
        409
    );
    assert!(w.calls_until_quiet().await.is_empty());
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "rejected");
}

#[tokio::test(flavor = "multi_thread")]
async fn four_continues_after_one_approval_continue_one_run_once() {
    let (p, mut w) = place().await;
    let other = p.beside().await;
    p.edit_agent("mode=ask&hitl_timeout_s=900&waits_for_continue=on").await;
    let paused = w.paused(&p).await;
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    let continues = [&p, &other, &p, &other].map(|at| continue_with(at, &paused, ""));
    let mut statuses: Vec<u16> = join_all(continues).await.iter().map(|r| r.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409]);
    w.apply().await;
    p.until_delivery(paused.id, "applied").await;
    assert!(w.calls_until_quiet().await.is_empty(), "no prompt is sent again, no decision twice");
    assert_eq!(p.count("select count(*) from runs").await, 1);
    assert_eq!(p.count("select count(*) from approvals").await, 1);
    assert_eq!(p.count("select count(*) from audit where what = 'continued the run'").await, 1);
}

#[tokio::test]
async fn cancelling_a_paused_run_does_not_leave_it_paused_with_an_open_request() {
    let (p, mut w) = place().await;
    let paused = w.paused(&p).await;
    let stopped = p.post(&p.admin, "/api/run/cancel", &format!("run={}", paused.run)).await;
    assert_eq!(stopped.status, 200, "{stopped:?}");
    assert_eq!(p.text(RUN, paused.run.0).await, "cancelled");
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "cancelled");
    assert_eq!(p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await.status, 409);
    assert_eq!(continue_with(&p, &paused, CONFIRMED).await.status, 409);
    let (id, _) = w.called::<Cancel>().await;
    w.reply(id, &CancelReply { outcome: CancelOutcome::NotRunning }).await;
    // The session is free for the next message.
    let next = format!("session={}&prompt=next", paused.key);
    assert_eq!(p.post(&p.admin, "/api/session/prompt", &next).await.status, 200);
    assert_eq!(w.take_prompt().await.0, paused.key);
}

#[tokio::test]
async fn a_run_is_not_paused_for_ever_by_a_request_that_could_not_be_stored() {
    let (p, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    p.refuse("insert on approvals for each row").await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    assert_eq!(w.call(&ask).await.expect_err("not stored").code, UNAVAILABLE);
    assert_eq!(p.text(RUN, run.0).await, "running");
    // The worker gives up, refuses natively and says so; the run ends.
    let detail = "The request could not be stored, so it was refused.".to_owned();
    let over = domain::event::EventBody::Ended {
        status: domain::run::RunStatus::Error,
        detail: Some(detail.clone()),
    };
    w.tell(key, run, 1, over).await;
    p.give_way().await;
    let read = p.session(key).await;
    assert_eq!(read["turns"][0]["run"]["status"], "error");
    assert_eq!(read["turns"][0]["run"]["detail"], detail);
    // A late repetition of the request stays refused and unseen.
    assert_eq!(w.call(&ask).await.expect_err("refused").code, REFUSED);
    assert_eq!(p.count("select count(*) from approvals").await, 0);
}

#[tokio::test]
async fn a_pending_request_cannot_be_deleted_from_under_its_run() {
    let (p, mut w) = place().await;
    let paused = w.paused(&p).await;
    for (method, path) in [
        ("DELETE", format!("/approvals/{}", paused.id)),
        ("DELETE", format!("/api/approval/{}", paused.id)),
        ("POST", "/api/approval/delete".to_owned()),
        ("DELETE", "/api/approval/resolve".to_owned()),
        ("POST", "/api/session/delete".to_owned()),
        ("DELETE", format!("/chat/{}", paused.key)),
    ] {
        let headers = [FORM, ("Cookie", p.admin.as_str()), ("Accept", "application/json")];
        let form = format!("id={}", paused.id);
        let refused = http::send(&p.address, method, &path, &headers, form.as_bytes()).await;
        assert!(matches!(refused.status, 404 | 405), "{method} {path}: {refused:?}");
    }
    // Who is shown in its history cannot go either; the worker's token can, and it waits on.
    let workers = p.read_json(&p.admin, "/api/worker/list").await;
    let id = workers[0]["id"].as_str().expect("an id");
    assert_eq!(p.post(&p.admin, "/api/worker/revoke", &format!("id={id}")).await.status, 200);
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "pending");
    let row = sqlx::query("delete from runs where id = $1").bind(paused.run.0).execute(&p.pool).await;
    assert!(row.is_err(), "the database holds a run while a request points at it");
    let decided = p.decide(&p.admin, paused.id, paused.ask.action_digest, "reject", "").await;
    assert_eq!(decided.status, 200, "{decided:?}");
    // Another one can be cancelled all the same.
    assert_eq!(p.post(&p.admin, "/api/run/cancel", &format!("run={}", paused.run)).await.status, 200);
}
