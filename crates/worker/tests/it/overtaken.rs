//! Orders and answers that overtake each other, holders that do not answer for a while,
//! and harnesses that say what nobody expects.

use std::time::Duration;

use domain::{event::EventBody, id::RunId, run::RunStatus};
use link::message::{CancelOutcome, EffectKind, PromptOutcome, ResolveOutcome};
use rustix::process::{Signal, kill_process};
use uuid::Uuid;

use crate::{
    process::{ends, kill, pid},
    scripted::alarms,
    world::{World, approve, reject},
};

const ALLOW: Option<&str> = Some("allow-once");

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_was_cancelled_before_it_came_never_runs() {
    let mut world = World::demo().await;
    world.mode = "auto".into();
    let run = RunId(Uuid::now_v7());
    assert_eq!(world.cancel(run).await, CancelOutcome::NotRunning);
    assert_eq!(world.prompt(run, "append late.txt: 1").await.outcome, PromptOutcome::AlreadyAccepted);
    // What comes after it is not held up, also in the worker's next life.
    world.kill().await;
    world.start().await;
    assert_eq!(world.prompt(run, "append late.txt: 1").await.outcome, PromptOutcome::AlreadyAccepted);
    let next = world.begin("append notes.txt: 2").await;
    assert_eq!(world.ended(next).await, (RunStatus::Completed, None));
    assert_eq!((world.file("late.txt"), world.file("notes.txt").as_deref()), (None, Some("2\n")));
    let seen = world.server.seen.lock().unwrap();
    assert!(seen.events.iter().all(|e| e.run == next), "{:#?}", seen.events);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_that_comes_with_a_stop_of_the_same_run_runs_nothing() {
    let world = World::demo().await;
    let run = world.begin("both: append a.txt: 1 && append b.txt: 2").await;
    let (first, second) = (world.request(0).await, world.request(1).await);
    let mut stop = world.decision(&first, reject(Some("reject-once"), None));
    stop.answer.stop = true;
    stop.answer_digest =
        domain::digest::AnswerDigest::of(stop.approval, stop.decision, stop.action_digest, &stop.answer);
    let sibling = world.decision(&second, approve(ALLOW));
    // One after the other, as both wait for a worker that was away.
    let (stopped, approved) = tokio::join!(world.server.call(&stop), world.server.call(&sibling));
    assert_eq!(stopped.unwrap().outcome, ResolveOutcome::Applied);
    assert_eq!(approved.unwrap().outcome, ResolveOutcome::NativeGone);
    assert_eq!(world.ended(run).await.0, RunStatus::Cancelled);
    assert_eq!((world.file("a.txt"), world.file("b.txt")), (None, None));
    // The process is of use afterwards.
    let next = world.begin("say again").await;
    assert_eq!(world.ended(next).await.0, RunStatus::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_stopped_because_nobody_answers_says_so() {
    let world = World::demo().await;
    let run = world.begin("append a.txt: 1\nwait 600").await;
    let asked = world.request(0).await;
    let mut answer = reject(Some("reject-once"), None);
    (answer.outcome, answer.stop) = (domain::decision::Outcome::Expire, true);
    assert_eq!(world.resolve(&asked, answer).await.outcome, ResolveOutcome::Applied);
    let (status, why) = world.ended(run).await;
    assert_eq!(status, RunStatus::Error);
    assert!(why.as_deref().is_some_and(|why| why.starts_with("Nobody answered")), "{why:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_does_not_answer_for_a_while_is_not_gone() {
    let mut world = World::demo().await;
    let run = world.begin("Buy milk").await;
    let asked = world.request(0).await;
    let process = world.pid(run).await;
    let holder = pid(world.holders()[0].holder);
    kill_process(holder, Signal::STOP).unwrap();
    world.kill().await;
    world.start().await;
    // Longer than a holder may take to say hello.
    tokio::time::sleep(Duration::from_secs(13)).await;
    {
        let seen = world.server.seen.lock().unwrap();
        assert!(seen.withdrawn.is_empty(), "{:?}", seen.withdrawn);
        assert!(seen.events.iter().all(|e| !matches!(e.body, EventBody::Ended { .. })));
    }
    kill_process(holder, Signal::CONT).unwrap();
    // It may be a moment until it is tried again; until then the decision is not taken.
    let decision = world.decision(&asked, approve(ALLOW));
    let mut outcome = None;
    for _ in 0..100 {
        outcome = world.server.call(&decision).await.ok().map(|reply| reply.outcome);
        if outcome.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(outcome, Some(ResolveOutcome::Applied));
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    assert_eq!(world.file("notes.txt").as_deref(), Some("Buy milk\n"));
    assert_eq!(world.holders()[0].pid, process);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_nobody_knows_of_is_ended_though_its_agent_is_gone() {
    let mut world = World::demo().await;
    let run = world.begin("say hello").await;
    world.ended(run).await;
    let held = world.holders().remove(0);
    world.kill().await;
    kill(held.pid);
    ends(held.pid).await;
    // As after a death between noting the end and telling the holder.
    let session = world.data.join("sessions").join(world.session.to_string());
    std::fs::remove_file(session.join("journal.jsonl")).unwrap();
    world.start().await;
    ends(held.holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_nothing_left_to_do_keeps_no_file_open() {
    let world = World::demo().await;
    let run = world.begin("say hello").await;
    world.ended(run).await;
    let files = format!("/proc/{}/fd", world.worker_pid().as_raw_nonzero());
    let journals = || {
        let open = std::fs::read_dir(&files).unwrap().flatten();
        open.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|f| f.ends_with("journal.jsonl"))).count()
    };
    assert_eq!(journals(), 1);
    world.kill_holders().await;
    let until = std::time::Instant::now() + Duration::from_mins(1);
    while journals() > 0 {
        assert!(std::time::Instant::now() < until, "the journal is open still");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.prompt(run, "say hello").await.outcome, PromptOutcome::AlreadyAccepted);
    let next = world.begin("say again").await;
    assert_eq!(world.ended(next).await.0, RunStatus::Completed);
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_refused_and_ran_all_the_same_raises_an_alarm() {
    let world = World::scripted("ask 7 one; take; result c7; over; cat").await;
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    assert_eq!(world.resolve(&asked, reject(None, Some("no"))).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Ran);
    world.ended(run).await;
    assert!(alarms(&world)[0].contains("a call that was refused"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_an_answer_that_nothing_is_told_of_is_not_known() {
    let world = World::scripted("ask 7 one; take; over; cat").await;
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Unseen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nul_in_what_a_command_writes_is_told_as_its_picture() {
    let mut world = World::demo().await;
    world.mode = "auto".into();
    let run = world.begin(r"run: printf 'a\0b'").await;
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    let seen = world.server.seen.lock().unwrap();
    let told = seen.events.iter().find_map(|e| match &e.body {
        EventBody::Returned { output, .. } => Some(output.clone()),
        _ => None,
    });
    assert!(told.as_ref().is_some_and(|t| t.contains("a\u{2400}b")), "{told:?}");
}
