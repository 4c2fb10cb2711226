//! The ten rules of deciding, each tried to be broken from outside: over HTTP as browsers
//! do, over the link as a worker does. The numbers are those of the rules.

use domain::{
    approval::Grant,
    decision::{NOBODY_ANSWERED, Outcome},
    digest::AnswerDigest,
    id::Incarnation,
    run::RunStatus,
};
use futures::future::join_all;
use link::{
    frame::{Frame, METHOD_NOT_FOUND, REFUSED, UNAVAILABLE, close},
    message::{
        Bytes, Cancel, CancelOutcome, CancelReply, EffectKind, PermissionStored, Prompt, Resolve,
        ResolveOutcome, ResolveReply, Withdrawn,
    },
};
use uuid::Uuid;

use crate::{
    http::{self, FORM},
    product::Product,
    worker::{Worker, connect, digest_of, ended, hello, holding, options, said, taking_everything},
};

async fn place() -> (Product, String, Worker) {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let w = Worker::link(&p, &token, Uuid::nil()).await;
    (p, token, w)
}

const RUN: &str = "select status from runs where id = $1";
const APPROVAL: &str = "select status from approvals where id = $1";

// 1. Pause and approval are written together or not at all.

#[tokio::test]
async fn a_run_is_not_paused_when_any_part_of_the_pause_cannot_be_stored() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    for part in [
        "insert on approvals for each row",
        "insert on audit for each row when (new.noun = 'approval')",
        "update on runs for each row when (new.status = 'paused')",
    ] {
        p.refuse(part).await;
        let error = w.call(&ask).await.expect_err("not acknowledged");
        assert_eq!(error.code, UNAVAILABLE, "{part}: the worker asks again until its deadline");
        assert_eq!(p.text(RUN, run.0).await, "running", "{part}");
        assert_eq!(p.count("select count(*) from approvals").await, 0, "{part}");
        let read = p.session(key).await;
        assert_eq!(read["turns"][0]["run"]["status"], "running", "{part}");
        p.give_way().await;
    }
    let stored: PermissionStored = w.call(&ask).await.expect("stored");
    assert_eq!(p.text(RUN, run.0).await, "paused");
    assert_eq!(p.text(APPROVAL, stored.approval.0).await, "pending");
}

#[tokio::test]
async fn a_worker_that_gave_up_wins_over_what_is_shown() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    let gone = Withdrawn {
        key: paused.key,
        epoch: w.epoch,
        request_key: paused.ask.request_key.clone(),
        reason: "The request could not be stored in time.".into(),
        execution_gone: false,
    };
    let () = w.call(&gone).await.expect("taken");
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "cancelled");
    let late = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(late.status, 409);
    assert!(late.body.contains("could not be stored in time"), "{late:?}");
}

// 2. The stored action is the only source of what runs.

#[tokio::test]
async fn a_decision_that_names_another_action_or_another_request_is_refused() {
    let (p, _, mut w) = place().await;
    let one = w.paused(&p).await;
    let other = w.paused(&p).await;
    let forged = [
        // The digest of another request, one nobody asked for, and none.
        (one.id, other.ask.action_digest.to_string(), 409),
        (one.id, "0".repeat(64), 409),
        (one.id, String::new(), 422),
        (one.id, "zz".repeat(32), 422),
        (Uuid::nil().into(), one.ask.action_digest.to_string(), 404),
    ];
    for (id, digest, status) in forged {
        let form = format!("id={id}&digest={digest}&outcome=approve");
        let refused = p.post(&p.admin, "/api/approval/resolve", &form).await;
        assert_eq!(refused.status, status, "{form}: {refused:?}");
    }
    assert_eq!(p.count("select count(*) from decisions").await, 0);
    assert_eq!(p.count("select count(*) from approvals where status = 'pending'").await, 2);
    // And the right ones are taken.
    let taken = p.decide(&p.admin, one.id, one.ask.action_digest, "approve", "").await;
    assert_eq!(taken.status, 200, "{taken:?}");
}

#[tokio::test]
async fn input_smuggled_in_beside_a_decision_never_reaches_the_agent() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    // This harness takes no edit, so a form with one is refused whole.
    let edit = "&edit%5Bcommand%5D=rm+-rf+%7E";
    let refused = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", edit).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let grant = "&grants%5Bg0%5D=on";
    let refused = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", grant).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    // Fields of other products' forms, and of our own rows, are no fields here.
    let smuggled = "&input=%7B%22command%22%3A%22rm%22%7D&edited_input=%7B%7D&updatedInput=%7B%7D&content=%7B%7D\
        &tools%5B0%5D%5Bconfirmed%5D=true&tool_args=%7B%7D&decided_by=00000000-0000-0000-0000-000000000000\
        &action_digest=00&status=approved&scope=always";
    let taken = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", smuggled).await;
    assert_eq!(taken.status, 200, "{taken:?}");
    let resolve = w.apply().await;
    assert_eq!(resolve.action_digest, paused.ask.action_digest);
    let plain = domain::decision::Answer::plain(Outcome::Approve);
    assert_eq!(resolve.answer, plain);
    assert_eq!(resolve.decided_by.as_deref(), Some("Ana"));
}

#[tokio::test]
async fn answers_nobody_may_give_are_refused() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let mut ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    ask.options = options();
    let stored: PermissionStored = w.call(&ask).await.expect("stored");
    for (outcome, more) in [
        ("expire", ""),
        ("pending", ""),
        ("cancelled", ""),
        ("", ""),
        ("approve", "&stop=on"),
        ("approve", "&option=bypass"),
        ("reject", "&option=bypass"),
        ("reject", "&edit%5Bcommand%5D=rm"),
        ("reject", "&grants%5Bg0%5D=on"),
        ("reject", "&message=%00"),
    ] {
        let refused = p.decide(&p.admin, stored.approval, ask.action_digest, outcome, more).await;
        assert_eq!(refused.status, 422, "{outcome}{more}: {refused:?}");
    }
    let long = format!("&message={}", "x".repeat(9000));
    let refused = p.decide(&p.admin, stored.approval, ask.action_digest, "reject", &long).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert_eq!(p.count("select count(*) from decisions").await, 0);
    assert_eq!(p.text(APPROVAL, stored.approval.0).await, "pending");
}

