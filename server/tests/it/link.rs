//! `/link`, from the worker's side.

use domain::{decision::Outcome, digest::AnswerDigest, event::EventBody, id::Incarnation, run::RunStatus};
use futures::SinkExt as _;
use link::{
    frame::{Frame, Message as _, body, close},
    message::{
        Acknowledge, Cancel, CancelOutcome, CancelReply, PermissionStored, Resolve, ResolveOutcome,
        ResolveReply, Welcome,
    },
};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use crate::{
    product::Product,
    worker::{Worker, connect, hello, holding},
};

#[tokio::test]
async fn a_bad_token_is_refused_in_words() {
    let p = Product::with_admin().await;
    let (status, words) = connect(&p, "csw_wrong").await.expect_err("refused");
    assert_eq!(status, 401);
    assert!(words.contains("unknown or revoked"), "{words}");
    // A person's cookie opens no link, and a worker's token no page.
    let token = p.worker_token("studio").await;
    let headers = [("Authorization", format!("Bearer {token}"))];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    let refused = crate::http::send(&p.address, "GET", "/api/agent/list", &headers, b"").await;
    assert_eq!(refused.status, 401);
}

#[tokio::test]
async fn a_decision_reaches_the_worker_with_its_digests() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let (key, run) = w.prompted(&p).await;
    let incarnation = Incarnation(Uuid::now_v7());
    let ask = w.ask(key, run, "1", incarnation);
    let stored: PermissionStored = w.call(&ask).await.expect("stored");
    let again: PermissionStored = w.call(&ask).await.expect("stored");
    assert_eq!(stored.approval, again.approval);
    assert!(stored.remaining_ms > 890_000);
    let form = format!("id={}&digest={}&outcome=reject&message=not+now", stored.approval, ask.action_digest);
    assert_eq!(p.post(&p.admin, "/api/approval/resolve", &form).await.status, 200);
    let (_, resolve) = w.called::<Resolve>().await;
    assert_eq!(resolve.request_key, ask.request_key);
    assert_eq!(resolve.action_digest, ask.action_digest);
    assert_eq!(resolve.answer.outcome, Outcome::Reject);
    assert_eq!(resolve.answer.message.as_deref(), Some("not now"));
    assert_eq!(
        resolve.answer_digest,
        AnswerDigest::of(resolve.approval, resolve.decision, resolve.action_digest, &resolve.answer)
    );
    // Not answered: a newer link gets it again, the same decision.
    let socket = connect(&p, &token).await.expect("a socket");
    let mut newer = Worker { socket, epoch: 0, calls: 0 };
    let welcome: Welcome = newer.call(&holding(key, run, &ask)).await.expect("welcome");
    newer.epoch = welcome.epoch;
    assert_eq!(w.closed().await, close::SUPERSEDED);
    let (_, second) = newer.called::<Resolve>().await;
    assert_eq!(second.decision, resolve.decision);
    assert_eq!(second.epoch, newer.epoch);
}

#[tokio::test]
async fn another_data_folder_waits_for_the_lease_and_revoking_closes() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let socket = connect(&p, &token).await.expect("a socket");
    let mut other = Worker { socket, epoch: 0, calls: 0 };
    let refused = other.call(&hello(Uuid::now_v7())).await.expect_err("refused");
    assert!(refused.message.contains("lease"), "{refused}");
    assert_eq!(other.closed().await, close::LEASED);
    let workers = p.read_json(&p.admin, "/api/worker/list").await;
    let id = workers[0]["id"].as_str().expect("an id").to_owned();
    assert_eq!(p.post(&p.admin, "/api/worker/revoke", &format!("id={id}")).await.status, 200);
    assert_eq!(w.closed().await, close::UNAUTHORIZED);
    assert_eq!(connect(&p, &token).await.err().map(|e| e.0), Some(401));
}

#[tokio::test]
async fn the_protocol_s_edges_are_answered() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    // Anything before hello, and a version nobody speaks.
    let socket = connect(&p, &token).await.expect("a socket");
    let mut early = Worker { socket, epoch: 0, calls: 0 };
    early.send(Frame::notify(&link::message::Heartbeat {})).await;
    assert_eq!(early.closed().await, close::PROTOCOL);
    let socket = connect(&p, &token).await.expect("a socket");
    let mut old = Worker { socket, epoch: 0, calls: 0 };
    let mut ancient = hello(Uuid::nil());
    ancient.protocol_versions = vec![0];
    assert!(old.call(&ancient).await.is_err());
    assert_eq!(old.closed().await, close::VERSION);
    // Unknown calls and notifications.
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    w.send(Frame::Notify { method: "link/new".into(), params: raw("{}") }).await;
    w.send(Frame::Call { id: 77, method: "approval/resolve".into(), params: raw("{}") }).await;
    loop {
        if let Frame::Answer { id: 77, result } = w.next().await.expect("a frame") {
            assert_eq!(result.err().map(|e| e.code), Some(link::frame::METHOD_NOT_FOUND));
            break;
        }
    }
    // Garbage ends the link.
    w.socket.send(Message::text("{")).await.expect("sent");
    assert_eq!(w.closed().await, close::PROTOCOL);
}

