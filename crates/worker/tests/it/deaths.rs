//! The worker killed on each side of each write of its journal, and at each step of
//! starting a holder. The harness lives on: so everything must come to its end as if
//! nothing had happened, once.

use std::sync::atomic::{AtomicU32, Ordering};

use domain::run::RunStatus;
use link::message::{EffectKind, ResolveOutcome};

use crate::{
    dialogue::{Agent, Course, Dialogue, claude, until_over},
    process::{ends, kill, parent},
    world::{World, approve},
};

/// Whether a worker can be killed at a chosen moment of a dialogue with this agent.
fn can_be_killed(agent: Agent) -> bool {
    if !cfg!(debug_assertions) {
        crate::skipped("without debug assertions a worker cannot be killed at a chosen moment");
    }
    cfg!(debug_assertions) && agent.is_there()
}

/// Kills the worker at its nth passing of a place, for every n there is.
async fn killed(agent: Agent, course: Course, place: &str, at_least: u32) {
    killed_with(agent, course, place, at_least, None).await;
}

/// The same with a second worker that dies soon after it has taken up what the first left.
async fn killed_twice(agent: Agent, course: Course) {
    if !can_be_killed(agent) {
        return;
    }
    let twice = AtomicU32::new(0);
    until_over(async |n| {
        let again = format!("before:{}", 1 + n % 4);
        let label = format!("{agent:?}, {course:?}, killed at before:{n}, then at {again}");
        let mut dialogue = Dialogue::new(agent, course, label).await;
        dialogue.dies_again = Some(again);
        dialogue.world.spawn(&[("COUNTERSIGN_TEST_DIE", format!("before:{n}"))]);
        dialogue.play().await;
        dialogue.holds();
        twice.fetch_add(u32::from(dialogue.deaths > 1), Ordering::Relaxed);
        dialogue.deaths > 0
    })
    .await;
    let twice = twice.into_inner();
    assert!(twice >= 4, "{agent:?}, {course:?}: only {twice} workers died after another");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_dialogue_stands_two_kills() {
    for course in [Course::Approve, Course::Reject, Course::Cancel, Course::RejectAndStop] {
        killed_twice(Agent::Shell, course).await;
        killed_twice(Agent::Claude, course).await;
    }
}

async fn killed_with(agent: Agent, course: Course, place: &str, at_least: u32, compact_at: Option<u64>) {
    if !can_be_killed(agent) {
        return;
    }
    let deaths = until_over(async |n| {
        let label = format!("{agent:?}, {course:?}, killed at {place}:{n}");
        let mut dialogue = Dialogue::new(agent, course, label).await;
        if let Some(bytes) = compact_at {
            dialogue.world.env.push(("COUNTERSIGN_TEST_COMPACT_AT".to_owned(), bytes.to_string()));
        }
        dialogue.world.spawn(&[("COUNTERSIGN_TEST_DIE", format!("{place}:{n}"))]);
        dialogue.play().await;
        dialogue.holds();
        dialogue.deaths > 0
    })
    .await;
    assert!(deaths >= at_least, "{agent:?}, {course:?}: it died at {place} only {deaths} times");
}

/// The same where the harness and its holder are killed before the next worker starts.
async fn killed_together(agent: Agent, course: Course, place: &str, at_least: u32) {
    if !can_be_killed(agent) {
        return;
    }
    let unknown = AtomicU32::new(0);
    let deaths = until_over(async |n| {
        let label = format!("{agent:?}, {course:?}, killed together at {place}:{n}");
        let mut dialogue = Dialogue::new(agent, course, label).await;
        dialogue.harness_dies = true;
        dialogue.world.spawn(&[("COUNTERSIGN_TEST_DIE", format!("{place}:{n}"))]);
        dialogue.play().await;
        let effect = dialogue.holds_though_gone();
        unknown.fetch_add(u32::from(effect == Some(EffectKind::Unknown)), Ordering::Relaxed);
        dialogue.deaths > 0
    })
    .await;
    assert!(deaths >= at_least, "{agent:?}, {course:?}: they died at {place} only {deaths} times");
    let unknown = unknown.into_inner();
    assert!(unknown > 0 || course == Course::Cancel, "{agent:?}, {course:?}: no answer was under way");
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

macro_rules! killed_together {
    ($($name:ident: $agent:ident $course:ident $place:literal $at_least:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            killed_together(Agent::$agent, Course::$course, $place, $at_least).await;
        }
    )*};
}

// Gone without an intent: withdrawn. With one, and no result seen: unknown, and given to
// nobody else.
killed_together! {
    an_approved_agent_that_dies_with_its_worker_before_a_write_is_told_of_truly: Shell Approve "before" 8;
    an_approved_agent_that_dies_with_its_worker_after_a_write_is_told_of_truly: Shell Approve "after" 8;
    an_approved_agent_that_dies_with_its_worker_within_a_write_is_told_of_truly: Shell Approve "torn" 8;
    a_rejected_agent_that_dies_with_its_worker_is_told_of_truly: Shell Reject "after" 8;
    a_cancelled_agent_that_dies_with_its_worker_is_told_of_truly: Shell Cancel "after" 8;
    an_approved_claude_that_dies_with_its_worker_is_told_of_truly: Claude Approve "after" 8;
    a_cancelled_claude_that_dies_with_its_worker_is_told_of_truly: Claude Cancel "before" 8;
    a_stopped_claude_that_dies_with_its_worker_is_told_of_truly: Claude RejectAndStop "after" 8;
}

/// Kills the holder of a process: its parent.
async fn kill_holder_of(process: u32) {
    kill(parent(process));
    ends(process).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_dies_with_its_holder_and_what_it_asked_is_withdrawn() {
    if !Agent::Claude.is_there() {
        return;
    }
    let mut world = claude().await;
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