#[tokio::test]
async fn an_edit_is_a_field_of_its_own_shown_and_bound_to_the_answer() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link_with(&p, &token, &taking_everything()).await;
    let (key, run) = w.prompted(&p).await;
    let mut ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    ask.grants = vec![Grant { native: r#"{"r":1}"#.into(), words: "Allow echo".into() }];
    let stored: PermissionStored = w.call(&ask).await.expect("stored");
    let more = "&edit%5Bcommand%5D=echo+ho&grants%5Bg0%5D=on";
    let taken = p.decide(&p.admin, stored.approval, ask.action_digest, "approve", more).await;
    assert_eq!(taken.status, 200, "{taken:?}");
    let resolve = w.apply().await;
    // The number keeps every digit.
    let edited = r#"{"command":"echo ho","n":9007199254740993}"#;
    assert_eq!(resolve.answer.edited_input.as_deref(), Some(edited));
    assert_eq!(resolve.answer.grants, [r#"{"r":1}"#]);
    assert_eq!(resolve.action_digest, ask.action_digest, "what was asked stays what it was");
    let without = domain::decision::Answer { edited_input: None, ..resolve.answer.clone() };
    assert_ne!(
        resolve.answer_digest,
        AnswerDigest::of(resolve.approval, resolve.decision, resolve.action_digest, &without)
    );
    let read = p.approval(stored.approval).await;
    assert!(read["receipt"]["edited"].to_string().contains("echo ho"), "{read}");
    assert!(read["action"].to_string().contains("echo hi"), "{read}");
    assert!(read["history"].to_string().contains("changed and approved it"), "{read}");
}

#[tokio::test]
async fn a_form_for_one_request_cannot_decide_one_of_another_tab() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let incarnation = Incarnation(Uuid::now_v7());
    // Two tabs, each with another request of the same run open.
    let (a, b) = (w.ask(key, run, "a", incarnation), w.ask(key, run, "b", incarnation));
    let first: PermissionStored = w.call(&a).await.expect("stored");
    let second: PermissionStored = w.call(&b).await.expect("stored");
    assert_ne!(a.action_digest, b.action_digest, "the same action twice is two actions");
    let crossed = p.decide(&p.admin, second.approval, a.action_digest, "approve", "").await;
    assert_eq!(crossed.status, 409, "{crossed:?}");
    assert_eq!(p.decide(&p.admin, first.approval, a.action_digest, "approve", "").await.status, 200);
    assert_eq!(p.text(APPROVAL, second.approval.0).await, "pending");
    assert_eq!(p.text(RUN, run.0).await, "paused", "the other one is still open");
    assert_eq!(w.apply().await.request_key, a.request_key);
}

// 3. One winner per approval.

#[tokio::test(flavor = "multi_thread")]
async fn of_fifty_decisions_on_two_servers_one_wins_and_the_others_learn_whose() {
    let (p, _, mut w) = place().await;
    let other = p.beside().await;
    let tomas = p.person("Tomas", "approver").await;
    let tomas = other.cookie_here(&tomas);
    for _ in 0..3 {
        let paused = w.paused(&p).await;
        let tries = (0..50).map(|i| {
            let (at, cookie, outcome) =
                if i % 2 == 0 { (&p, &p.admin, "approve") } else { (&other, &tomas, "reject") };
            at.decide(cookie, paused.id, paused.ask.action_digest, outcome, "")
        });
        let answers = join_all(tries).await;
        assert_eq!(answers.iter().filter(|a| a.status == 200).count(), 1, "one wins");
        let (winner, words) = match p.text(APPROVAL, paused.id.0).await.as_str() {
            "approved" => ("Ana", "Ana approved this first."),
            "rejected" => ("Tomas", "Tomas rejected this first."),
            other => panic!("{other}"),
        };
        for lost in answers.iter().filter(|a| a.status != 200) {
            assert_eq!(lost.status, 409, "{lost:?}");
            let told: serde_json::Value = serde_json::from_str(&lost.body).expect("JSON");
            assert_eq!(told["who"], winner);
            assert_eq!(told["what"], words);
        }
        let decisions: i64 = sqlx::query_scalar("select count(*) from decisions where approval_id = $1")
            .bind(paused.id.0)
            .fetch_one(&p.pool)
            .await
            .expect("a count");
        let audit: i64 = sqlx::query_scalar(
            "select count(*) from audit where noun = 'approval' and noun_id = $1 and user_id is not null",
        )
        .bind(paused.id.0)
        .fetch_one(&p.pool)
        .await
        .expect("a count");
        assert_eq!((decisions, audit), (1, 1));
        let resolve = w.apply().await;
        assert_eq!(resolve.decided_by.as_deref(), Some(winner));
        p.until_delivery(paused.id, "applied").await;
        w.effect(&paused, EffectKind::Ran).await.expect("taken");
        w.tell(paused.key, paused.run, 1, ended(RunStatus::Completed)).await;
    }
}

#[tokio::test]
async fn a_decision_posted_twenty_times_is_one_decision() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await.status);
    }
    assert_eq!(statuses.remove(0), 200);
    assert!(statuses.iter().all(|s| *s == 409), "{statuses:?}");
    let resolve = w.apply().await;
    p.until_delivery(paused.id, "applied").await;
    // Posted again after it was applied, it still changes and sends nothing.
    assert_eq!(p.decide(&p.admin, paused.id, paused.ask.action_digest, "reject", "").await.status, 409);
    assert!(w.calls_until_quiet().await.is_empty());
    assert_eq!(resolve.answer.outcome, Outcome::Approve);
    assert_eq!(p.count("select count(*) from decisions").await, 1);
}