fn raw(text: &str) -> Box<serde_json::value::RawValue> {
    serde_json::value::RawValue::from_string(text.into()).expect("JSON")
}

#[tokio::test]
async fn events_are_acknowledged_after_storage_and_an_old_epoch_is_dropped() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let (key, run) = w.prompted(&p).await;
    for seq in 1..=3 {
        let said = EventBody::Said { text: format!("line {seq}"), sub_agent: None };
        w.send(w.event(key, run, seq, said)).await;
    }
    let mut acked = 0;
    while acked < 3 {
        if let Frame::Notify { method, params } = w.next().await.expect("a frame")
            && method == Acknowledge::METHOD
        {
            acked = body::<Acknowledge>(&params).expect("an ack").seq;
        }
    }
    let read = p.read_json(&p.admin, &format!("/api/session/read?id={key}")).await;
    assert_eq!(read["turns"][0]["items"].as_array().expect("items").len(), 3);
    // An old epoch, and a gap, change nothing.
    w.epoch -= 1;
    w.send(w.event(key, run, 4, EventBody::Said { text: "old".into(), sub_agent: None })).await;
    w.epoch += 1;
    w.send(w.event(key, run, 6, EventBody::Said { text: "gap".into(), sub_agent: None })).await;
    let ended = EventBody::Ended { status: RunStatus::Completed, detail: None };
    w.send(w.event(key, run, 4, ended)).await;
    let path = format!("/api/session/read?id={key}");
    let read = p.until(&path, "completed", |r| r["turns"][0]["run"]["status"] == "completed").await;
    assert_eq!(read["turns"][0]["items"].as_array().expect("items").len(), 4);
}

#[tokio::test]
async fn cancelling_a_paused_run_closes_it_and_tells_the_worker() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let (key, run) = w.prompted(&p).await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    let stored: PermissionStored = w.call(&ask).await.expect("stored");
    assert_eq!(p.post(&p.admin, "/api/run/cancel", &format!("run={run}")).await.status, 200);
    let (id, cancel) = w.called::<Cancel>().await;
    assert_eq!(cancel.run, run);
    let read = p.read_json(&p.admin, &format!("/api/session/read?id={key}")).await;
    assert_eq!(read["turns"][0]["run"]["stop_unconfirmed"], true);
    let form = format!("id={}&digest={}&outcome=approve", stored.approval, ask.action_digest);
    let late = p.post(&p.admin, "/api/approval/resolve", &form).await;
    assert_eq!(late.status, 409, "{late:?}");
    w.send(Frame::answer(id, Ok(CancelReply { outcome: CancelOutcome::NotRunning }))).await;
    let path = format!("/api/session/read?id={key}");
    p.until(&path, "confirmed", |r| r["turns"][0]["run"]["stop_unconfirmed"] == false).await;
    // What the agent asks after that is refused natively.
    let refused = w.call(&w.ask(key, run, "2", Incarnation(Uuid::now_v7()))).await.expect_err("refused");
    assert_eq!(refused.code, link::frame::REFUSED);
}

#[tokio::test]
async fn a_killed_server_loses_nothing_it_acknowledged() {
    let mut p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let (key, run) = w.prompted(&p).await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    let stored: PermissionStored = w.call(&ask).await.expect("stored");
    let form = format!("id={}&digest={}&outcome=approve", stored.approval, ask.action_digest);
    assert_eq!(p.post(&p.admin, "/api/approval/resolve", &form).await.status, 200);
    p.kill().await;
    p.revive().await;
    let socket = connect(&p, &token).await.expect("a socket");
    let mut w = Worker { socket, epoch: 0, calls: 0 };
    let welcome: Welcome = w.call(&holding(key, run, &ask)).await.expect("welcome");
    assert_eq!(welcome.sessions[0].verdict, link::message::Verdict::Resume);
    let (id, resolve) = w.called::<Resolve>().await;
    assert_eq!(resolve.approval, stored.approval);
    w.send(Frame::answer(id, Ok(ResolveReply { outcome: ResolveOutcome::Applied, why: None }))).await;
    p.until_delivery(stored.approval, "applied").await;
}
