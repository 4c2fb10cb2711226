//! What tests change from outside, to kill a worker at a chosen moment. Only in builds
//! with debug assertions; elsewhere every function here is empty and the variables are
//! not read.
//!
//! `COUNTERSIGN_TEST_DIE=PLACE:N` lets the process die as by SIGKILL when it passes
//! PLACE for the Nth time: `before`, `torn` (half of the line is written) and `after`
//! an append to any journal, `synced` after a journal's sync, `compacting` (the new
//! file is written) and `compacted` (it has taken the old one's place), `spawned` (a
//! holder runs and knows nothing), `launched` (it knows what to start), `born` (it has
//! told of its harness).
//!
//! `COUNTERSIGN_TEST_COMPACT_AT=BYTES` is the size beyond which a journal is rewritten.

#[cfg(debug_assertions)]
use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

#[cfg(debug_assertions)]
static DEATH: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
    let text = std::env::var("COUNTERSIGN_TEST_DIE").ok()?;
    let (place, n) = text.split_once(':')?;
    Some((place.to_owned(), n.parse().ok()?))
});

#[cfg(debug_assertions)]
static PASSED: AtomicU64 = AtomicU64::new(0);

/// Whether the process is to die here and now. Counts.
#[cfg(debug_assertions)]
pub fn dies(place: &str) -> bool {
    DEATH.as_ref().is_some_and(|(at, n)| at == place && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *n)
}

/// Whether the process is to die here and now.
#[cfg(not(debug_assertions))]
pub const fn dies(_place: &str) -> bool {
    false
}

/// Dies, without unwinding and without a word.
#[cfg(debug_assertions)]
pub fn die() {
    use rustix::process::{Signal, getpid, kill_process};
    let _ = kill_process(getpid(), Signal::KILL);
    // The signal may take a moment; nothing more is done meanwhile.
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Never asked for here.
#[cfg(not(debug_assertions))]
pub const fn die() {}

/// Dies here, if it is to.
pub fn pass(place: &str) {
    if dies(place) {
        die();
    }
}

/// The size of a journal beyond which it is rewritten, instead of `usual`.
#[cfg(debug_assertions)]
pub fn compact_at(usual: u64) -> u64 {
    std::env::var("COUNTERSIGN_TEST_COMPACT_AT").ok().and_then(|t| t.parse().ok()).unwrap_or(usual)
}

/// The size of a journal beyond which it is rewritten.
#[cfg(not(debug_assertions))]
pub const fn compact_at(usual: u64) -> u64 {
    usual
}