#[tokio::test]
async fn a_rejected_request_stays_rejected_on_every_path() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    let rejected = p.decide(&p.admin, paused.id, paused.ask.action_digest, "reject", "&message=no").await;
    assert_eq!(rejected.status, 200);
    let again = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(again.status, 409);
    let extended = p.post(&p.admin, "/api/approval/extend", &format!("id={}", paused.id)).await;
    assert_eq!(extended.status, 409, "{extended:?}");
    let continued = p.post(&p.admin, "/api/run/continue", &format!("run={}", paused.run)).await;
    assert_eq!(continued.status, 409, "{continued:?}");
    // The worker asks again under the same id: the same approval, as it stands.
    let asked: PermissionStored = w.call(&paused.ask).await.expect("stored before");
    assert_eq!(asked.approval, paused.id);
    // It says the request is gone, and asks once more.
    let gone = Withdrawn {
        key: paused.key,
        epoch: w.epoch,
        request_key: paused.ask.request_key.clone(),
        reason: "Gone.".into(),
        execution_gone: true,
    };
    let () = w.call(&gone).await.expect("taken");
    let asked: PermissionStored = w.call(&paused.ask).await.expect("stored before");
    assert_eq!(asked.approval, paused.id);
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "rejected");
    assert_eq!(p.count("select count(*) from decisions where outcome <> 'reject'").await, 0);
}

#[tokio::test]
async fn a_cancelled_or_expired_request_is_final_on_every_path() {
    let (p, _, mut w) = place().await;
    p.edit_agent("mode=ask&hitl_timeout_s=10").await;
    for cancelled in [true, false] {
        let paused = w.paused(&p).await;
        if cancelled {
            let stopped = p.post(&p.admin, "/api/run/cancel", &format!("run={}", paused.run)).await;
            assert_eq!(stopped.status, 200);
            let (id, _) = w.called::<Cancel>().await;
            w.reply(id, &CancelReply { outcome: CancelOutcome::NotRunning }).await;
        } else {
            sqlx::query("update approvals set expires_at = app_now() where id = $1")
                .bind(paused.id.0)
                .execute(&p.pool)
                .await
                .expect("due");
            assert_eq!(w.apply().await.answer.outcome, Outcome::Expire);
        }
        let word = if cancelled { "cancelled" } else { "expired" };
        assert_eq!(p.text(APPROVAL, paused.id.0).await, word);
        for outcome in ["approve", "reject"] {
            let late = p.decide(&p.admin, paused.id, paused.ask.action_digest, outcome, "").await;
            assert_eq!(late.status, 409, "{late:?}");
            assert!(late.body.contains(word), "{late:?}");
        }
        let extended = p.post(&p.admin, "/api/approval/extend", &format!("id={}", paused.id)).await;
        assert_eq!(extended.status, 409, "{extended:?}");
        assert!(w.calls_until_quiet().await.is_empty());
        assert_eq!(p.text(APPROVAL, paused.id.0).await, word);
    }
}

// 4. A decision is delivered until it is applied or its execution is gone, at most once.

#[tokio::test]
async fn a_decision_taken_from_the_queue_and_never_sent_is_sent_all_the_same() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    // Another session's message cannot be handed out, after the decision was taken.
    p.refuse("update on runs for each row when (old.status = 'pending' and new.status = 'running')").await;
    p.start_session(&p.admin, "").await;
    let decided = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(decided.status, 200);
    assert_eq!(w.apply().await.approval, paused.id);
    p.until_delivery(paused.id, "applied").await;
    p.give_way().await;
    w.take_prompt().await;
}

#[tokio::test]
async fn a_decision_marked_sent_in_a_commit_whose_answer_was_lost_is_sent_again_on_the_same_link() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    // As it stands after the database died between the commit and its answer: marked as
    // sent, and no frame was ever written.
    sqlx::query(
        "create function taken() returns trigger language plpgsql as
         $$ begin new.delivery = 'sent'; new.sent_at = app_now(); return new; end $$",
    )
    .execute(&p.pool)
    .await
    .expect("a function");
    sqlx::query("create trigger taken before insert on decisions for each row execute function taken()")
        .execute(&p.pool)
        .await
        .expect("a trigger");
    let decided = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(decided.status, 200);
    assert_eq!(w.apply().await.approval, paused.id);
    p.until_delivery(paused.id, "applied").await;
    assert!(w.calls_until_quiet().await.is_empty(), "and only once");
}

#[tokio::test]
async fn a_decision_under_way_is_not_sent_twice_on_one_link() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    let (id, _) = w.called::<Resolve>().await;
    // The harness takes its time. The server looks at its outbox with every change, and by itself.
    p.start_session(&p.admin, "").await;
    w.take_prompt().await;
    assert!(!w.calls_until_quiet().await.contains(&"permission/resolve".to_owned()));
    w.reply(id, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
    p.until_delivery(paused.id, "applied").await;
}

#[tokio::test]
async fn a_worker_that_could_not_take_a_decision_gets_the_same_one_again() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    let (id, first) = w.called::<Resolve>().await;
    let full = link::frame::RpcError::new(UNAVAILABLE, "The journal cannot be written.");
    w.send(Frame::answer::<()>(id, Err(full))).await;
    let again = w.apply().await;
    assert_eq!((again.decision, again.answer_digest), (first.decision, first.answer_digest));
}

