//! What a session must remember over the worker's death: an append-only file of
//! entries, one JSON object a line, folded into a [`State`].
//!
//! A line of the harness and everything made of it is one entry, so each line counts
//! exactly once. What is about to be handed to a harness is written and synced before
//! it is handed over. A torn last line is from a crash while writing and is dropped: it
//! was never acted on.

use std::{
    collections::VecDeque,
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use domain::{
    agent::AgentSpec,
    approval::RequestKey,
    decision::Outcome,
    digest::ActionDigest,
    event::EventBody,
    id::{ApprovalId, DecisionId, Incarnation, RunId},
    time::Timestamp,
};
use link::message::{EffectKind, PendingRequest};
use serde::{Deserialize, Serialize};

use crate::{
    drivers::{Ask, Driver},
    folder::{private, sync_folder_of},
    hold::wire::Held,
    trial,
};

/// A file beyond this size is rewritten, unless most of it is still needed.
const COMPACT_AT: u64 = 4 * 1024 * 1024;
/// Settled requests and ended runs that are remembered, to answer repeated messages.
const REMEMBERED: usize = 200;

/// One step of a session.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub enum Entry {
    /// Everything before it, folded.
    Snapshot { state: Box<State> },
    /// A prompt was accepted. Synced before the server learns it.
    Prompt { run: RunId, agent: AgentSpec, text: String },
    /// A harness process runs.
    Started { process: Box<Process> },
    /// The prompt is about to be handed over, as this line.
    Writing { run: RunId, line: String, driver: Driver },
    /// The run is being stopped: by a person, or because of what `failed` says.
    Cancelling { run: RunId, failed: Option<String> },
    /// Lines up to `offset` were read and came to this.
    Progress { offset: u64, driver: Option<Driver>, changes: Vec<Change> },
    /// The server has stored the request.
    Stored { key: RequestKey, approval: ApprovalId },
    /// This answer is about to be handed over.
    Intent { key: RequestKey, intent: Intent },
    /// The answer was handed over.
    Applied { key: RequestKey },
    /// The server knows how the request ended.
    Reported { key: RequestKey },
    /// The server has stored all events up to `seq`.
    Acked { seq: i64 },
    /// The server had stored more events than are known here: those that wait are renumbered.
    Renumbered { stored: i64 },
    /// The process is gone.
    Gone { changes: Vec<Change> },
}

/// What a line, or the end of a process, changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    Event {
        event: Event,
    },
    Asked {
        request: Box<Request>,
    },
    Withdrawn {
        key: RequestKey,
        reason: String,
        gone: bool,
    },
    Effect {
        key: RequestKey,
        effect: EffectKind,
    },
    NativeSession {
        id: String,
    },
    /// The prompt was handed over.
    Written {
        run: RunId,
    },
    /// The run is over; its last event stands before this.
    Ended {
        run: RunId,
    },
}

/// An event that is made and not yet known to be stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub seq: i64,
    pub run: RunId,
    pub at: Timestamp,
    pub body: EventBody,
}

/// A harness process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub held: Held,
    pub harness: String,
    pub mode: String,
    #[serde(default)]
    pub asks_everything: bool,
    pub folder: String,
    /// Where reading its lines goes on.
    pub offset: u64,
    pub driver: Driver,
}

/// How far a run's prompt has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Prompted {
    Accepted,
    Writing { line: String },
    Written,
}

/// The run that goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    pub agent: AgentSpec,
    pub text: String,
    pub prompted: Prompted,
    pub cancelling: bool,
    /// Why it is stopped and will count as an error.
    pub failed: Option<String>,
}

/// A native request, from its line to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub key: RequestKey,
    pub run: RunId,
    pub ask: Ask,
    pub digest: ActionDigest,
    pub after_seq: i64,
    pub asked_at: Timestamp,
    /// The folder and harness the digest was taken with.
    pub folder: String,
    pub harness: String,
    pub mode: String,
    pub approval: Option<ApprovalId>,
    pub intent: Option<Intent>,
    pub applied: bool,
    pub end: Option<End>,
    /// The server knows the end.
    pub reported: bool,
}

impl Request {
    /// Whether the harness waits and nobody has answered.
    pub const fn is_open(&self) -> bool {
        self.end.is_none() && self.intent.is_none()
    }
}

/// An answer, exactly as it is handed over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intent {
    pub decision: DecisionId,
    pub approval: ApprovalId,
    pub outcome: Outcome,
    pub line: String,
    /// Handed over after it.
    #[serde(default)]
    pub follow_up: Option<String>,
    /// The permission modes the answer allows the harness to go over to.
    #[serde(default)]
    pub modes: Vec<String>,
    /// End the run afterwards.
    pub stop: bool,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    Withdrawn { reason: String, gone: bool },
    Effect(EffectKind),
}

