//! The worker killed on each side of each write of its journal, and at each step of
//! starting a holder. The harness lives on: so everything must come to its end as if
//! nothing had happened, once.

use domain::run::RunStatus;
use link::message::{EffectKind, ResolveOutcome};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    demo::lives,
    dialogue::{Agent, Course, Dialogue, until_over},
    world::{World, approve},
};

/// Kills the worker at its nth passing of a place, for every n there is.
async fn killed(agent: Agent, course: Course, place: &str, at_least: u32) {
    killed_with(agent, course, place, at_least, None).await;
}

/// The same with a second worker that dies soon after it has taken up what the first left.
async fn killed_twice(agent: Agent, course: Course) {
    if !cfg!(debug_assertions) {
        return;
    }
    until_over(async |n| {
        let again = format!("before:{}", 1 + n % 4);
        let label = format!("{agent:?}, {course:?}, killed at before:{n}, then at {again}");
        let mut dialogue = Dialogue::new(agent, course, label).await?;
        dialogue.dies_again = Some(again);
        dialogue.world.spawn(&[("COUNTERSIGN_TEST_DIE", format!("before:{n}"))]);
        dialogue.play().await;
        dialogue.holds();
        Some(dialogue.deaths > 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_dialogue_stands_two_kills() {
    for course in [Course::Approve, Course::Reject, Course::Cancel, Course::RejectAndStop] {
        killed_twice(Agent::Shell, course).await;
        killed_twice(Agent::Claude, course).await;
    }
}

async fn killed_with(agent: Agent, course: Course, place: &str, at_least: u32, compact_at: Option<u64>) {
    if !cfg!(debug_assertions) {
        crate::skipped("without debug assertions a worker cannot be killed at a chosen moment");
        return;
    }
    let deaths = until_over(async |n| {
        let label = format!("{agent:?}, {course:?}, killed at {place}:{n}");
        let mut dialogue = Dialogue::new(agent, course, label).await?;
        if let Some(bytes) = compact_at {
            dialogue.world.env.push(("COUNTERSIGN_TEST_COMPACT_AT".to_owned(), bytes.to_string()));
        }
        dialogue.world.spawn(&[("COUNTERSIGN_TEST_DIE", format!("{place}:{n}"))]);
        dialogue.play().await;
        dialogue.holds();
        Some(dialogue.deaths > 0)
    })
    .await;
    let skipped = agent == Agent::Claude && deaths == 0;
    assert!(deaths >= at_least || skipped, "{agent:?}, {course:?}: it died at {place} only {deaths} times");
}

macro_rules! killed {
    ($($name:ident: $agent:ident $course:ident $place:literal $at_least:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            killed(Agent::$agent, Course::$course, $place, $at_least).await;
        }
    )*};
}

killed! {
    an_approved_dialogue_stands_a_kill_before_each_write: Shell Approve "before" 8;
    an_approved_dialogue_stands_a_kill_after_each_write: Shell Approve "after" 8;
    an_approved_dialogue_stands_a_kill_within_each_write: Shell Approve "torn" 8;
    an_approved_dialogue_stands_a_kill_after_each_sync: Shell Approve "synced" 4;
    a_rejected_dialogue_stands_a_kill_before_each_write: Shell Reject "before" 8;
    a_rejected_dialogue_stands_a_kill_after_each_write: Shell Reject "after" 8;
    a_cancelled_dialogue_stands_a_kill_before_each_write: Shell Cancel "before" 8;
    a_cancelled_dialogue_stands_a_kill_after_each_write: Shell Cancel "after" 8;
    a_stopped_dialogue_stands_a_kill_before_each_write: Shell RejectAndStop "before" 8;
    a_stopped_dialogue_stands_a_kill_after_each_write: Shell RejectAndStop "after" 8;
    claudes_approved_dialogue_stands_a_kill_before_each_write: Claude Approve "before" 8;
    claudes_approved_dialogue_stands_a_kill_after_each_write: Claude Approve "after" 8;
    claudes_rejected_dialogue_stands_a_kill_before_each_write: Claude Reject "before" 8;
    claudes_rejected_dialogue_stands_a_kill_after_each_write: Claude Reject "after" 8;
    claudes_cancelled_dialogue_stands_a_kill_before_each_write: Claude Cancel "before" 8;
    claudes_cancelled_dialogue_stands_a_kill_after_each_write: Claude Cancel "after" 8;
    claudes_stopped_dialogue_stands_a_kill_before_each_write: Claude RejectAndStop "before" 8;
    claudes_stopped_dialogue_stands_a_kill_after_each_write: Claude RejectAndStop "after" 8;
    a_rejected_dialogue_stands_a_kill_within_each_write: Shell Reject "torn" 8;
    a_cancelled_dialogue_stands_a_kill_within_each_write: Shell Cancel "torn" 8;
    claudes_approved_dialogue_stands_a_kill_within_each_write: Claude Approve "torn" 8;
    claudes_cancelled_dialogue_stands_a_kill_within_each_write: Claude Cancel "torn" 8;
    claudes_stopped_dialogue_stands_a_kill_after_each_sync: Claude RejectAndStop "synced" 4;
    a_holder_of_which_only_the_dead_worker_knew_is_ended: Shell Approve "born" 1;
    a_holder_that_was_told_nothing_ends: Shell Approve "spawned" 1;
    a_holder_whose_worker_died_while_it_started_ends: Shell Approve "launched" 1;
}

macro_rules! rewritten {
    ($($name:ident: $agent:ident $course:ident $place:literal $at_least:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            killed_with(Agent::$agent, Course::$course, $place, $at_least, Some(1)).await;
        }
    )*};
}

// With a journal that is rewritten whenever it has doubled.
rewritten! {
    a_journal_stands_a_kill_before_its_new_file_takes_the_old_ones_place: Shell Approve "compacting" 2;
    a_journal_stands_a_kill_after_its_new_file_took_the_old_ones_place: Shell Approve "compacted" 2;
    a_rewritten_journal_stands_a_kill_before_each_write: Shell Approve "before" 8;
    a_rewritten_journal_stands_a_kill_within_each_write: Shell RejectAndStop "torn" 8;
    a_rewritten_journal_of_claude_stands_a_kill_after_each_write: Claude Approve "after" 8;
    claudes_journal_stands_a_kill_before_its_new_file_takes_the_old_ones_place: Claude RejectAndStop "compacting" 2;
}

/// Kills the holder of a process: its parent.
async fn kill_holder_of(process: u32) {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let parent: i32 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    kill_process(Pid::from_raw(parent).unwrap(), Signal::KILL).unwrap();
    for _ in 0..200 {
        if !lives(process) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the agent outlives its holder");
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_dies_with_its_holder_and_what_it_asked_is_withdrawn() {
    let Some(mut dialogue) = Dialogue::new(Agent::Claude, Course::Approve, "holder killed".into()).await
    else {
        return;
    };
    let world = &mut dialogue.world;
    world.start().await;
    let ledger = world.folder.join("work/ledger").display().to_string();
    let run = world.begin(&format!(r#"script:{{"ledger":"{ledger}","do":[{{"ask":{{}}}}]}}"#)).await;
    let asked = world.request(0).await;
    kill_holder_of(world.pid(run).await).await;
    let withdrawn = world.server.see("a withdrawal", |s| s.withdrawn.first().cloned()).await;
    assert!(withdrawn.execution_gone && withdrawn.request_key == asked.0.request_key);
    assert_eq!(world.ended(run).await.0, RunStatus::Error);
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::NativeGone);
    // It may have seen its input end before it was killed: then it refused by itself.
    assert!(!world.file("ledger").is_some_and(|l| l.contains(r#""became":"ran""#)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_whose_effect_nobody_can_have_seen_is_unknown_and_never_given_again() {
    let script = "echo \"$line\" >> prompts; ask 7 one; take; while read -r line; do :; done";
    let mut world = World::scripted(script).await;
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    let decision = world.decision(&asked, approve(None));
    assert_eq!(world.server.call(&decision).await.unwrap().outcome, ResolveOutcome::Applied);
    world.appears("answers").await;
    kill_holder_of(world.pid(run).await).await;
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Unknown);
    let (status, detail) = world.ended(run).await;
    assert_eq!(status, RunStatus::Error);
    assert!(detail.unwrap().contains("process ended"));
    // Neither this worker nor the next gives it to another process.
    for _ in 0..2 {
        let mut again = decision.clone();
        again.epoch = world.server.epoch();
        let outcome = world.server.call(&again).await.unwrap().outcome;
        assert_eq!(outcome, ResolveOutcome::OutcomeUnknown);
        world.kill().await;
        world.start().await;
    }
    assert_eq!(world.file("answers").unwrap().lines().count(), 1);
    assert_eq!(world.file("prompts").unwrap().lines().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_program_was_replaced_still_starts_agents() {
    let script = "ask 7 one; take; result c7; over; cat";
    let mut world = World::scripted_without_worker(script).await;
    let program = world.folder.join("countersign-worker");
    std::fs::copy(env!("CARGO_BIN_EXE_countersign-worker"), &program).unwrap();
    world.spawn_from(&program);
    world.linked(1).await;
    // As an update does, between taking the old one away and putting the new one there.
    std::fs::remove_file(&program).unwrap();
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    assert_eq!(world.resolve(&asked, approve(None)).await.outcome, ResolveOutcome::Applied);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
}