#[tokio::test]
async fn a_decision_that_may_have_been_applied_is_of_unknown_outcome_when_all_is_forgotten() {
    let (p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    w.called::<Resolve>().await;
    // The worker's disk is gone with its answer: it knows no session any more.
    drop(w);
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let read = p.until_delivery(paused.id, "outcome_unknown").await;
    assert_eq!(read["row"]["status"], "approved", "{read}");
    assert_eq!(p.text(RUN, paused.run.0).await, "error");
    assert!(w.calls_until_quiet().await.is_empty(), "it is never sent to another execution");
}

#[tokio::test]
async fn a_decision_that_was_never_sent_is_not_applied_when_all_is_forgotten() {
    let (p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    drop(w);
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    w = Worker::link(&p, &token, Uuid::nil()).await;
    p.until_delivery(paused.id, "not_applied").await;
    assert!(w.calls_until_quiet().await.is_empty());
}

#[tokio::test]
async fn what_was_sent_before_a_cut_and_a_cancel_keeps_its_truthful_result() {
    let (p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    w.called::<Resolve>().await;
    // Applied, but the link is cut before the server hears of it.
    drop(w);
    let mut hello = holding(paused.key, paused.run, &paused.ask);
    hello.sessions[0].pending.clear();
    w = Worker::link_with(&p, &token, &hello).await;
    // Nothing is answered yet, and the link is cut again; the run is cancelled meanwhile.
    drop(w);
    let stopped = p.post(&p.admin, "/api/run/cancel", &format!("run={}", paused.run)).await;
    assert_eq!(stopped.status, 200);
    w = Worker::link_with(&p, &token, &hello).await;
    let (id, _) = w.called::<Cancel>().await;
    w.reply(id, &CancelReply { outcome: CancelOutcome::Stopping }).await;
    w.effect(&paused, EffectKind::Ran).await.expect("taken");
    let read = p.until_delivery(paused.id, "effect").await;
    assert_eq!(read["receipt"]["note"], "It ran.", "{read}");
}

#[tokio::test]
async fn a_prompt_is_offered_until_it_is_taken_and_never_after() {
    let (p, token, mut w) = place().await;
    let key = p.start_session(&p.admin, "").await;
    let (_, first) = w.called::<Prompt>().await;
    drop(w);
    w = Worker::link(&p, &token, Uuid::nil()).await;
    let (id, again) = w.called::<Prompt>().await;
    assert_eq!((again.key, again.run), (key, first.run), "the same prompt under the same id");
    let reply =
        link::message::PromptReply { outcome: link::message::PromptOutcome::AlreadyAccepted, why: None };
    w.reply(id, &reply).await;
    assert!(w.calls_until_quiet().await.is_empty());
    drop(w);
    let mut hello = hello(Uuid::nil());
    hello.sessions.push(link::message::HeldSession {
        key,
        incarnation: None,
        run: Some(first.run),
        sent_seq: 0,
        acked_seq: 0,
        pending: Vec::new(),
    });
    w = Worker::link_with(&p, &token, &hello).await;
    assert!(w.calls_until_quiet().await.is_empty());
}

// 5. A decision is for one execution.

#[tokio::test]
async fn the_worker_may_die_and_come_back_without_a_decision_being_lost() {
    let (p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    drop(w);
    p.until("/api/worker/list", "unlinked", |all| all[0]["linked"] == false).await;
    let decided = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(decided.status, 200, "deciding works while the worker is away");
    w = Worker::link_with(&p, &token, &holding(paused.key, paused.run, &paused.ask)).await;
    assert_eq!(w.apply().await.request_key, paused.ask.request_key);
}

#[tokio::test]
async fn a_request_of_a_gone_process_is_cancelled_and_an_equal_one_is_new() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let old = Incarnation(Uuid::now_v7());
    let (open, decided) = (w.ask(key, run, "1", old), w.ask(key, run, "2", old));
    let open_id: PermissionStored = w.call(&open).await.expect("stored");
    let decided_id: PermissionStored = w.call(&decided).await.expect("stored");
    p.decide(&p.admin, decided_id.approval, decided.action_digest, "approve", "").await;
    let (id, _) = w.called::<Resolve>().await;
    for ask in [&open, &decided] {
        let gone = Withdrawn {
            key,
            epoch: w.epoch,
            request_key: ask.request_key.clone(),
            reason: "The agent's process ended.".into(),
            execution_gone: true,
        };
        let () = w.call(&gone).await.expect("taken");
    }
    w.reply(id, &ResolveReply { outcome: ResolveOutcome::NativeGone, why: None }).await;
    let read = p.until_delivery(decided_id.approval, "not_applied").await;
    assert_eq!(read["row"]["status"], "approved", "a decided one keeps its decision");
    let read = p.approval(open_id.approval).await;
    assert_eq!(read["row"]["status"], "cancelled");
    assert_eq!(read["closed_reason"], "Execution gone. The agent's process ended.");
    // The new process asks the same. It is a new request, which nobody has decided.
    let renewed = w.ask(key, run, "2", Incarnation(Uuid::now_v7()));
    let stored: PermissionStored = w.call(&renewed).await.expect("stored");
    assert_ne!(stored.approval, decided_id.approval);
    assert_eq!(p.text(APPROVAL, stored.approval.0).await, "pending");
    assert!(w.calls_until_quiet().await.is_empty());
    // The old card does not decide it.
    let crossed = p.decide(&p.admin, stored.approval, decided.action_digest, "approve", "").await;
    assert_eq!(crossed.status, 409);
}

// 6. Cancelling.

#[tokio::test]
async fn cancelling_a_paused_run_closes_all_of_it_or_nothing() {
    let (p, token, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let incarnation = Incarnation(Uuid::now_v7());
    let (a, b) = (w.ask(key, run, "a", incarnation), w.ask(key, run, "b", incarnation));
    let unsent: PermissionStored = w.call(&a).await.expect("stored");
    let open: PermissionStored = w.call(&b).await.expect("stored");
    // The worker is away: the decision stays unsent.
    drop(w);
    p.until("/api/worker/list", "unlinked", |all| all[0]["linked"] == false).await;
    p.decide(&p.admin, unsent.approval, a.action_digest, "approve", "").await;
    for part in [
        "update on runs for each row when (new.status = 'cancelled')",
        "update on decisions for each row when (new.delivery = 'void')",
        "update on approvals for each row when (new.status = 'cancelled')",
        "insert on audit for each row when (new.noun = 'run')",
    ] {
        p.refuse(part).await;
        let failed = p.post(&p.admin, "/api/run/cancel", &format!("run={run}")).await;
        assert_eq!(failed.status, 500, "{part}: {failed:?}");
        assert!(failed.body.contains("\"id\":"), "{failed:?}");
        assert_eq!(p.text(RUN, run.0).await, "paused", "{part}");
        assert_eq!(p.text(APPROVAL, open.approval.0).await, "pending", "{part}");
        assert_eq!(p.count("select count(*) from decisions where delivery = 'queued'").await, 1, "{part}");
        p.give_way().await;
    }
    assert_eq!(p.post(&p.admin, "/api/run/cancel", &format!("run={run}")).await.status, 200);
    assert_eq!(p.text(RUN, run.0).await, "cancelled");
    assert_eq!(p.text(APPROVAL, open.approval.0).await, "cancelled");
    assert_eq!(p.count("select count(*) from decisions where delivery = 'void'").await, 1);
    assert_eq!(p.session(key).await["turns"][0]["run"]["stop_unconfirmed"], true);
    let late = p.decide(&p.admin, open.approval, b.action_digest, "approve", "").await;
    assert_eq!(late.status, 409);
    let twice = p.post(&p.admin, "/api/run/cancel", &format!("run={run}")).await;
    assert_eq!(twice.status, 409, "{twice:?}");
    // Back again, the worker hears of the cancel and of nothing else.
    w = Worker::link_with(&p, &token, &holding(key, run, &a)).await;
    let (id, _) = w.called::<Cancel>().await;
    w.reply(id, &CancelReply { outcome: CancelOutcome::NotRunning }).await;
    assert!(w.calls_until_quiet().await.is_empty());
}

#[tokio::test]
async fn a_cancel_comes_before_anything_that_is_queued() {
    let (p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    let other = w.paused(&p).await;
    drop(w);
    p.until("/api/worker/list", "unlinked", |all| all[0]["linked"] == false).await;
    // While the worker is away: a decision elsewhere, a next message, then the cancel.
    p.decide(&p.admin, other.id, other.ask.action_digest, "approve", "").await;
    let next = format!("session={}&prompt=next", paused.key);
    assert_eq!(p.post(&p.admin, "/api/session/prompt", &next).await.status, 200);
    assert_eq!(p.post(&p.admin, "/api/run/cancel", &format!("run={}", paused.run)).await.status, 200);
    let mut hello = holding(paused.key, paused.run, &paused.ask);
    hello.sessions.extend(holding(other.key, other.run, &other.ask).sessions);
    w = Worker::link_with(&p, &token, &hello).await;
    let mut order = Vec::new();
    let cancel = loop {
        if let Frame::Call { id, method, .. } = w.next().await.expect("a frame") {
            order.push(method.clone());
            if method == "session/cancel" {
                break id;
            }
        }
    };
    assert_eq!(order, ["session/cancel"], "first of all");
    assert_eq!(
        w.calls_until_quiet().await,
        ["permission/resolve"],
        "no message before the stop is confirmed"
    );
    w.reply(cancel, &CancelReply { outcome: CancelOutcome::NotRunning }).await;
    let (_, prompt) = w.called::<Prompt>().await;
    assert_eq!((prompt.key, prompt.text.as_str()), (paused.key, "next"));
}

#[tokio::test]
async fn a_cancelled_message_that_only_waited_never_reaches_the_worker() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    let next = format!("session={}&prompt=next", paused.key);
    assert_eq!(p.post(&p.admin, "/api/session/prompt", &next).await.status, 200);
    let read = p.session(paused.key).await;
    let queued = read["turns"][1]["run"]["id"].as_str().expect("a run").to_owned();
    assert_eq!(p.post(&p.admin, "/api/run/cancel", &format!("run={queued}")).await.status, 200);
    assert_eq!(p.session(paused.key).await["turns"][1]["run"]["stop_unconfirmed"], false);
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    w.apply().await;
    w.tell(paused.key, paused.run, 1, ended(RunStatus::Completed)).await;
    assert!(w.calls_until_quiet().await.is_empty());
}

#[tokio::test]
async fn a_request_that_comes_after_the_cancel_is_refused_and_shows_nowhere() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    p.post(&p.admin, "/api/run/cancel", &format!("run={}", paused.run)).await;
    let late = w.ask(paused.key, paused.run, "2", paused.ask.request_key.incarnation);
    let refused = w.call(&late).await.expect_err("refused");
    assert_eq!(refused.code, REFUSED, "it is refused natively: {refused}");
    assert_eq!(p.count("select count(*) from approvals").await, 1);
    assert_eq!(p.text(RUN, paused.run.0).await, "cancelled");
}

// 7. A time-out is its own outcome.

#[tokio::test]
async fn a_time_out_is_judged_by_the_database_names_nobody_and_is_delivered_once() {
    let (p, _, mut w) = place().await;
    let other = p.beside().await;
    let paused = w.paused(&p).await;
    // The machine's clock stays; the database's moves on.
    p.later(901).await;
    let resolve = w.apply().await;
    assert_eq!(resolve.answer.outcome, Outcome::Expire);
    assert_eq!(resolve.answer.message.as_deref(), Some(NOBODY_ANSWERED));
    assert_eq!(resolve.decided_by, None);
    assert!(!resolve.answer.stop);
    p.until_delivery(paused.id, "applied").await;
    // Both servers look for what is due; there is one refusal.
    assert!(w.calls_until_quiet().await.is_empty());
    assert_eq!(p.count("select count(*) from decisions").await, 1);
    let read = p.approval(paused.id).await;
    assert_eq!(read["row"]["status"], "expired");
    assert_eq!(read["row"]["decided_by"], serde_json::Value::Null);
    assert_eq!(read["receipt"]["by"], serde_json::Value::Null);
    assert!(!read["history"].to_string().contains("Ana"), "{read}");
    let late = other.decide(&other.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(late.status, 409);
    assert!(late.body.contains("Nobody answered it in time"), "{late:?}");
    assert!(late.body.contains("\"who\":null"), "{late:?}");
}

#[tokio::test]
async fn fifteen_minutes_more_are_fifteen_minutes_more() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    let form = format!("id={}", paused.id);
    assert_eq!(p.post(&p.admin, "/api/approval/extend", &form).await.status, 200);
    let asked: PermissionStored = w.call(&paused.ask).await.expect("stored before");
    assert!((1_780_000..=1_800_000).contains(&asked.remaining_ms), "{}", asked.remaining_ms);
    p.later(901).await;
    // Past the first deadline it can still be decided.
    p.until("/api/approval/list?tab=waiting", "waiting", |l| l["counts"]["pending"] == 1).await;
    let decided = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(decided.status, 200, "{decided:?}");
    assert_eq!(w.apply().await.answer.outcome, Outcome::Approve);
}

#[tokio::test]
async fn a_deadline_of_the_harness_that_comes_first_counts() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let mut ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    ask.native_deadline_ms = Some(1500);
    let stored: PermissionStored = w.call(&ask).await.expect("stored");
    assert!((1..=1500).contains(&stored.remaining_ms), "a duration travels, not a time of day");
    assert_eq!(w.apply().await.answer.outcome, Outcome::Expire);
}

#[tokio::test]
async fn a_decision_nobody_continues_in_time_is_void_and_the_harness_is_refused() {
    let (p, _, mut w) = place().await;
    p.edit_agent("mode=ask&hitl_timeout_s=900&waits_for_continue=on").await;
    let paused = w.paused(&p).await;
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert!(w.calls_until_quiet().await.is_empty(), "decided, and waiting for Continue run");
    assert_eq!(p.text(RUN, paused.run.0).await, "paused");
    p.later(901).await;
    let resolve = w.apply().await;
    assert_eq!((resolve.answer.outcome, resolve.decided_by), (Outcome::Expire, None));
    p.until_delivery(paused.id, "applied").await;
    assert_eq!(p.count("select count(*) from decisions where delivery = 'void'").await, 1);
    let late = p.post(&p.admin, "/api/run/continue", &format!("run={}", paused.run)).await;
    assert_eq!(late.status, 409, "{late:?}");
    assert!(w.calls_until_quiet().await.is_empty());
}

// 8. Nobody inside can approve.

#[tokio::test]
async fn a_worker_s_token_opens_no_way_to_decide() {
    let (p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    let form =
        format!("id={}&digest={}&outcome=approve&run={}", paused.id, paused.ask.action_digest, paused.run);
    let bearer = format!("Bearer {token}");
    let port = p.address.rsplit(':').next().expect("a port");
    let as_cookie = format!("countersign-{port}={token}");
    for credentials in [("Authorization", bearer.as_str()), ("Cookie", as_cookie.as_str())] {
        for path in ["/api/approval/resolve", "/api/approval/extend", "/api/run/continue"] {
            let headers = [FORM, ("Accept", "application/json"), credentials];
            let refused = http::send(&p.address, "POST", path, &headers, form.as_bytes()).await;
            assert_eq!(refused.status, 401, "{path}: {refused:?}");
        }
    }
    // Nor a message of the link, in whatever words.
    let resolve = serde_json::json!({
        "key": paused.key, "epoch": w.epoch, "approval": paused.id, "id": paused.id,
        "requestKey": paused.ask.request_key.to_string(), "decision": Uuid::now_v7(),
        "actionDigest": paused.ask.action_digest.to_string(),
        "answerDigest": "0".repeat(64), "answer": {"outcome": "approve"}, "decidedBy": "Ana",
    })
    .to_string();
    for (n, method) in ["permission/resolve", "approval/resolve", "permission/answer", "run/continue"]
        .into_iter()
        .enumerate()
    {
        let id = 1000 + n as u64;
        let params = serde_json::value::RawValue::from_string(resolve.clone()).expect("JSON");
        w.send(Frame::Call { id, method: method.into(), params }).await;
        loop {
            if let Frame::Answer { id: answered, result } = w.next().await.expect("a frame")
                && answered == id
            {
                assert_eq!(result.err().map(|e| e.code), Some(METHOD_NOT_FOUND), "{method}");
                break;
            }
        }
    }
    // Nor an answer nobody asked for, nor an effect of what nobody decided.
    w.reply(4711, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
    let _ = w.effect(&paused, EffectKind::Ran).await;
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "pending");
    assert_eq!(p.text(RUN, paused.run.0).await, "paused");
    assert_eq!(p.count("select count(*) from decisions").await, 0);
}

#[tokio::test]
async fn words_in_chat_decide_nothing() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    for words in ["approve", "/approve", "yes", "y", "1", "continue"] {
        let form = format!("session={}&prompt={words}", paused.key);
        assert_eq!(p.post(&p.admin, "/api/session/prompt", &form).await.status, 200);
    }
    w.tell(paused.key, paused.run, 1, said("I approve this myself.")).await;
    assert!(w.calls_until_quiet().await.is_empty());
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "pending");
    assert_eq!(p.count("select count(*) from decisions").await, 0);
}

#[tokio::test]
async fn a_request_that_comes_decided_is_a_request() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    let mut params = serde_json::to_value(&ask).expect("JSON");
    for (name, value) in
        [("status", "approved"), ("outcome", "approve"), ("decidedBy", "Ana"), ("reply", "none")]
    {
        params[name] = value.into();
    }
    let params = serde_json::value::RawValue::from_string(params.to_string()).expect("JSON");
    w.send(Frame::Call { id: 500, method: "permission/request".into(), params }).await;
    p.until("/api/approval/list?tab=waiting", "waiting", |l| l["counts"]["pending"] == 1).await;
    assert_eq!(p.count("select count(*) from decisions").await, 0);
}