/// A session, folded from its entries.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The last event made.
    pub made: i64,
    /// The last event known to be stored.
    pub acked: i64,
    /// Events after `acked`, in order, without gaps.
    pub events: VecDeque<Event>,
    pub native_session: Option<String>,
    pub process: Option<Process>,
    pub run: Option<Run>,
    /// Runs that are over, the newest last.
    pub over: VecDeque<RunId>,
    pub requests: VecDeque<Request>,
}

impl State {
    pub fn request(&self, key: &RequestKey) -> Option<&Request> {
        self.requests.iter().find(|r| r.key == *key)
    }

    fn request_mut(&mut self, key: &RequestKey) -> Option<&mut Request> {
        self.requests.iter_mut().find(|r| r.key == *key)
    }

    pub fn incarnation(&self) -> Option<Incarnation> {
        self.process.as_ref().map(|p| p.held.incarnation)
    }

    /// Every native request that still waits, for the hello.
    pub fn pending(&self) -> Vec<PendingRequest> {
        let waits = self.requests.iter().filter(|r| r.end.is_none() && !r.applied);
        waits.map(|r| PendingRequest { request_key: r.key.clone(), action_digest: r.digest }).collect()
    }

    /// Whether the server should hear of this session at hello.
    pub fn is_told(&self) -> bool {
        self.process.is_some()
            || self.run.is_some()
            || self.acked < self.made
            || self.requests.iter().any(|r| r.end.is_some() && !r.reported)
    }

    /// Applies an entry.
    pub fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Snapshot { state } => *self = *state,
            Entry::Prompt { run, agent, text } => {
                let prompted = Prompted::Accepted;
                self.run = Some(Run { id: run, agent, text, prompted, cancelling: false, failed: None });
            }
            Entry::Started { process } => self.process = Some(*process),
            Entry::Writing { run, line, driver } => {
                if let Some(r) = self.run.as_mut().filter(|r| r.id == run) {
                    r.prompted = Prompted::Writing { line };
                }
                if let Some(process) = &mut self.process {
                    process.driver = driver;
                }
            }
            Entry::Cancelling { run, failed } => {
                if let Some(r) = self.run.as_mut().filter(|r| r.id == run) {
                    r.cancelling = true;
                    r.failed = failed;
                }
            }
            Entry::Progress { offset, driver, changes } => {
                if let Some(process) = &mut self.process {
                    process.offset = offset;
                    if let Some(driver) = driver {
                        process.driver = driver;
                    }
                }
                for change in changes {
                    self.change(change);
                }
            }
            Entry::Stored { key, approval } => {
                if let Some(r) = self.request_mut(&key) {
                    r.approval = Some(approval);
                }
            }
            Entry::Intent { key, intent } => {
                if let Some(process) = self.process.as_mut().filter(|p| p.held.incarnation == key.incarnation)
                {
                    process.driver.answering(&intent);
                }
                if let Some(r) = self.request_mut(&key) {
                    r.intent = Some(intent);
                }
            }
            Entry::Applied { key } => {
                if let Some(r) = self.request_mut(&key) {
                    r.applied = true;
                }
            }
            Entry::Reported { key } => {
                if let Some(r) = self.request_mut(&key) {
                    r.reported = true;
                    // What stays only answers repeated messages, and those name the digest.
                    r.ask.input.0 = Vec::new();
                    r.ask.grants = Vec::new();
                    if let Some(intent) = &mut r.intent {
                        (intent.line, intent.follow_up) = (String::new(), None);
                    }
                }
                self.forget();
            }
            Entry::Acked { seq } => {
                self.acked = self.acked.max(seq.min(self.made));
                while self.events.front().is_some_and(|e| e.seq <= self.acked) {
                    self.events.pop_front();
                }
            }
            Entry::Renumbered { stored } => {
                let by = stored - self.acked;
                (self.acked, self.made) = (stored, self.made + by);
                self.events.iter_mut().for_each(|e| e.seq += by);
            }
            Entry::Gone { changes } => {
                for change in changes {
                    self.change(change);
                }
                self.process = None;
            }
        }
    }

    /// Applies one change.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::Event { event } => {
                self.made = event.seq;
                self.events.push_back(event);
            }
            Change::Asked { request } => self.requests.push_back(*request),
            Change::Withdrawn { key, reason, gone } => {
                if let Some(r) = self.request_mut(&key) {
                    r.end = Some(End::Withdrawn { reason, gone });
                }
            }
            Change::Effect { key, effect } => {
                if let Some(r) = self.request_mut(&key) {
                    r.end = Some(End::Effect(effect));
                }
            }
            Change::Written { run } => {
                if let Some(r) = self.run.as_mut().filter(|r| r.id == run) {
                    r.prompted = Prompted::Written;
                }
            }
            Change::NativeSession { id } => self.native_session = Some(id),
            Change::Ended { run } => {
                if self.run.as_ref().is_some_and(|r| r.id == run) {
                    self.run = None;
                }
                self.over.push_back(run);
                if self.over.len() > REMEMBERED {
                    self.over.pop_front();
                }
            }
        }
    }

    fn forget(&mut self) {
        while self.requests.len() > REMEMBERED {
            let Some(at) = self.requests.iter().position(|r| r.reported) else { return };
            self.requests.remove(at);
        }
    }
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{0} cannot be used: {1}.")]
    Io(PathBuf, io::Error),
    #[error("{path} cannot be read at line {line}. Nothing of this session is written to any agent.")]
    Damaged { path: PathBuf, line: usize },
}

