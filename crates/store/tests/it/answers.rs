//! Answers that are more than yes or no: stored with the decision, part of its digest,
//! and never more than the request offers.

use std::collections::BTreeMap;

use domain::{
    approval::{Given, Grant, Reply, RequestKey},
    decision::Outcome,
    digest::{ActionDigest, ActionFields, AnswerDigest},
    event::EventBody,
    failure::Failure,
    id::{ApprovalId, RunId, SessionId},
    time::Timestamp,
};
use store::{
    approval::{Asked, Paused, Resolve, Takes},
    event::Arrived,
};

use crate::place::Place;

const EVERYTHING: Takes = Takes { message: true, edit: true, answers: true, grants: true };
const QUESTION: &[u8] = br#"{"questions":[{"question":"Which?","options":[{"label":"A"},{"label":"B"}]}]}"#;

fn map(name: &str, text: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), text.to_owned())])
}

fn approve() -> Given {
    Given::plain(Outcome::Approve)
}

fn grants() -> Vec<Grant> {
    vec![Grant { native: r#"{"type":"addRules"}"#.into(), words: "Allow Bash(ls *)".into() }]
}

async fn ask(p: &Place, at: (SessionId, RunId), tool: &str, input: &[u8], takes: Takes) -> ApprovalId {
    let key: RequestKey = p.key(&format!("{tool}-{}", uuid::Uuid::now_v7()));
    let fields = ActionFields {
        request_key: &key.to_string(),
        harness: "demo",
        tool,
        folder: "/w",
        sub_agent: None,
        input,
    };
    let asked = Asked {
        session: at.0,
        run: at.1,
        request_key: &key,
        after_seq: 0,
        harness: "demo",
        tool,
        folder: "/w",
        sub_agent: None,
        call_id: None,
        mode: "ask",
        input,
        action_digest: ActionDigest::of(fields),
        words: None,
        options: &[],
        sub_agent_title: None,
        grants: &grants(),
        takes,
        native_deadline_ms: None,
    };
    match store::approval::pause(&p.store, p.worker, p.epoch, asked).await.expect("an answer") {
        Paused::Stored { approval, .. } => approval,
        other => panic!("not stored: {other:?}"),
    }
}

async fn give(p: &Place, id: ApprovalId, given: Given) -> store::Result<()> {
    let action_digest = store::approval::read(&p.store, &p.admin, id).await?.digest;
    let asked = Resolve { approval: id, action_digest, given };
    store::approval::resolve(&p.store, &p.admin, asked).await.map(drop)
}

async fn refused(p: &Place, id: ApprovalId, given: Given) -> String {
    let failure = give(p, id, given).await.expect_err("refused").into_failure();
    assert_eq!(p.approval_status(id).await, "pending");
    match failure {
        Failure::Invalid { field, .. } => field,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_edit_is_kept_beside_the_original_and_bound_to_the_answer() {
    let p = Place::new().await;
    let at = p.running().await;
    let id = ask(&p, at, "Bash", br#"{"command":"ls","n":1.0}"#, EVERYTHING).await;
    let detail = store::approval::read(&p.store, &p.admin, id).await.expect("it");
    assert_eq!((detail.reply, detail.editable.len(), detail.grants.len()), (Reply::Decision, 1, 1));
    let given = Given { edit: map("command", "ls -l"), grants: map("g0", "on"), ..approve() };
    give(&p, id, given).await.expect("decided");
    let detail = store::approval::read(&p.store, &p.admin, id).await.expect("it");
    let receipt = detail.receipt.expect("a receipt");
    assert_eq!(detail.action.title(), "ls");
    assert_eq!(receipt.edited.expect("what ran").title(), "ls -l");
    assert_eq!(receipt.grants, ["Allow Bash(ls *)"]);
    assert!(detail.history.iter().any(|h| h.what == "changed and approved it"));
    let due = store::decision::take_due(&p.store, p.worker, p.epoch, &[]).await.expect("due").remove(0);
    assert_eq!(due.answer.edited_input.as_deref(), Some(r#"{"command":"ls -l","n":1.0}"#));
    assert_eq!(due.answer.grants, [r#"{"type":"addRules"}"#]);
    assert_eq!(
        due.answer_digest,
        AnswerDigest::of(due.approval, due.decision, due.action_digest, &due.answer)
    );
}

#[tokio::test]
async fn a_question_cannot_be_approved_without_an_answer() {
    let p = Place::new().await;
    let at = p.running().await;
    let id = ask(&p, at, "AskUserQuestion", QUESTION, EVERYTHING).await;
    assert_eq!(refused(&p, id, approve()).await, "answer");
    assert_eq!(refused(&p, id, Given { edit: map("input", "{\"a\":1}"), ..approve() }).await, "answer");
    give(&p, id, Given { own: map("q0", "neither"), ..approve() }).await.expect("decided");
    let detail = store::approval::read(&p.store, &p.admin, id).await.expect("it");
    let receipt = detail.receipt.expect("a receipt");
    assert_eq!(receipt.answers, [("Which?".to_owned(), "neither".to_owned())]);
    let strange = ask(&p, at, "AskUserQuestion", br#"{"questions":7}"#, EVERYTHING).await;
    assert_eq!(refused(&p, strange, approve()).await, "outcome");
    give(&p, strange, Given::plain(Outcome::Reject)).await.expect("rejected");
}

#[tokio::test]
async fn a_harness_that_takes_only_yes_or_no_is_given_nothing_else() {
    let p = Place::new().await;
    let at = p.running().await;
    let id = ask(&p, at, "Bash", br#"{"command":"ls"}"#, Takes::default()).await;
    let detail = store::approval::read(&p.store, &p.admin, id).await.expect("it");
    assert!(detail.editable.is_empty() && detail.grants.is_empty());
    assert_eq!(refused(&p, id, Given { edit: map("command", "ls -l"), ..approve() }).await, "edit");
    assert_eq!(refused(&p, id, Given { grants: map("g0", "on"), ..approve() }).await, "grants");
    give(&p, id, approve()).await.expect("decided");
}

#[tokio::test]
async fn what_does_not_fit_is_refused_and_the_request_still_waits() {
    let p = Place::new().await;
    let at = p.running().await;
    let id = ask(&p, at, "Bash", br#"{"command":"ls"}"#, EVERYTHING).await;
    let reject = || Given::plain(Outcome::Reject);
    assert_eq!(refused(&p, id, Given { edit: map("command", "rm"), ..reject() }).await, "edit");
    assert_eq!(refused(&p, id, Given { grants: map("g0", "on"), ..reject() }).await, "grants");
    assert_eq!(refused(&p, id, Given { grants: map("g1", "on"), ..approve() }).await, "grants");
    assert_eq!(refused(&p, id, Given { edit: map("timeout", "1"), ..approve() }).await, "edit");
    assert_eq!(refused(&p, id, Given { edit: map("command", "ls"), ..approve() }).await, "edit");
    assert_eq!(refused(&p, id, Given { edit: map("command", "a\0b"), ..approve() }).await, "edit");
}

#[tokio::test]
async fn a_message_that_waits_ends_a_run_of_which_only_background_work_goes_on() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let finishes = || async { store::run::due_finishes(&p.store, p.worker).await.expect("finishes") };
    store::session::prompt(&p.store, &p.admin, session, "next").await.expect("queued");
    assert_eq!(finishes().await, []);
    let told = |seq, tasks: &[&str]| Arrived {
        seq,
        run,
        at: Timestamp(0),
        body: EventBody::Background { tasks: tasks.iter().map(|t| (*t).to_owned()).collect() },
    };
    for (seq, tasks, due) in [(1, &["serve"][..], true), (2, &[][..], false)] {
        store::event::store_all(&p.store, p.worker, p.epoch, session, &[told(seq, tasks)])
            .await
            .expect("stored");
        assert_eq!(finishes().await, if due { vec![(run, session)] } else { Vec::new() });
    }
}