// 9. Fail closed.

#[tokio::test]
async fn a_harness_that_cannot_be_asked_is_not_started() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let mut silent = hello(Uuid::nil());
    silent.harnesses[0].capabilities.permissions = None;
    let mut w = Worker::link_with(&p, &token, &silent).await;
    let agents = p.read_json(&p.admin, "/api/agent/list").await;
    assert!(agents[0]["problem"].as_str().is_some_and(|w| w.contains("permission")), "{agents}");
    let form = format!("agent={}&prompt=go", p.agent().await);
    let refused = p.post(&p.admin, "/api/session/start", &form).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(w.calls_until_quiet().await.is_empty());
    // A session from before, and a message that waited for the worker.
    drop(w);
    w = Worker::link(&p, &token, Uuid::nil()).await;
    let (key, run) = w.prompted(&p).await;
    let next = format!("session={key}&prompt=next");
    assert_eq!(p.post(&p.admin, "/api/session/prompt", &next).await.status, 200);
    w.tell(key, run, 1, said("x")).await;
    drop(w);
    w = Worker::link_with(&p, &token, &silent).await;
    // The first run is gone with its session; the next message goes to nobody.
    assert!(w.calls_until_quiet().await.is_empty());
    let read = p.session(key).await;
    assert_eq!(read["turns"][1]["run"]["status"], "error", "{read}");
    // A mode that never asks was chosen with that in mind.
    p.edit_agent("mode=never&hitl_timeout_s=900&never_asks_confirmed=on").await;
    p.start_session(&p.admin, "").await;
    w.take_prompt().await;
}