/// The journal of a session, open for appending.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes in the file.
    size: u64,
    /// The size beyond which it is rewritten next.
    compact_at: u64,
}

impl Journal {
    /// Opens or makes the journal at `path` and folds it.
    pub fn open(path: &Path) -> Result<(Self, State), JournalError> {
        let io = |e| JournalError::Io(path.to_owned(), e);
        let bytes = match std::fs::read(path) {
            Ok(bytes) => Some(bytes),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(io(e)),
        };
        let is_new = bytes.is_none();
        let bytes = bytes.unwrap_or_default();
        let (state, good) = fold(path, &bytes)?;
        let file = private(OpenOptions::new().append(true).create(true)).open(path).map_err(io)?;
        if good < bytes.len() {
            file.set_len(good as u64).map_err(io)?;
        }
        if is_new {
            sync_folder_of(path).map_err(io)?;
        }
        let compact_at = trial::compact_at(COMPACT_AT);
        let mut journal = Self { path: path.to_owned(), file, size: good as u64, compact_at };
        journal.compact_if_long(&state).map_err(io)?;
        Ok((journal, state))
    }

    /// Appends an entry, with one write.
    pub fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let line = line_of(entry)?;
        trial::pass("before");
        if trial::dies("torn") {
            let _ = self.file.write_all(&line[..line.len() / 2]);
            trial::die();
        }
        self.file.write_all(&line)?;
        self.size += line.len() as u64;
        trial::pass("after");
        Ok(())
    }

    /// Makes sure that what was appended outlives the machine.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        trial::pass("synced");
        Ok(())
    }

    /// Rewrites a long file as the one entry it comes to, which `state` must be. At every
    /// moment the path names a whole journal: the old one, or the new one once that is on
    /// disk. Where there is no room for it, the old one is gone on with.
    pub fn compact_if_long(&mut self, state: &State) -> io::Result<()> {
        if self.size <= self.compact_at {
            return Ok(());
        }
        debug_assert_eq!(
            std::fs::read(&self.path).ok().and_then(|b| fold(&self.path, &b).ok()).map(|f| f.0).as_ref(),
            Some(state),
            "the state is not what was journalled"
        );
        let line = line_of(&Entry::Snapshot { state: Box::new(state.clone()) })?;
        let new = self.path.with_extension("new");
        let written = write_new(&new, &line).and_then(|file| {
            trial::pass("compacting");
            std::fs::rename(&new, &self.path)?;
            Ok(file)
        });
        match written {
            Ok(file) => {
                (self.file, self.size) = (file, line.len() as u64);
                trial::pass("compacted");
                // What is appended from now on is only worth something if this file is found.
                sync_folder_of(&self.path)?;
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "a journal could not be rewritten");
                let _ = std::fs::remove_file(&new);
            }
        }
        // A state that is large itself is not rewritten with every entry.
        self.compact_at = trial::compact_at(COMPACT_AT).max(self.size.saturating_mul(2));
        Ok(())
    }
}

/// A new file with these bytes, on disk, open for appending.
fn write_new(path: &Path, bytes: &[u8]) -> io::Result<File> {
    // What a worker that died here before had left is not gone on with.
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = private(OpenOptions::new().append(true).create_new(true)).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    Ok(file)
}

fn line_of(entry: &Entry) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    Ok(line)
}

