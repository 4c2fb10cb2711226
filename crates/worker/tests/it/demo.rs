//! The way of a decision with the demo agent.

use domain::{event::EventBody, id::RunId, run::RunStatus};
use link::{
    frame::close,
    message::{CancelOutcome, Close, EffectKind, PromptOutcome, ResolveOutcome, Verdict},
};
use rustix::process::Signal;
use uuid::Uuid;

use crate::{
    process::{ends, kill, lives, parent},
    world::{World, approve, reject},
};

const ALLOW: Option<&str> = Some("allow-once");
const REJECT: Option<&str> = Some("reject-once");

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_write_happens_once_and_a_second_resolve_changes_nothing() {
    let world = World::demo().await;
    let run = world.begin("Buy milk").await;
    let asked = world.request(0).await;
    assert_eq!(world.file("notes.txt"), None);
    assert_eq!((asked.0.tool.as_str(), asked.0.mode.as_str(), asked.0.options.len()), ("edit", "ask", 2));
    let decision = world.decision(&asked, approve(ALLOW));
    assert_eq!(world.server.call(&decision).await.unwrap().outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert_eq!(world.server.call(&decision).await.unwrap().outcome, ResolveOutcome::AlreadyApplied);
    assert_eq!(world.resolve(&asked, approve(ALLOW)).await.outcome, ResolveOutcome::NativeGone);
    assert_eq!(world.file("notes.txt").as_deref(), Some("Buy milk\n"));
    assert_eq!(world.server.seen.lock().unwrap().effects.len(), 1);
    assert_eq!(world.prompt(run, "Buy milk").await.outcome, PromptOutcome::AlreadyAccepted);
    // The next run goes to the same process.
    let next = world.begin("say again").await;
    world.ended(next).await;
    assert_eq!(world.pid(next).await, world.pid(run).await);
    assert!(world.server.seen.lock().unwrap().said().contains("again"));
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_write_does_not_happen() {
    let world = World::demo().await;
    let run = world.begin("Buy milk").await;
    let asked = world.request(0).await;
    assert_eq!(world.resolve(&asked, reject(REJECT, None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Refused);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.file("notes.txt"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_differs_in_anything_is_refused_and_the_request_stays() {
    let world = World::demo().await;
    world.begin("Buy milk").await;
    let asked = world.request(0).await;
    let good = world.decision(&asked, approve(ALLOW));
    let mut other_action = good.clone();
    other_action.action_digest.0[0] ^= 1;
    let mut other_answer = good.clone();
    other_answer.answer.option_id = Some("allow-always".into());
    let mut other_epoch = good.clone();
    other_epoch.epoch -= 1;
    for (resolve, expected) in [
        (other_action, ResolveOutcome::DigestMismatch),
        (other_answer, ResolveOutcome::DigestMismatch),
        (other_epoch, ResolveOutcome::Fenced),
    ] {
        assert_eq!(world.server.call(&resolve).await.unwrap().outcome, expected);
    }
    assert_eq!(world.file("notes.txt"), None);
    assert_eq!(world.server.call(&good).await.unwrap().outcome, ResolveOutcome::Applied);
    world.effect(&asked.0.request_key).await;
    assert_eq!(world.file("notes.txt").as_deref(), Some("Buy milk\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_the_agent_cannot_take_is_never_given_and_the_agent_is_refused() {
    for answer in [approve(Some("allow-always")), reject(ALLOW, None)] {
        let world = World::demo().await;
        let run = world.begin("Buy milk").await;
        let asked = world.request(0).await;
        assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::DigestMismatch);
        let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
        assert!(withdrawn.request_key == asked.0.request_key && !withdrawn.execution_gone);
        assert_eq!(world.ended(run).await.0, RunStatus::Completed);
        assert_eq!(world.resolve(&asked, approve(ALLOW)).await.outcome, ResolveOutcome::NativeGone);
        assert_eq!(world.file("notes.txt"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_worker_comes_back_to_the_same_process_and_the_write_happens_once() {
    let mut world = World::demo().await;
    let run = world.begin("Buy milk").await;
    let asked = world.request(0).await;
    let process = world.pid(run).await;
    world.kill().await;
    assert!(lives(process), "the harness outlives its worker");
    world.start().await;
    let hello = world.server.seen.lock().unwrap().hellos.last().unwrap().clone();
    let session = &hello.sessions[0];
    assert_eq!(session.incarnation, Some(asked.0.request_key.incarnation));
    assert_eq!(session.run, Some(run));
    assert_eq!(session.pending[0].request_key, asked.0.request_key);
    assert_eq!(session.pending[0].action_digest, asked.0.action_digest);
    assert_eq!(world.resolve(&asked, approve(ALLOW)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.file("notes.txt").as_deref(), Some("Buy milk\n"));
    assert_eq!(world.server.seen.lock().unwrap().requests.len(), 1);
    let next = world.begin("say hi").await;
    world.ended(next).await;
    assert_eq!(world.pid(next).await, process);
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_again_and_again_loses_and_doubles_nothing() {
    let mut world = World::demo().await;
    let run = world.begin("append a.txt: 1\nappend a.txt: 2\nappend a.txt: 3").await;
    for n in 0..3 {
        let asked = world.request(n).await;
        let decision = world.decision(&asked, approve(ALLOW));
        let server = world.server.clone();
        // The worker dies while the decision is on its way, wherever it is by then.
        let sent = tokio::spawn(async move { server.call(&decision).await });
        tokio::time::sleep(std::time::Duration::from_millis(3 * n as u64)).await;
        world.kill().await;
        world.start().await;
        sent.abort();
        let mut again = world.decision(&asked, approve(ALLOW));
        let key = asked.0.request_key.clone();
        if !world.server.seen.lock().unwrap().effects.iter().any(|(k, _)| *k == key) {
            // It may have been given already, under the first decision.
            let outcome = world.server.call(&again).await.unwrap().outcome;
            assert!(matches!(outcome, ResolveOutcome::Applied | ResolveOutcome::NativeGone), "{outcome:?}");
        }
        assert_eq!(world.effect(&key).await, EffectKind::Ran);
        again.epoch = 0;
        assert_eq!(world.server.call(&again).await.unwrap().outcome, ResolveOutcome::Fenced);
    }
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.file("a.txt").as_deref(), Some("1\n2\n3\n"));
    let said = world.server.seen.lock().unwrap().said();
    assert_eq!(said.matches("I wrote to a.txt").count(), 3, "{said}");
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_handed_over_once_wherever_the_worker_dies() {
    let mut world = World::demo().await;
    world.mode = "auto".into();
    for n in 0..6 {
        let run = world.begin(&format!("append a.txt: {n}")).await;
        tokio::time::sleep(std::time::Duration::from_millis(n * n * 3)).await;
        world.kill().await;
        world.start().await;
        assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    }
    assert_eq!(world.file("a.txt").as_deref(), Some("0\n1\n2\n3\n4\n5\n"));
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_harness_withdraws_its_request_and_a_late_approve_finds_nothing() {
    let world = World::demo().await;
    let run = world.begin("Buy milk").await;
    let asked = world.request(0).await;
    kill(world.pid(run).await);
    let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
    assert_eq!(withdrawn.request_key, asked.0.request_key);
    assert!(withdrawn.execution_gone);
    let (status, detail) = world.ended(run).await;
    assert_eq!(status, RunStatus::Error);
    assert!(detail.unwrap().contains("signal 9"));
    assert_eq!(world.resolve(&asked, approve(ALLOW)).await.outcome, ResolveOutcome::NativeGone);
    assert_eq!(world.file("notes.txt"), None);
    // The next prompt gets a new process, which says what it does not know.
    let next = world.begin("say hi").await;
    assert_eq!(world.ended(next).await.0, RunStatus::Completed);
    let seen = world.server.seen.lock().unwrap();
    assert!(
        seen.events
            .iter()
            .any(|e| matches!(&e.body, EventBody::Notice { text, .. } if text.contains("anew")))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_that_dies_while_the_worker_is_away_is_reported_by_the_next_one() {
    let mut world = World::demo().await;
    let run = world.begin("Buy milk").await;
    let asked = world.request(0).await;
    let process = world.pid(run).await;
    world.kill().await;
    kill(process);
    world.start().await;
    let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
    assert!(withdrawn.execution_gone && withdrawn.request_key == asked.0.request_key);
    assert_eq!(world.ended(run).await.0, RunStatus::Error);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_harness_dies_with_its_holder() {
    let world = World::demo().await;
    let run = world.begin("Buy milk").await;
    world.request(0).await;
    let process = world.pid(run).await;
    kill(parent(process));
    assert_eq!(world.ended(run).await.0, RunStatus::Error);
    ends(process).await;
    assert_eq!(world.file("notes.txt"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_run_is_cancelled_and_its_request_taken_back() {
    let world = World::demo().await;
    let run = world.begin("Buy milk").await;
    let asked = world.request(0).await;
    assert_eq!(world.cancel(run).await, CancelOutcome::Stopping);
    assert_eq!(world.ended(run).await, (RunStatus::Cancelled, None));
    let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
    assert!(!withdrawn.execution_gone);
    assert_eq!(world.resolve(&asked, approve(ALLOW)).await.outcome, ResolveOutcome::NativeGone);
    assert_eq!(world.cancel(run).await, CancelOutcome::NotRunning);
    assert_eq!(world.cancel(RunId(Uuid::nil())).await, CancelOutcome::NotRunning);
    assert_eq!(world.file("notes.txt"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_are_answered_in_reverse_order() {
    let world = World::demo().await;
    let run = world.begin("both: append a.txt: 1 && append b.txt: 2").await;
    let (first, second) = (world.request(0).await, world.request(1).await);
    assert_eq!(world.resolve(&second, approve(ALLOW)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&second.0.request_key).await, EffectKind::Ran);
    assert_eq!(world.resolve(&first, reject(REJECT, None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.effect(&first.0.request_key).await, EffectKind::Refused);
    assert_eq!((world.file("a.txt"), world.file("b.txt").as_deref()), (None, Some("2\n")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_with_stop_ends_the_run() {
    let world = World::demo().await;
    let run = world.begin("append a.txt: 1\nwait 600\nappend b.txt: 2").await;
    let asked = world.request(0).await;
    let mut answer = reject(REJECT, None);
    answer.stop = true;
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Cancelled);
    assert_eq!((world.file("a.txt"), world.file("b.txt")), (None, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_again_after_a_lost_link_without_a_gap() {
    let mut world = World::demo().await;
    world.server.set(|s| s.keep_acks = true);
    let lines: Vec<String> = (0..400).map(|n| format!("run: echo {n}")).collect();
    world.mode = "auto".into();
    let run = world.begin(&lines.join("\n")).await;
    world.server.see("a full window", |s| (s.events.len() >= link::message::WINDOW).then_some(())).await;
    assert_eq!(world.server.seen.lock().unwrap().events.len(), link::message::WINDOW);
    world.server.set(|s| s.keep_acks = false);
    world.server.cut(0);
    world.linked(2).await;
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    let seen = world.server.seen.lock().unwrap();
    let seqs: Vec<i64> = seen.events.iter().map(|e| e.seq).collect();
    assert_eq!(seqs, (1..=i64::try_from(seqs.len()).unwrap()).collect::<Vec<_>>());
    assert_eq!(seen.events.iter().filter(|e| matches!(e.body, EventBody::Returned { .. })).count(), 400);
    drop(seen);
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_kept_while_the_link_is_away_and_stored_afterwards() {
    let world = World::demo().await;
    world.server.set(|s| s.refuse_to_store = true);
    let run = world.begin("Buy milk").await;
    world.pid(run).await;
    world.server.see("a request that is not taken", |s| (s.not_taken > 0).then_some(())).await;
    world.server.set(|s| s.refuse_links = true);
    world.server.cut(0);
    world.server.see("links that are refused", |s| (s.links_refused > 1).then_some(())).await;
    assert_eq!((world.server.epoch(), world.file("notes.txt")), (0, None));
    world.server.set(|s| s.refuse_links = false);
    world.linked(2).await;
    world.server.set(|s| s.refuse_to_store = false);
    let asked = world.request(0).await;
    assert_eq!(world.resolve(&asked, approve(ALLOW)).await.outcome, ResolveOutcome::Applied);
    world.ended(run).await;
    assert_eq!(world.file("notes.txt").as_deref(), Some("Buy milk\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_is_never_stored_is_refused_and_the_run_says_so() {
    let mut world = World::demo().await;
    world.hitl_timeout_s = 1;
    world.server.set(|s| s.refuse_to_store = true);
    let run = world.begin("Buy milk").await;
    let (status, detail) = world.ended(run).await;
    assert_eq!(status, RunStatus::Error);
    assert!(detail.unwrap().contains("could not be stored"));
    let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
    assert!(withdrawn.reason.contains("could not be stored"));
    assert_eq!(world.file("notes.txt"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proper_end_ends_the_harness_and_says_why() {
    let mut world = World::demo().await;
    let run = world.begin("Buy milk").await;
    world.request(0).await;
    let process = world.pid(run).await;
    assert_eq!(world.end(Signal::TERM).await, Some(0));
    assert!(!lives(process));
    let (status, detail) = world.ended(run).await;
    assert_eq!((status, detail.as_deref()), (RunStatus::Error, Some("The worker was stopped.")));
    assert_eq!(world.file("notes.txt"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_session_takes_the_next_prompt_in_a_new_process() {
    let world = World::demo().await;
    let run = world.begin("say hi").await;
    world.ended(run).await;
    let close = Close { key: world.session, epoch: world.server.epoch() };
    world.server.call(&close).await.unwrap();
    let next = world.begin("say hi").await;
    assert_eq!(world.ended(next).await.0, RunStatus::Completed);
    assert_ne!(world.pid(next).await, world.pid(run).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_worker_ends_and_leaves_the_harness_alone() {
    let mut world = World::demo().await;
    let run = world.begin("Buy milk").await;
    world.request(0).await;
    world.server.cut(close::SUPERSEDED);
    assert_eq!(world.exit_code().await, Some(4));
    assert!(lives(world.pid(run).await));
    world.server.set(|s| s.verdict = Some(Verdict::Fenced));
    world.start().await;
    assert_eq!(world.exit_code().await, Some(4));
    assert_eq!(world.file("notes.txt"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_the_server_does_not_know_is_ended_and_forgotten() {
    let mut world = World::demo().await;
    let run = world.begin("Buy milk").await;
    world.request(0).await;
    let process = world.pid(run).await;
    world.kill().await;
    world.server.set(|s| s.verdict = Some(Verdict::Unknown));
    world.start().await;
    let folder = world.folder.join("data/sessions").join(world.session.to_string());
    for _ in 0..200 {
        if !folder.exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(!folder.exists());
    ends(process).await;
    assert_eq!(world.file("notes.txt"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_is_refused_in_words() {
    let mut world = World::demo().await;
    let run = RunId(Uuid::now_v7());
    world.harness = "other";
    let reply = world.prompt(run, "x").await;
    assert_eq!(reply.outcome, PromptOutcome::Refused);
    world.harness = "demo";
    world.mode = "yolo".into();
    assert!(world.prompt(run, "x").await.why.unwrap().contains("no mode \"yolo\""));
    world.mode = "ask".into();
    std::fs::remove_dir(world.folder.join("work")).unwrap();
    assert!(world.prompt(run, "x").await.why.unwrap().contains("does not exist"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_and_a_folder_in_use_end_the_worker_with_a_clear_line() {
    let world = World::demo().await;
    let output = world.command().output().await.unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Another worker is using"));
    std::fs::write(world.folder.join("token"), "wrong").unwrap();
    let output = world.command().arg("--data").arg(world.folder.join("other")).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("does not accept this worker's token"), "{stderr}");
    assert!(!stderr.contains("wrong"));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_mode_gets_another_process() {
    let mut world = World::demo().await;
    let run = world.begin("say hi").await;
    world.ended(run).await;
    world.mode = "auto".into();
    let next = world.begin("Buy milk").await;
    assert_eq!(world.ended(next).await.0, RunStatus::Completed);
    assert_ne!(world.pid(next).await, world.pid(run).await);
    assert_eq!(world.file("notes.txt").as_deref(), Some("Buy milk\n"));
    assert!(world.server.seen.lock().unwrap().requests.is_empty());
}