#[tokio::test]
async fn what_cannot_be_read_is_shown_as_that_and_never_allowed() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let incarnation = Incarnation(Uuid::now_v7());
    for (n, input) in
        [&b"\xff\xfe not text"[..], b"{\"a\":", b"{\"command\":\"\\u0000\"}"].into_iter().enumerate()
    {
        let mut ask = w.ask(key, run, &format!("r{n}"), incarnation);
        ask.input = Bytes(input.to_vec());
        ask.action_digest = digest_of(&ask);
        let stored: PermissionStored = w.call(&ask).await.expect("stored");
        let read = p.approval(stored.approval).await;
        assert_eq!(read["row"]["status"], "pending");
        let marked = read["row"]["checked"] == false || read["row"]["findings"].as_u64() > Some(0);
        assert!(marked, "nothing tells a person to look twice: {read}");
    }
    // Bytes that are not those of the digest are no request at all.
    let mut swapped = w.ask(key, run, "swapped", incarnation);
    swapped.input = Bytes(b"{\"command\":\"rm\"}".to_vec());
    assert_eq!(w.call(&swapped).await.expect_err("refused").code, REFUSED);
    // And a request for a run of nobody, or of another worker, shows nowhere.
    let foreign = w.ask(key, domain::id::RunId(Uuid::now_v7()), "foreign", incarnation);
    assert_eq!(w.call(&foreign).await.expect_err("refused").code, REFUSED);
    assert_eq!(p.count("select count(*) from approvals").await, 3);
}