/// The state of all whole lines, and how many bytes those are.
fn fold(path: &Path, bytes: &[u8]) -> Result<(State, usize), JournalError> {
    let (mut state, mut good) = (State::default(), 0);
    for (number, line) in bytes.split_inclusive(|b| *b == b'\n').enumerate() {
        let whole = line.ends_with(b"\n");
        match serde_json::from_slice::<Entry>(line) {
            Ok(entry) if whole => state.apply(entry),
            _ if good + line.len() == bytes.len() => break,
            _ => return Err(JournalError::Damaged { path: path.to_owned(), line: number + 1 }),
        }
        good += line.len();
    }
    Ok((state, good))
}

#[cfg(test)]
mod tests {
    use domain::{id::AgentId, run::RunStatus};
    use link::message::Bytes;
    use uuid::Uuid;

    use super::*;

    fn run() -> RunId {
        RunId(Uuid::from_u128(1))
    }

    fn prompt() -> Entry {
        let agent = AgentSpec {
            id: AgentId(Uuid::nil()),
            name: "Demo".into(),
            harness: "demo".into(),
            folder: "/w".into(),
            mode: "ask".into(),
            asks_everything: false,
            hitl_timeout_s: 900,
        };
        Entry::Prompt { run: run(), agent, text: "hi".into() }
    }

    fn event(seq: i64) -> Change {
        let body = EventBody::Ended { status: RunStatus::Completed, detail: None };
        Change::Event { event: Event { seq, run: run(), at: Timestamp(0), body } }
    }

    fn key() -> RequestKey {
        RequestKey { incarnation: Incarnation(Uuid::nil()), native_id: "5".into() }
    }

    fn asked() -> Change {
        let ask = Ask {
            native_id: "5".into(),
            tool: "edit".into(),
            input: Bytes(b"{}".to_vec()),
            sub_agent: None,
            call_id: None,
            words: None,
            options: Vec::new(),
            sub_agent_title: None,
            grants: Vec::new(),
        };
        Change::Asked {
            request: Box::new(Request {
                key: key(),
                run: run(),
                ask,
                digest: ActionDigest([0; 32]),
                after_seq: 1,
                asked_at: Timestamp(0),
                folder: "/w".into(),
                harness: "demo".into(),
                mode: "ask".into(),
                approval: None,
                intent: None,
                applied: false,
                end: None,
                reported: false,
            }),
        }
    }

    fn progress(changes: Vec<Change>) -> Entry {
        Entry::Progress { offset: 0, driver: None, changes }
    }