// 10. Authorisation, everywhere.

#[tokio::test]
async fn somebody_else_s_private_session_is_not_there() {
    let (p, _, mut w) = place().await;
    let (owner, other, viewer) = (
        p.person("Olga", "approver").await,
        p.person("Tomas", "approver").await,
        p.person("Vic", "viewer").await,
    );
    p.start_session(&owner, "&private=on").await;
    let (key, run) = w.take_prompt().await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    let id = w.call(&ask).await.expect("stored").approval;
    for cookie in [&other, &viewer] {
        for path in [format!("/api/session/read?id={key}"), format!("/api/approval/read?id={id}")] {
            assert_eq!(p.get_json(cookie, &path).await.status, 404, "{path}");
        }
        for path in [format!("/chat/{key}"), format!("/approvals/{id}")] {
            let page = p.get(cookie, &path).await;
            assert_eq!(page.status, 404, "{path}");
            assert!(!page.body.contains("echo hi"), "{path}");
        }
        for path in ["/api/session/list?search=go", "/api/session/list?search="] {
            assert_eq!(p.read_json(cookie, path).await["rows"].as_array().expect("rows").len(), 0, "{path}");
        }
        for tab in ["waiting", "all"] {
            let list = p.read_json(cookie, &format!("/api/approval/list?tab={tab}")).await;
            assert_eq!(list["rows"].as_array().expect("rows").len(), 0);
            assert_eq!(list["counts"]["pending"], 0);
        }
    }
    let tries = [
        ("/api/approval/resolve", format!("id={id}&digest={}&outcome=approve", ask.action_digest)),
        ("/api/approval/extend", format!("id={id}")),
        ("/api/run/cancel", format!("run={run}")),
        ("/api/run/continue", format!("run={run}")),
        ("/api/session/prompt", format!("session={key}&prompt=x")),
    ];
    for (path, form) in &tries {
        assert_eq!(p.post(&other, path, form).await.status, 404, "{path}");
        assert_eq!(p.post(&viewer, path, form).await.status, 403, "{path}");
        assert_eq!(p.post("", path, form).await.status, 401, "{path}");
    }
    assert_eq!(p.text(APPROVAL, id.0).await, "pending");
    assert_eq!(p.decide(&owner, id, ask.action_digest, "approve", "").await.status, 200);
}

#[tokio::test]
async fn a_demoted_approver_s_open_page_decides_nothing() {
    let (p, _, mut w) = place().await;
    let tomas = p.person("Tomas", "approver").await;
    let paused = w.paused(&p).await;
    let id = p.user("Tomas").await;
    assert_eq!(p.post(&p.admin, "/api/user/role", &format!("id={id}&role=viewer")).await.status, 200);
    let refused = p.decide(&tomas, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(refused.status, 401, "the old sign-in is over: {refused:?}");
    let again = crate::product::cookie(&p.sign_in("Tomas", crate::product::PASSWORD).await);
    let refused = p.decide(&again, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(refused.status, 403, "{refused:?}");
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "pending");
}

#[tokio::test]
async fn what_ends_a_sign_in_or_a_token_on_one_server_closes_its_sockets_on_the_other() {
    let (p, token, _) = place().await;
    let other = p.beside().await;
    // Out by themselves, out everywhere, disabled, given another role, run out.
    for (n, end) in
        ["/signout", "/signout-everywhere", "/api/user/disable", "/api/user/role", ""].into_iter().enumerate()
    {
        let name = format!("Vic{n}");
        let vic = p.person(&name, "viewer").await;
        let mut tab = crate::live::open_own(&other, &other.cookie_here(&vic)).await;
        let id = p.user(&name).await;
        let done = match end {
            "/api/user/disable" => p.post(&p.admin, end, &format!("id={id}&disabled=true")).await.status,
            "/api/user/role" => p.post(&p.admin, end, &format!("id={id}&role=approver")).await.status,
            "" => {
                // Nothing tells of it; the socket looks by itself.
                sqlx::query("update login_sessions set expires_at = app_now() where user_id = $1")
                    .bind(Uuid::parse_str(&id).expect("an id"))
                    .execute(&p.pool)
                    .await
                    .expect("expired");
                200
            }
            _ => p.post(&vic, end, "").await.status,
        };
        assert!(matches!(done, 200 | 303), "{end}: {done}");
        assert_eq!(crate::live::closed(&mut tab).await, 4401, "{end}");
        assert_eq!(other.get_json(&other.cookie_here(&vic), "/api/agent/list").await.status, 401, "{end}");
    }
    let mut w = Worker::link(&other, &token, Uuid::nil()).await;
    let workers = p.read_json(&p.admin, "/api/worker/list").await;
    let id = workers[0]["id"].as_str().expect("an id");
    assert_eq!(p.post(&p.admin, "/api/worker/revoke", &format!("id={id}")).await.status, 200);
    assert_eq!(w.closed().await, close::UNAUTHORIZED);
}

#[tokio::test]
async fn a_link_taken_over_on_another_server_is_closed_and_says_nothing_more() {
    let (p, token, mut old) = place().await;
    let other = p.beside().await;
    let paused = old.paused(&p).await;
    // The worker comes back through the other server; the first has not noticed yet.
    let mut new = {
        let socket = connect(&other, &token).await.expect("a socket");
        let mut w = Worker { socket, epoch: 0, calls: 0 };
        let welcome = w.call(&holding(paused.key, paused.run, &paused.ask)).await.expect("welcome");
        w.epoch = welcome.epoch;
        w
    };
    // What the old one still says of its own epoch counts no more.
    let gone = Withdrawn {
        key: paused.key,
        epoch: old.epoch,
        request_key: paused.ask.request_key.clone(),
        reason: "An old link says so.".into(),
        execution_gone: true,
    };
    old.send(Frame::call(90, &gone)).await;
    old.send(Frame::call(91, &old.ask(paused.key, paused.run, "2", paused.ask.request_key.incarnation)))
        .await;
    old.send(old.event(paused.key, paused.run, 1, said("old"))).await;
    assert_eq!(old.closed().await, close::SUPERSEDED);
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "pending");
    assert_eq!(p.count("select count(*) from approvals").await, 1);
    assert_eq!(p.count("select count(*) from run_events").await, 0);
    let decided = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(decided.status, 200);
    assert_eq!(new.apply().await.epoch, new.epoch);
    // A message reaches the new link only.
    p.start_session(&p.admin, "").await;
    new.take_prompt().await;
}

#[tokio::test]
async fn another_worker_s_sessions_are_closed_to_it() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    let strangers = p.worker_token("stranger").await;
    // It says the session is its own.
    let mut claiming = holding(paused.key, paused.run, &paused.ask);
    claiming.worker.data_folder_id = Uuid::now_v7();
    let socket = connect(&p, &strangers).await.expect("a socket");
    let mut s = Worker { socket, epoch: 0, calls: 0 };
    let welcome = s.call(&claiming).await.expect("welcome");
    s.epoch = welcome.epoch;
    assert_eq!(welcome.sessions[0].verdict, link::message::Verdict::Fenced);
    // It asks in the run, withdraws what is not its own, says it was done, answers for it.
    let ask = s.ask(paused.key, paused.run, "9", Incarnation(Uuid::now_v7()));
    assert_eq!(s.call(&ask).await.expect_err("refused").code, REFUSED);
    let gone = Withdrawn {
        key: paused.key,
        epoch: s.epoch,
        request_key: paused.ask.request_key.clone(),
        reason: "Not mine.".into(),
        execution_gone: true,
    };
    let _ = s.call(&gone).await;
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "reject", "").await;
    let (id, _) = w.called::<Resolve>().await;
    let _ = s.effect(&paused, EffectKind::Ran).await;
    s.reply(id, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
    s.send(s.event(paused.key, paused.run, 1, ended(RunStatus::Completed))).await;
    assert_eq!(s.closed().await, close::SUPERSEDED, "it writes into another's session");
    assert_eq!(p.text(APPROVAL, paused.id.0).await, "rejected");
    assert_eq!(p.count("select count(*) from decisions where delivery = 'sent'").await, 1);
    assert_eq!(p.text(RUN, paused.run.0).await, "running");
    w.reply(id, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
    p.until_delivery(paused.id, "applied").await;
}

#[tokio::test]
async fn the_same_frame_again_is_the_same_thing() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    // In one batch and apart.
    for id in 100..110 {
        w.send(Frame::call(id, &ask)).await;
        w.send(w.event(key, run, 1, said("once"))).await;
    }
    let first: PermissionStored = w.call(&ask).await.expect("stored");
    assert_eq!(p.count("select count(*) from approvals").await, 1);
    assert_eq!(p.count("select open_approvals::bigint from runs").await, 1);
    assert_eq!(p.count("select count(*) from run_events").await, 1);
    p.decide(&p.admin, first.approval, ask.action_digest, "approve", "").await;
    let (id, _) = w.called::<Resolve>().await;
    for _ in 0..5 {
        w.reply(id, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
    }
    w.reply(id, &ResolveReply { outcome: ResolveOutcome::NativeGone, why: None }).await;
    p.until_delivery(first.approval, "applied").await;
    let paused = crate::worker::Paused { key, run, ask, id: first.approval };
    for _ in 0..5 {
        w.effect(&paused, EffectKind::Ran).await.expect("taken");
    }
    w.effect(&paused, EffectKind::NotApplied).await.expect("taken, and too late");
    let read = p.until_delivery(first.approval, "effect").await;
    assert_eq!(read["receipt"]["note"], "It ran.");
}

#[tokio::test]
async fn a_second_link_of_the_same_folder_wins_and_another_folder_waits() {
    let (p, token, mut first) = place().await;
    let mut second = Worker::link(&p, &token, Uuid::nil()).await;
    assert_eq!(first.closed().await, close::SUPERSEDED);
    assert!(second.epoch > first.epoch);
    let socket = connect(&p, &token).await.expect("a socket");
    let mut third = Worker { socket, epoch: 0, calls: 0 };
    assert!(third.call(&hello(Uuid::now_v7())).await.expect_err("refused").message.contains("lease"));
    assert_eq!(third.closed().await, close::LEASED);
    // The refused one has taken nothing from the second.
    second.paused(&p).await;
}