    #[test]
    fn entries_fold_to_the_same_state_read_back_torn_or_compacted() {
        let path = std::env::temp_dir().join(format!("cs-journal-{}", Uuid::new_v4()));
        let (mut journal, mut state) = Journal::open(&path).unwrap();
        for entry in [
            prompt(),
            progress(vec![Change::Written { run: run() }]),
            progress(vec![event(1), asked()]),
            Entry::Stored { key: key(), approval: ApprovalId(Uuid::nil()) },
            progress(vec![event(2)]),
            Entry::Acked { seq: 1 },
        ] {
            journal.append(&entry).unwrap();
            state.apply(entry);
        }
        assert_eq!((state.made, state.acked, state.events.len()), (2, 1, 1));
        assert_eq!(state.pending().len(), 1);
        journal.sync().unwrap();
        assert_eq!(Journal::open(&path).unwrap().1, state);
        journal.file.write_all(br#"{"entry":"acked","se"#).unwrap();
        let (mut journal, read) = Journal::open(&path).unwrap();
        assert_eq!(read, state);
        journal.append(&Entry::Acked { seq: 2 }).unwrap();
        assert_eq!(Journal::open(&path).unwrap().1.acked, 2);
        let snapshot = Entry::Snapshot { state: Box::new(state.clone()) };
        std::fs::write(&path, line_of(&snapshot).unwrap()).unwrap();
        assert_eq!(Journal::open(&path).unwrap().1, state);
        std::fs::remove_file(path).unwrap();
    }

    /// A journal that was written to until it is long.
    fn long(path: &Path) -> (Journal, State) {
        let (mut journal, mut state) = Journal::open(path).unwrap();
        for entry in [prompt(), progress(vec![event(1), asked()])] {
            journal.append(&entry).unwrap();
            state.apply(entry);
        }
        while journal.size <= COMPACT_AT {
            let native = Change::NativeSession { id: "x".repeat(100_000) };
            journal.append(&progress(vec![native])).unwrap();
        }
        let native = progress(vec![Change::NativeSession { id: "s".into() }]);
        journal.append(&native).unwrap();
        let id = "x".repeat(100_000);
        state.apply(progress(vec![Change::NativeSession { id }]));
        state.apply(native);
        (journal, state)
    }

    #[test]
    fn a_long_journal_is_rewritten_while_it_is_written_to() {
        let path = std::env::temp_dir().join(format!("cs-journal-{}.jsonl", Uuid::new_v4()));
        let (mut journal, mut state) = long(&path);
        // What a worker that died while rewriting had left.
        std::fs::write(path.with_extension("new"), "half a snapsh").unwrap();
        journal.compact_if_long(&state).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 10_000);
        assert!(!path.with_extension("new").exists());
        let entry = Entry::Acked { seq: 1 };
        journal.append(&entry).unwrap();
        journal.sync().unwrap();
        state.apply(entry);
        assert_eq!(Journal::open(&path).unwrap().1, state);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_long_state_is_not_rewritten_with_every_entry() {
        let path = std::env::temp_dir().join(format!("cs-journal-{}.jsonl", Uuid::new_v4()));
        let (mut journal, mut state) = long(&path);
        let entry = progress(vec![Change::NativeSession { id: "x".repeat(5_000_000) }]);
        journal.append(&entry).unwrap();
        state.apply(entry);
        journal.compact_if_long(&state).unwrap();
        let size = journal.size;
        assert!(size > COMPACT_AT);
        journal.append(&Entry::Acked { seq: 1 }).unwrap();
        state.apply(Entry::Acked { seq: 1 });
        journal.compact_if_long(&state).unwrap();
        assert!(journal.size > size, "it was rewritten for one entry");
        assert_eq!(Journal::open(&path).unwrap().1, state);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn where_a_journal_cannot_be_rewritten_the_old_one_is_gone_on_with() {
        let path = std::env::temp_dir().join(format!("cs-journal-{}.jsonl", Uuid::new_v4()));
        let (mut journal, mut state) = long(&path);
        std::fs::create_dir(path.with_extension("new")).unwrap();
        let size = journal.size;
        journal.compact_if_long(&state).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), size);
        journal.append(&Entry::Acked { seq: 1 }).unwrap();
        state.apply(Entry::Acked { seq: 1 });
        assert_eq!(Journal::open(&path).unwrap().1, state);
        std::fs::remove_dir(path.with_extension("new")).unwrap();
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_was_settled_keeps_no_input_and_no_answer() {
        let mut state = State::default();
        state.apply(prompt());
        let mut change = asked();
        if let Change::Asked { request } = &mut change {
            request.ask.input.0 = vec![b'x'; 100_000];
            request.intent = Some(Intent {
                decision: DecisionId(Uuid::nil()),
                approval: ApprovalId(Uuid::nil()),
                outcome: Outcome::Approve,
                line: "x".repeat(100_000),
                follow_up: Some("x".repeat(100_000)),
                modes: Vec::new(),
                stop: false,
            });
        }
        state.apply(progress(vec![change, Change::Effect { key: key(), effect: EffectKind::Ran }]));
        state.apply(Entry::Reported { key: key() });
        assert!(serde_json::to_vec(&state).unwrap().len() < 5000);
    }

    #[test]
    fn damage_in_the_middle_is_not_passed_over() {
        let path = std::env::temp_dir().join(format!("cs-journal-{}", Uuid::new_v4()));
        std::fs::write(&path, "{\"entry\":\n{\"entry\":\"acked\",\"seq\":1}\n").unwrap();
        assert!(matches!(Journal::open(&path), Err(JournalError::Damaged { line: 1, .. })));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_run_that_ended_is_remembered_and_its_requests_until_reported() {
        let mut state = State::default();
        state.apply(prompt());
        state.apply(progress(vec![
            asked(),
            Change::Withdrawn { key: key(), reason: "x".into(), gone: true },
            event(1),
            Change::Ended { run: run() },
        ]));
        assert_eq!((state.run.as_ref(), state.over.back()), (None, Some(&run())));
        assert!(state.pending().is_empty() && state.is_told());
        state.apply(Entry::Reported { key: key() });
        state.apply(Entry::Acked { seq: 9 });
        assert!(!state.is_told());
        assert_eq!(state.acked, 1);
    }

    #[test]
    fn events_the_server_already_counts_are_not_lost() {
        let mut state = State::default();
        state.apply(progress(vec![event(1), event(2)]));
        state.apply(Entry::Renumbered { stored: 7 });
        assert_eq!((state.acked, state.made), (7, 9));
        assert_eq!(state.events.iter().map(|e| e.seq).collect::<Vec<_>>(), [8, 9]);
    }
}
