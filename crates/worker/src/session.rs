//! One session: its journal, its harness, and what the server orders. Everything of a
//! session happens in one task, one thing after the other; a cancel goes first.
//!
//! The order of things that matters: an answer is journalled as an intent and synced
//! before it is handed over, and as applied after the holder has confirmed it. The
//! holder never hands over the same id twice, so after a crash the same line is simply
//! sent again. A line of the harness is journalled with all that came of it.

use std::{
    collections::{HashMap, HashSet},
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use domain::{
    approval::RequestKey,
    decision::Outcome,
    digest::{ActionDigest, ActionFields, AnswerDigest},
    event::EventBody,
    id::{Incarnation, RunId, SessionId},
    run::RunStatus,
    time::Timestamp,
};
use futures::FutureExt as _;
use link::{
    frame::{INVALID_PARAMS, REFUSED, RpcError, UNAVAILABLE},
    message::{
        Cancel, CancelOutcome, CancelReply, Effect, EffectKind, HeldSession, PermissionRequest,
        PermissionStored, Prompt, PromptOutcome, PromptReply, Resolve, ResolveOutcome, ResolveReply,
        SessionEvent, WINDOW, Withdrawn,
    },
    sequence::Outbox,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use crate::{
    bounds,
    drivers::{Answered, Ask, Driver, Step, TOO_LARGE},
    folder::DataFolder,
    harness::{Harness, Report},
    hold::wire::{Exit, Launch, ToHolder},
    journal::{
        Change, End, Entry, Event, Intent, Journal, JournalError, Process, Prompted, Request, Run, State,
    },
    offer::Offer,
    uplink::{CallError, Link},
};

/// The largest action that fits a frame, as base64 with room for the rest.
const INPUT_MAX: usize = 5 * 1024 * 1024;
/// How long a harness may take until it can be prompted.
const HANDSHAKE: Duration = Duration::from_mins(1);
/// How long a harness may take to stop a turn before it is killed.
const STOPPING: Duration = Duration::from_secs(10);
/// How long the words of a refusal may take to show before the run is stopped.
const WORDS_FIRST: Duration = Duration::from_secs(3);
/// How long a harness whose background work has ended may take to begin a turn by itself.
const SETTLING: Duration = Duration::from_secs(2);
/// How long a harness may take to end.
const ENDING: Duration = Duration::from_secs(5);
/// How long text is held back to be told in larger pieces.
const HOLD_TEXT: Duration = Duration::from_millis(150);
/// Between two tries to tell the server something it did not take.
const RETRY: Duration = Duration::from_secs(2);
/// Lines read and not yet journalled, in bytes, because they came to nothing.
const READ_AHEAD: u64 = 256 * 1024;
/// Events that wait for the server, beyond which the harness's lines stay in the
/// holder's spool.
const EVENTS_MAX: usize = 4096;
/// How long a session with nothing left to do keeps its task and its open journal.
const LINGER: Duration = Duration::from_secs(10);
/// A worker that cannot write its journal must not go on.
const EXIT_JOURNAL: i32 = 5;

/// What all sessions of a worker share.
#[derive(Debug)]
pub struct Settings {
    pub data: DataFolder,
    /// This program, for starting holders.
    pub exe: PathBuf,
    pub offers: Vec<Offer>,
    /// How long a harness may have nothing to do before it is ended; the next message
    /// takes its conversation up in a new process. Nothing: it is kept.
    pub idle_end: Option<Duration>,
}

/// Where the answer to an order goes.
pub type Reply<T> = oneshot::Sender<Result<T, RpcError>>;

/// What a session is told.
#[derive(Debug)]
pub enum Order {
    Prompt(Prompt, Reply<PromptReply>),
    Resolve(Resolve, Reply<ResolveReply>),
    /// A next message waits: end the run if only background work goes on.
    Finish(RunId),
    /// End the harness; the session stays.
    Close,
    /// The server does not know the session: end its harness and forget it.
    Forget,
    /// The worker ends: end the harness, then say so.
    Shutdown(oneshot::Sender<()>),
    Acked(i64),
    /// The server's answer to what was told about a request.
    Told {
        key: RequestKey,
        epoch: i64,
        told: Told,
    },
}

/// What goes before every order that waits.
#[derive(Debug)]
enum Urgent {
    Linked { link: Link, acked: i64 },
    Unlinked,
    Cancel(Cancel, Reply<CancelReply>),
}

/// What the server answered.
#[derive(Debug)]
pub enum Told {
    Request(Result<PermissionStored, CallError>),
    End(Result<(), CallError>),
}

/// The outside of a session.
#[derive(Clone, Debug)]
pub struct Handle {
    pub orders: mpsc::UnboundedSender<Order>,
    urgent: mpsc::UnboundedSender<Urgent>,
    held: Arc<Mutex<Option<HeldSession>>>,
}

impl Handle {
    pub fn cancel(&self, cancel: Cancel, reply: Reply<CancelReply>) {
        let _ = self.urgent.send(Urgent::Cancel(cancel, reply));
    }

    /// There is a link; the server has stored the events up to `acked`.
    pub fn linked(&self, link: Link, acked: i64) {
        let _ = self.urgent.send(Urgent::Linked { link, acked });
    }

    pub fn unlinked(&self) {
        let _ = self.urgent.send(Urgent::Unlinked);
    }

    /// What the hello says of it; nothing where there is nothing to say.
    pub fn held(&self) -> Option<HeldSession> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[expect(clippy::struct_excessive_bools, reason = "each is set and read alone; none excludes another")]
struct Session {
    key: SessionId,
    settings: Arc<Settings>,
    folder: PathBuf,
    journal: Journal,
    state: State,
    outbox: Outbox,
    harness: Option<Harness>,
    /// The driver as of the last line read; the journalled one may be older.
    driver: Option<Driver>,
    /// The end of the last line read.
    read: u64,
    link: Option<Link>,
    myself: mpsc::UnboundedSender<Order>,
    held: Arc<Mutex<Option<HeldSession>>>,
    resolvers: Vec<(RequestKey, Reply<ResolveReply>)>,
    /// Requests the server is being told about.
    telling: HashSet<RequestKey>,
    retry_at: HashMap<RequestKey, Instant>,
    flush_at: Option<Instant>,
    handshake_by: Option<Instant>,
    kill_at: Option<Instant>,
    /// When a holder that does not answer is tried again.
    attach_at: Option<Instant>,
    /// When a run is stopped although the refusal that stops it was not seen.
    stop_by: Option<Instant>,
    /// When a run whose background work has ended is over.
    settle_at: Option<Instant>,
    /// Since when nothing is left to do.
    done_since: Option<Instant>,
    /// Since when the process has nothing to do.
    resting_since: Option<Instant>,
    /// The process was told to end; what its run is told, where one goes on.
    ending: Option<String>,
    /// Nothing the process says counts any more.
    condemned: bool,
    /// A conversation could not be taken up: start a new one.
    no_resume: bool,
    /// The process was started to take up a conversation.
    resuming: bool,
    /// The native session the server knows of.
    known_to_server: Option<String>,
    /// The worker ends: start nothing.
    stopping: bool,
    forgetting: bool,
    closers: Vec<oneshot::Sender<()>>,
}

/// Opens a session and starts its task.
pub fn open(key: SessionId, settings: &Arc<Settings>) -> Result<Handle, JournalError> {
    let (folder, journal, state) = read(key, settings)?;
    Ok(begin(key, settings, folder, journal, state))
}

/// Opens a session at the worker's start, if there is anything left to do for it.
pub fn open_if_due(key: SessionId, settings: &Arc<Settings>) -> Result<Option<Handle>, JournalError> {
    let (folder, journal, state) = read(key, settings)?;
    // A folder of a process may be from a holder that no journal knows.
    let has_process =
        std::fs::read_dir(&folder).is_ok_and(|mut all| all.any(|e| e.is_ok_and(|e| e.path().is_dir())));
    Ok((state.is_told() || has_process).then(|| begin(key, settings, folder, journal, state)))
}

fn read(key: SessionId, settings: &Settings) -> Result<(PathBuf, Journal, State), JournalError> {
    let folder =
        settings.data.session(key).map_err(|e| JournalError::Io(settings.data.path().to_owned(), e))?;
    let (journal, state) = Journal::open(&folder.join("journal.jsonl"))?;
    Ok((folder, journal, state))
}

fn begin(
    key: SessionId,
    settings: &Arc<Settings>,
    folder: PathBuf,
    journal: Journal,
    state: State,
) -> Handle {
    let (orders, inbox) = mpsc::unbounded_channel();
    let (urgent, first) = mpsc::unbounded_channel();
    let held = Arc::new(Mutex::new(None));
    let mut session = Session {
        key,
        settings: Arc::clone(settings),
        folder,
        journal,
        outbox: Outbox::new(state.acked, state.made, WINDOW),
        state,
        harness: None,
        driver: None,
        read: 0,
        link: None,
        myself: orders.clone(),
        held: Arc::clone(&held),
        resolvers: Vec::new(),
        telling: HashSet::new(),
        retry_at: HashMap::new(),
        flush_at: None,
        handshake_by: None,
        kill_at: None,
        attach_at: None,
        stop_by: None,
        settle_at: None,
        done_since: None,
        resting_since: None,
        ending: None,
        condemned: false,
        no_resume: false,
        resuming: false,
        known_to_server: None,
        stopping: false,
        forgetting: false,
        closers: Vec::new(),
    };
    session.publish();
    tokio::spawn(session.run(inbox, first));
    Handle { orders, urgent, held }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

async fn next_report(harness: &mut Option<Harness>) -> Report {
    match harness {
        Some(harness) => harness.report().await,
        None => std::future::pending().await,
    }
}

impl Session {
    async fn run(
        mut self,
        mut orders: mpsc::UnboundedReceiver<Order>,
        mut first: mpsc::UnboundedReceiver<Urgent>,
    ) {
        self.sweep();
        self.take_up().await;
        loop {
            if self.attach_at.is_some_and(|t| t <= Instant::now()) {
                self.take_up().await;
            }
            self.tick();
            self.drive().await;
            self.pump();
            self.publish();
            let rewritten = self.journal.compact_if_long(&self.state);
            self.must(rewritten);
            if self.forgetting && self.harness.is_none() && self.state.process.is_none() {
                // Nothing of it is wanted any more; what cannot be removed is only litter.
                let _ = std::fs::remove_dir_all(&self.folder);
                self.tell_closers();
                return;
            }
            let is_done = !self.state.is_told()
                && self.harness.is_none()
                && self.telling.is_empty()
                && self.resolvers.is_empty();
            self.done_since = if is_done { self.done_since.or(Some(Instant::now())) } else { None };
            if self.done_since.is_some_and(|t| t + LINGER <= Instant::now()) {
                // The next order opens the session again. One that came in this moment is
                // answered as not taken, so it comes again; nothing is written after this.
                orders.close();
                first.close();
                return;
            }
            let congested = self.state.events.len() > EVENTS_MAX;
            let wake = self.wake();
            tokio::select! {
                biased;
                Some(urgent) = first.recv() => self.urgent(urgent),
                Some(order) = orders.recv() => {
                    // What was sent before it may have come just after it was looked for.
                    while let Ok(urgent) = first.try_recv() {
                        self.urgent(urgent);
                    }
                    self.order(order);
                }
                report = next_report(&mut self.harness), if !congested => self.report(report).await,
                () = sleep_until(wake) => {}
            }
        }
    }

    // ---- the journal

    /// Appends an entry and applies it.
    fn record(&mut self, entry: Entry, sync: bool) {
        self.append(&entry, sync);
        self.state.apply(entry);
    }

    fn append(&mut self, entry: &Entry, sync: bool) {
        let written =
            self.journal.append(entry).and_then(|()| if sync { self.journal.sync() } else { Ok(()) });
        self.must(written);
    }

    /// Ends the worker where the journal cannot be written: going on without memory could
    /// hand something over twice. Holders keep the harnesses.
    fn must(&self, written: std::io::Result<()>) {
        let Err(error) = written else { return };
        // Nobody may be left to read this.
        let _ = writeln!(
            std::io::stderr(),
            "The journal in {} cannot be written: {error}. The worker ends; its agents wait. Make room and start it again.",
            self.folder.display()
        );
        std::process::exit(EXIT_JOURNAL);
    }

    fn change(&mut self, changes: &mut Vec<Change>, change: Change) {
        self.state.change(change.clone());
        changes.push(change);
    }

    /// Journals what the lines up to here came to.
    fn commit(&mut self, changes: Vec<Change>) {
        let Some(process) = &mut self.state.process else {
            if !changes.is_empty() {
                self.append(&Entry::Progress { offset: 0, driver: None, changes }, false);
            }
            return;
        };
        let driver = self.driver.clone().filter(|d| *d != process.driver);
        process.offset = self.read;
        if let Some(driver) = &driver {
            process.driver = driver.clone();
        }
        self.append(&Entry::Progress { offset: self.read, driver, changes }, false);
        if let Some(harness) = &self.harness {
            harness.send(ToHolder::Posted { offset: self.read });
        }
    }

    // ---- starting and ending processes

    /// Ends holders that no journal knows: their worker died before it could note them,
    /// so nothing was ever handed to their harness.
    fn sweep(&self) {
        let known = self.state.incarnation().map(|i| i.to_string());
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for path in entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()) {
            if path.file_name().and_then(|n| n.to_str()) == known.as_deref() {
                continue;
            }
            crate::hold::end(&path);
        }
    }

    /// Finds the process of the journal again.
    async fn take_up(&mut self) {
        self.attach_at = None;
        let Some(process) = self.state.process.clone() else { return };
        match Harness::attach(&process.held.socket).await {
            Ok(harness) if harness.held.incarnation == process.held.incarnation => {
                let mut driver = process.driver;
                self.read = process.offset;
                harness.send(ToHolder::From { offset: process.offset });
                if driver.is_ready() {
                    for line in driver.reattach() {
                        harness.write(Uuid::new_v4().to_string(), line);
                    }
                    self.driver = Some(driver);
                    self.harness = Some(harness);
                    self.hand_over_again();
                } else {
                    // A handshake cannot be gone on with in the middle; nothing was prompted yet.
                    harness.send(ToHolder::Kill);
                    (self.driver, self.harness, self.condemned) = (Some(driver), Some(harness), true);
                    self.ending = Some(String::new());
                }
            }
            // It lives and does not answer, as on a machine that is short of something: it
            // may still act on what it was told, so nothing is said to be gone.
            Err(error) if process.held.runs() => {
                tracing::warn!(session = %self.key, %error, "a holder does not answer; it is tried again");
                self.attach_at = Some(Instant::now() + RETRY);
                return;
            }
            _ => self.gone(None).await,
        }
        if self.forgetting {
            self.end_process("The server no longer knows this session.".to_owned());
        }
    }

    /// What was intended before the worker died and may not have arrived. The holder
    /// knows by the id whether it did.
    fn hand_over_again(&mut self) {
        let Some(harness) = &self.harness else { return };
        if let Some(Run { id, prompted: Prompted::Writing { line }, .. }) = &self.state.run {
            harness.write(format!("prompt:{id}"), line.clone());
        }
        let here = self.state.incarnation();
        for request in self.state.requests.iter().filter(|r| Some(r.key.incarnation) == here) {
            if let (Some(intent), false, None) = (&request.intent, request.applied, &request.end) {
                harness.write(format!("answer:{}", intent.decision), intent.line.clone());
            }
            // It may have been lost even where the answer was not.
            if let (Some(Intent { decision, follow_up: Some(line), .. }), None) =
                (&request.intent, &request.end)
            {
                harness.write(format!("words:{decision}"), line.clone());
            }
        }
        if let Some(run) = self.state.run.as_ref().filter(|r| r.cancelling) {
            let run = run.id;
            self.hand_over_cancel(run, &[]);
        }
    }

    fn offer(&self, id: &str) -> Option<&Offer> {
        self.settings.offers.iter().find(|o| o.told.id == id)
    }

    /// The folder a run works in.
    fn folder_of(&self, run: &Run) -> String {
        if run.agent.folder.is_empty() {
            self.offer(&run.agent.harness).map(|o| o.told.default_folder.clone()).unwrap_or_default()
        } else {
            run.agent.folder.clone()
        }
    }

    /// Starts a process or hands over the prompt, where that is due.
    async fn drive(&mut self) {
        if self.stopping || self.forgetting || self.condemned || self.ending.is_some() {
            return;
        }
        let Some(run) = self.state.run.clone().filter(|r| r.prompted == Prompted::Accepted) else { return };
        let folder = self.folder_of(&run);
        match (&self.harness, &self.state.process, &self.driver) {
            (Some(_), Some(process), Some(driver)) if driver.is_ready() => {
                let suits = process.harness == run.agent.harness
                    && process.mode == run.agent.mode
                    && process.asks_everything == run.agent.asks_everything
                    && driver.suits()
                    && process.folder == folder;
                if suits { self.hand_over_prompt(&run) } else { self.end_process(String::new()) }
            }
            (None, None, _) => self.start(&run, folder).await,
            _ => {}
        }
    }

    async fn start(&mut self, run: &Run, folder: String) {
        let Some(offer) = self.offer(&run.agent.harness) else {
            return self.could_not_start("this worker no longer offers it");
        };
        let known = self.state.native_session.clone().or_else(|| self.known_to_server.clone());
        let resumed = known.clone().filter(|_| !self.no_resume);
        let start = offer.start(&run.agent, &folder, resumed.as_deref(), Uuid::new_v4());
        let mut driver = start.driver;
        let incarnation = Incarnation(Uuid::new_v4());
        let launch = Launch {
            incarnation,
            folder: self.folder.join(incarnation.to_string()),
            socket: self.settings.data.socket(incarnation),
            program: start.program,
            args: start.args,
            env: start.env,
            cwd: PathBuf::from(&folder),
        };
        let started = match crate::folder::make_private(&launch.folder) {
            Ok(()) => Harness::start(&self.settings.exe, &launch).await.map_err(|e| e.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let harness = match started {
            Ok(harness) => harness,
            Err(error) => {
                crate::hold::end(&launch.folder);
                return self.could_not_start(&error);
            }
        };
        let lines = driver.start();
        let process = Process {
            held: harness.held.clone(),
            harness: run.agent.harness.clone(),
            mode: run.agent.mode.clone(),
            asks_everything: run.agent.asks_everything,
            folder,
            offset: 0,
            driver: driver.clone(),
        };
        self.record(Entry::Started { process: Box::new(process) }, true);
        harness.send(ToHolder::From { offset: 0 });
        for line in lines {
            harness.write(Uuid::new_v4().to_string(), line);
        }
        self.read = 0;
        self.resuming = resumed.is_some() && driver.resumes();
        let forgets = known.is_some() && !self.resuming;
        (self.harness, self.driver) = (Some(harness), Some(driver));
        self.handshake_by = Some(Instant::now() + HANDSHAKE);
        if forgets {
            let text = "The agent was started anew and does not know the earlier messages of this session.";
            let mut changes = Vec::new();
            self.event(&mut changes, EventBody::Notice { text: text.to_owned(), alarm: false });
            self.commit(changes);
        }
    }

    fn could_not_start(&mut self, why: &str) {
        let mut changes = Vec::new();
        self.end_run(&mut changes, RunStatus::Error, Some(format!("The agent could not be started: {why}.")));
        self.commit(changes);
    }

    fn hand_over_prompt(&mut self, run: &Run) {
        self.commit(Vec::new());
        let Some(driver) = &mut self.driver else { return };
        let line = driver.prompt(run.id, &run.text);
        let driver = driver.clone();
        self.record(Entry::Writing { run: run.id, line: line.clone(), driver }, true);
        if let Some(harness) = &self.harness {
            harness.write(format!("prompt:{}", run.id), line);
        }
    }

    /// Tells the process to end. `why` is for the run that goes on, if one does.
    fn end_process(&mut self, why: String) {
        let (Some(harness), Some(driver)) = (&self.harness, &self.driver) else { return };
        if self.ending.is_some() {
            return;
        }
        for line in driver.end() {
            harness.write(Uuid::new_v4().to_string(), line);
        }
        if driver.ends_with_input() {
            harness.send(ToHolder::CloseInput);
        }
        self.ending = Some(why);
        self.handshake_by = None;
        self.kill_at = Some(Instant::now() + ENDING);
    }

    /// The process is gone: so is everything it waited for.
    async fn gone(&mut self, exit: Option<&Exit>) {
        let mut changes = Vec::new();
        let steps = self.driver.as_mut().map(Driver::flush).unwrap_or_default();
        self.take_steps(steps, &mut changes);
        let how = match exit {
            Some(Exit { code: Some(code), .. }) => format!("exit status {code}"),
            Some(Exit { signal: Some(signal), .. }) => format!("signal {signal}"),
            _ => "its holder is gone too".to_owned(),
        };
        let ended = format!("The agent's process ended ({how}).");
        self.close_requests(&mut changes, &format!("{ended} Nothing waits for an answer any more."), true);
        let last = exit.and_then(|e| e.stderr.trim().lines().last().map(str::to_owned)).map(|mut line| {
            domain::event::cut(&mut line, 300);
            line
        });
        let with_last = |text: String| match &last {
            Some(last) => format!("{text} It last wrote: {last}"),
            None => text,
        };
        let was_ready = self.driver.as_ref().is_some_and(Driver::is_ready);
        let lost_session = self.resuming && exit.is_some_and(|e| e.stderr.contains("No conversation found"));
        let asked_to_end = self.ending.take();
        if let Some(run) = self.state.run.clone() {
            let said = asked_to_end.clone().filter(|why| !why.is_empty());
            match run.prompted {
                // Nothing was handed over: a new process can take it. A condemned process ended
                // its own run; this one came after.
                Prompted::Accepted if asked_to_end.is_some() || self.driver.is_none() || self.condemned => {}
                Prompted::Accepted if !was_ready && lost_session => self.no_resume = true,
                Prompted::Accepted => {
                    self.end_run(&mut changes, RunStatus::Error, Some(with_last(ended)));
                }
                _ if run.cancelling => self.end_run(&mut changes, RunStatus::Cancelled, None),
                Prompted::Writing { .. } => {
                    let unknown =
                        "It is not known whether the prompt had reached it, so it is not sent again.";
                    self.end_run(
                        &mut changes,
                        RunStatus::Error,
                        Some(with_last(format!("{ended} {unknown}"))),
                    );
                }
                Prompted::Written => {
                    let detail = said.unwrap_or_else(|| with_last(ended));
                    self.end_run(&mut changes, RunStatus::Error, Some(detail));
                }
            }
        }
        let folder = self.state.incarnation().map(|i| self.folder.join(i.to_string()));
        self.append(&Entry::Gone { changes }, true);
        self.state.process = None;
        if let Some(harness) = self.harness.take() {
            harness.release().await;
        }
        if let Some(folder) = folder {
            let _ = std::fs::remove_dir_all(folder);
        }
        for (_, reply) in self.resolvers.drain(..) {
            let why = "The agent's process ended before it was known whether the answer had reached it.";
            let _ = reply.send(Ok(outcome(ResolveOutcome::OutcomeUnknown, why)));
        }
        (self.driver, self.flush_at, self.handshake_by, self.kill_at) = (None, None, None, None);
        self.attach_at = None;
        (self.stop_by, self.settle_at, self.resting_since) = (None, None, None);
        (self.condemned, self.resuming) = (false, false);
        if !self.forgetting {
            self.tell_closers();
        }
    }

    /// Whoever waits for the process's end learns it.
    fn tell_closers(&mut self) {
        for closer in self.closers.drain(..) {
            let _: Result<(), ()> = closer.send(());
        }
    }

    // ---- what the harness says

    async fn report(&mut self, report: Report) {
        match report {
            Report::Line { next, text } => {
                let steps = match &mut self.driver {
                    Some(driver) if !self.condemned => driver.line(&text),
                    _ => Vec::new(),
                };
                self.read_to(next, steps);
            }
            Report::LeftOut { next, bytes, head } => {
                // The request it may be waits, and cannot be shown.
                let refusal = match &self.driver {
                    Some(driver) if !self.condemned => driver.refuse_left_out(&head),
                    _ => None,
                };
                let what =
                    if refusal.is_some() { "The request in it was refused." } else { "It was left out." };
                let text =
                    format!("The agent sent a line of {bytes} bytes, which is too long or not text. {what}");
                let mut steps: Vec<Step> = refusal.map(Step::Write).into_iter().collect();
                steps.push(Step::Event(EventBody::Notice { text, alarm: true }));
                self.read_to(next, steps);
            }
            Report::Written { id } => self.written(&id),
            Report::WriteFailed { .. } => {
                // One that is being stopped may have been killed for not stopping, and one that
                // is not ready yet says why when it ends; both are bounded in time.
                let stops = self.state.run.as_ref().is_some_and(|r| r.cancelling);
                let ends = self.ending.is_some() || self.handshake_by.is_some();
                if !self.condemned && !stops && !ends {
                    let mut changes = Vec::new();
                    self.fatal(&mut changes, "The agent closed its input.");
                    self.commit(changes);
                }
            }
            Report::Exit(exit) => self.gone(Some(&exit)).await,
            Report::Lost => {
                self.harness = None;
                self.take_up().await;
            }
        }
    }

    fn read_to(&mut self, next: u64, steps: Vec<Step>) {
        self.read = next;
        let mut changes = Vec::new();
        self.take_steps(steps, &mut changes);
        let committed = self.state.process.as_ref().map_or(0, |p| p.offset);
        if !changes.is_empty() || next - committed.min(next) > READ_AHEAD {
            self.commit(changes);
        }
        if self.driver.as_ref().is_some_and(Driver::holds_text) {
            self.flush_at.get_or_insert_with(|| Instant::now() + HOLD_TEXT);
        } else {
            self.flush_at = None;
        }
    }

    fn take_steps(&mut self, steps: Vec<Step>, changes: &mut Vec<Change>) {
        for step in steps {
            if self.condemned {
                return;
            }
            match step {
                Step::Write(line) => self.hand_over(line),
                Step::Event(body) => self.event(changes, body),
                Step::Ask(ask) => self.asked(changes, *ask, false),
                Step::Listed(asks) => self.listed(changes, asks),
                Step::Withdrawn { native_id, reason } => self.withdrawn(changes, &native_id, reason),
                Step::NativeSession(id) => {
                    if self.state.native_session.as_deref() != Some(&*id) {
                        self.change(changes, Change::NativeSession { id });
                    }
                }
                Step::Ready => {
                    self.handshake_by = None;
                    self.no_resume = false;
                }
                Step::Idle { status, detail } => self.idle(changes, status, detail),
                Step::Fatal(why) => self.fatal(changes, &why),
            }
        }
    }

    /// A line that answers nobody's decision.
    fn hand_over(&self, line: String) {
        if let Some(harness) = &self.harness {
            harness.write(Uuid::new_v4().to_string(), line);
        }
    }

    fn event(&mut self, changes: &mut Vec<Change>, body: EventBody) {
        let Some(run) = self.state.run.as_ref().map(|r| r.id) else { return };
        if !matches!(body, EventBody::Mode { .. } | EventBody::Notice { .. }) {
            self.prompt_written(changes);
        }
        let result = match &body {
            EventBody::Returned { call_id, is_error, .. } => Some((call_id.clone(), *is_error)),
            _ => None,
        };
        self.tell(changes, run, body);
        if let Some((call_id, is_error)) = result {
            self.returned(changes, &call_id, is_error);
        }
    }

    fn tell(&mut self, changes: &mut Vec<Change>, run: RunId, body: EventBody) {
        let event = Event { seq: self.outbox.make(), run, at: now(), body: bounds::event(body) };
        self.change(changes, Change::Event { event });
    }

    /// The prompt has been handed over, as the holder or the harness itself shows.
    fn prompt_written(&mut self, changes: &mut Vec<Change>) {
        let Some(Run { id, prompted: Prompted::Writing { .. }, .. }) = &self.state.run else { return };
        let run = *id;
        self.change(changes, Change::Written { run });
        let native_session = self.state.native_session.clone();
        let pid = self.state.process.as_ref().map(|p| p.held.pid);
        self.tell(changes, run, EventBody::Started { native_session, pid });
    }

    fn key_of(&self, native_id: &str) -> Option<RequestKey> {
        Some(RequestKey { incarnation: self.state.incarnation()?, native_id: native_id.to_owned() })
    }

    fn asked(&mut self, changes: &mut Vec<Change>, mut ask: Ask, listed: bool) {
        if let Some(words) = ask.words.take() {
            ask.words = Some(bounds::sentence(words));
        }
        let (Some(key), Some(process)) = (self.key_of(&ask.native_id), self.state.process.clone()) else {
            return;
        };
        let digest = ActionDigest::of(ActionFields {
            request_key: &key.to_string(),
            harness: &process.harness,
            tool: &ask.tool,
            folder: &process.folder,
            sub_agent: ask.sub_agent.as_deref(),
            input: &ask.input.0,
        });
        if let Some(known) = self.state.request(&key) {
            let (same, is_over) = (known.digest == digest, known.end.is_some());
            if same {
                // Asked again: one request all the same. An answer is given again as it was.
                if let (Some(intent), false) = (&known.intent, is_over) {
                    let id = format!("answer:{}", intent.decision);
                    let line = intent.line.clone();
                    if listed {
                        if let Some(harness) = &self.harness {
                            harness.write(id, line);
                        }
                    } else {
                        self.hand_over(line);
                    }
                }
                if known.intent.is_none() && is_over {
                    // It was refused, and the worker died before that reached the agent.
                    self.refuse(&ask, "This request is closed, and it was not allowed.");
                }
                return;
            }
            let text = "The agent used the id of one request for another one. Both were refused.";
            self.refuse(&ask, "The id of this request was used before for another one, so it was refused.");
            self.event(changes, EventBody::Notice { text: text.to_owned(), alarm: true });
            if !is_over {
                self.withdraw(changes, key, text.to_owned(), false);
            }
            return;
        }
        self.prompt_written(changes);
        let Some(run) = self.state.run.clone().filter(|r| !r.cancelling && r.prompted == Prompted::Written)
        else {
            self.refuse(&ask, "No run goes on that a person could be asked for, so this was not allowed.");
            return;
        };
        if self.stopping_request().is_some() {
            self.refuse(&ask, "The run is being stopped, so nobody was asked and this was not allowed.");
            return;
        }
        if bounds::are_too_many(&self.state.requests) {
            self.refuse(
                &ask,
                "Too many requests wait already, so nobody was asked and this was not allowed.",
            );
            let text = "The agent asks for more while so much waits already that nobody can look through it. It was refused.";
            self.event(changes, EventBody::Notice { text: text.to_owned(), alarm: true });
            return;
        }
        if ask.input.0.len() > INPUT_MAX || !bounds::fits(&ask) {
            let text = format!(
                "The agent asked for something of {} bytes that cannot be shown. It was refused.",
                ask.input.0.len()
            );
            self.refuse(&ask, TOO_LARGE);
            self.event(changes, EventBody::Notice { text, alarm: true });
            return;
        }
        let request = Request {
            key,
            run: run.id,
            ask,
            digest,
            after_seq: self.state.made,
            asked_at: now(),
            folder: process.folder,
            harness: process.harness,
            mode: process.mode,
            approval: None,
            intent: None,
            applied: false,
            end: None,
            reported: false,
        };
        self.change(changes, Change::Asked { request: Box::new(request) });
    }

    fn refuse(&self, ask: &Ask, words: &str) {
        if let Some(driver) = &self.driver {
            self.hand_over(driver.refuse(&ask.native_id, &ask.options, words));
        }
    }

    /// Everything the harness waits for, as it says itself.
    fn listed(&mut self, changes: &mut Vec<Change>, asks: Vec<Ask>) {
        let here = self.state.incarnation();
        let missing: Vec<RequestKey> = self
            .state
            .requests
            .iter()
            .filter(|r| Some(r.key.incarnation) == here && r.is_open())
            .filter(|r| !asks.iter().any(|a| a.native_id == r.key.native_id))
            .map(|r| r.key.clone())
            .collect();
        for key in missing {
            self.withdraw(changes, key, "The agent no longer waits for it.".to_owned(), false);
        }
        for ask in asks {
            self.asked(changes, ask, true);
        }
    }

    fn withdraw(&mut self, changes: &mut Vec<Change>, key: RequestKey, reason: String, gone: bool) {
        self.change(changes, Change::Withdrawn { key, reason, gone });
    }

    fn withdrawn(&mut self, changes: &mut Vec<Change>, native_id: &str, reason: String) {
        let Some(key) = self.key_of(native_id) else { return };
        // With an answer under way, the call's result tells which of the two was first.
        if self.state.request(&key).is_some_and(Request::is_open) {
            self.withdraw(changes, key, reason, false);
        }
    }

    /// A call has a result: what became of its request.
    fn returned(&mut self, changes: &mut Vec<Change>, call_id: &str, is_error: bool) {
        let here = self.state.incarnation();
        let concerned: Vec<(RequestKey, Option<Outcome>)> = self
            .state
            .requests
            .iter()
            .filter(|r| Some(r.key.incarnation) == here && r.end.is_none())
            .filter(|r| r.ask.call_id.as_deref() == Some(call_id))
            .map(|r| (r.key.clone(), r.intent.as_ref().map(|i| i.outcome)))
            .collect();
        for (key, answered) in concerned {
            let Some(answered) = answered else {
                let text =
                    "The agent reports a result of a call whose permission request nobody has answered.";
                self.event(changes, EventBody::Notice { text: text.to_owned(), alarm: true });
                self.withdraw(changes, key, "The agent went on without an answer.".to_owned(), false);
                continue;
            };
            self.applied(&key);
            let effect = match (answered, is_error) {
                (Outcome::Approve, true) => EffectKind::Failed,
                (Outcome::Approve, false) => EffectKind::Ran,
                (_, true) => EffectKind::Refused,
                (_, false) => {
                    let text = "The agent reports success of a call that was refused. Look at what it did.";
                    self.event(changes, EventBody::Notice { text: text.to_owned(), alarm: true });
                    EffectKind::Ran
                }
            };
            self.change(changes, Change::Effect { key, effect });
        }
    }

    /// Ends every request of the process that has no end. An answered one whose effect
    /// was not seen is unknown, unless it was a refusal the harness went on after.
    fn close_requests(&mut self, changes: &mut Vec<Change>, reason: &str, gone: bool) {
        let here = self.state.incarnation();
        let left: Vec<(RequestKey, Option<Outcome>)> = self
            .state
            .requests
            .iter()
            .filter(|r| Some(r.key.incarnation) == here && r.end.is_none())
            .map(|r| (r.key.clone(), r.intent.as_ref().map(|i| i.outcome)))
            .collect();
        for (key, answered) in left {
            match answered {
                None => self.withdraw(changes, key, reason.to_owned(), gone),
                Some(outcome) => {
                    let effect = match (outcome, gone) {
                        (_, true) => EffectKind::Unknown,
                        (Outcome::Approve, false) => EffectKind::Unseen,
                        (_, false) => EffectKind::Refused,
                    };
                    self.change(changes, Change::Effect { key, effect });
                }
            }
        }
    }

    fn end_run(&mut self, changes: &mut Vec<Change>, status: RunStatus, detail: Option<String>) {
        let Some(run) = self.state.run.clone() else { return };
        let (status, detail) = match run.failed {
            Some(why) => (RunStatus::Error, Some(why)),
            None => (status, detail),
        };
        self.tell(changes, run.id, EventBody::Ended { status, detail });
        self.change(changes, Change::Ended { run: run.id });
        if self.ending.is_none() {
            self.kill_at = None;
        }
    }

    fn idle(&mut self, changes: &mut Vec<Change>, status: RunStatus, detail: Option<String>) {
        self.prompt_written(changes);
        let Some(run) = self.state.run.clone().filter(|r| r.prompted == Prompted::Written) else { return };
        self.close_requests(changes, "The agent went on without an answer.", false);
        let stopped = self.ending.clone().filter(|why| !why.is_empty());
        match stopped {
            Some(why) => self.end_run(changes, RunStatus::Error, Some(why)),
            None if run.cancelling => self.end_run(changes, RunStatus::Cancelled, None),
            None => self.end_run(changes, status, detail),
        }
    }

    /// The process must not go on.
    fn fatal(&mut self, changes: &mut Vec<Change>, why: &str) {
        let why = &bounds::sentence(why.to_owned());
        self.close_requests(changes, why, true);
        self.end_run(changes, RunStatus::Error, Some(why.to_owned()));
        self.condemned = true;
        self.handshake_by = None;
        if let Some(harness) = &self.harness {
            harness.send(ToHolder::Kill);
        }
    }

    fn written(&mut self, id: &str) {
        if id.starts_with("prompt:") {
            let mut changes = Vec::new();
            self.prompt_written(&mut changes);
            self.commit(changes);
        } else if let Some(decision) = id.strip_prefix("answer:") {
            let found = self
                .state
                .requests
                .iter()
                .find(|r| r.intent.as_ref().is_some_and(|i| i.decision.to_string() == decision));
            if let Some(key) = found.map(|r| r.key.clone()) {
                self.applied(&key);
            }
        }
    }

    /// How long a refusal that also stops the run may take to show as one, before the
    /// run is stopped.
    fn words_first(&self) -> Duration {
        if self.driver.as_ref().is_some_and(Driver::shows_refusals) { WORDS_FIRST } else { Duration::ZERO }
    }

    /// The request of the present run whose refusal stops it.
    fn stopping_request(&self) -> Option<&Request> {
        let run = self.state.run.as_ref().filter(|r| !r.cancelling)?;
        let stops = |r: &&Request| r.applied && r.intent.as_ref().is_some_and(|i| i.stop);
        self.state.requests.iter().filter(|r| r.run == run.id).find(stops)
    }

    /// Whether the run of this request is to be stopped, by whatever was answered before.
    fn is_being_stopped(&self, key: &RequestKey) -> bool {
        let Some(run) = self.state.request(key).map(|r| r.run) else { return false };
        let stops = |r: &Request| r.run == run && r.intent.as_ref().is_some_and(|i| i.stop);
        self.state.run.as_ref().is_some_and(|r| r.id == run && r.cancelling)
            || self.state.requests.iter().any(stops)
    }

    /// Stops the run whose refusal was seen, or is not going to be.
    fn stop_if_due(&mut self) {
        let Some(request) = self.stopping_request() else {
            self.stop_by = None;
            return;
        };
        let (run, seen) = (request.run, request.end.is_some());
        let expired = request.intent.as_ref().is_some_and(|i| i.outcome == Outcome::Expire);
        let by = *self.stop_by.get_or_insert_with(|| Instant::now() + WORDS_FIRST);
        if seen || by <= Instant::now() {
            self.stop_by = None;
            let why = "Nobody answered the same request, asked twice, so the run was stopped.";
            self.stop_run(run, expired.then(|| why.to_owned()));
        }
    }

    /// The answer has reached the harness.
    fn applied(&mut self, key: &RequestKey) {
        let Some(request) = self.state.request(key) else { return };
        let stop = request.intent.as_ref().is_some_and(|i| i.stop);
        if !request.applied {
            self.record(Entry::Applied { key: key.clone() }, true);
        }
        let (mine, others) = self.resolvers.drain(..).partition(|(k, _)| k == key);
        self.resolvers = others;
        for (_, reply) in mine {
            let _: Result<_, _> = reply.send(Ok(plain(ResolveOutcome::Applied)));
        }
        if stop {
            self.stop_by = Some(Instant::now() + self.words_first());
        }
    }

    // ---- what the server says

    fn urgent(&mut self, urgent: Urgent) {
        match urgent {
            Urgent::Linked { link, acked } => {
                self.telling.clear();
                self.retry_at.clear();
                self.acked(acked);
                self.outbox.relink(self.state.acked);
                self.link = Some(link);
            }
            Urgent::Unlinked => {
                self.link = None;
                self.telling.clear();
            }
            Urgent::Cancel(cancel, reply) => {
                let _ = reply.send(self.cancel(&cancel));
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Prompt(prompt, reply) => {
                let _ = reply.send(self.prompt(prompt));
            }
            Order::Resolve(resolve, reply) => self.resolve(&resolve, reply),
            Order::Finish(run) => self.finish(run),
            Order::Close => self.end_process("The session was closed.".to_owned()),
            Order::Forget => {
                self.forgetting = true;
                self.end_process("The server no longer knows this session.".to_owned());
            }
            Order::Shutdown(done) => {
                self.stopping = true;
                if self.harness.is_some() {
                    self.closers.push(done);
                    self.end_process("The worker was stopped.".to_owned());
                } else {
                    let _ = done.send(());
                }
            }
            Order::Acked(seq) => self.acked(seq),
            Order::Told { key, epoch, told } => {
                if self.link.as_ref().is_some_and(|l| l.epoch == epoch) {
                    self.telling.remove(&key);
                    self.told(key, told);
                }
            }
        }
    }

    fn acked(&mut self, seq: i64) {
        if seq > self.state.made {
            // The server counts events this journal does not know, as after a lost folder:
            // what waits here would be taken for a repetition and dropped.
            tracing::warn!(session = %self.key, seq, made = self.state.made, "events are renumbered");
            self.record(Entry::Renumbered { stored: seq }, true);
            self.outbox = Outbox::new(self.state.acked, self.state.made, WINDOW);
        } else if seq > self.state.acked {
            self.record(Entry::Acked { seq }, false);
            self.outbox.acknowledge(seq);
        }
    }

    fn fenced(&self, epoch: i64) -> bool {
        self.link.as_ref().is_none_or(|l| l.epoch != epoch)
    }

    fn prompt(&mut self, prompt: Prompt) -> Result<PromptReply, RpcError> {
        let reply = |outcome, why: Option<String>| Ok(PromptReply { outcome, why });
        if self.fenced(prompt.epoch) {
            return Err(RpcError::new(UNAVAILABLE, "This epoch is over."));
        }
        if self.stopping || self.forgetting {
            return Err(RpcError::new(UNAVAILABLE, "The worker is being stopped."));
        }
        let is_known = self.state.run.as_ref().is_some_and(|r| r.id == prompt.run)
            || self.state.over.contains(&prompt.run);
        if is_known {
            return reply(PromptOutcome::AlreadyAccepted, None);
        }
        let refused = |why: String| reply(PromptOutcome::Refused, Some(why));
        if self.state.run.is_some() {
            return refused("Another run of this session still goes on.".to_owned());
        }
        let Some(offer) = self.offer(&prompt.agent.harness) else {
            return refused(format!(
                "This worker has no \"{}\". Install it there, or choose another agent.",
                prompt.agent.harness
            ));
        };
        if let Some(problem) = &offer.told.problem {
            return refused(problem.clone());
        }
        if !offer.told.modes.iter().any(|m| m.id == prompt.agent.mode) {
            return refused(format!("{} has no mode \"{}\".", offer.told.title, prompt.agent.mode));
        }
        let folder = match prompt.agent.folder.as_str() {
            "" => offer.told.default_folder.clone(),
            folder => folder.to_owned(),
        };
        if !PathBuf::from(&folder).is_dir() {
            return refused(format!(
                "The folder {folder} does not exist on the worker's machine. Make it, or change the agent's folder."
            ));
        }
        self.known_to_server = prompt.native_session;
        self.record(Entry::Prompt { run: prompt.run, agent: prompt.agent, text: prompt.text }, true);
        reply(PromptOutcome::Accepted, None)
    }

    /// Ends a run of which only background work goes on; that work is left to itself.
    fn finish(&mut self, run: RunId) {
        if self.state.run.as_ref().is_none_or(|r| r.id != run || r.cancelling) {
            return;
        }
        if let Some((status, detail)) = self.driver.as_ref().and_then(Driver::in_background) {
            self.let_run_go(status, detail);
        }
    }

    fn let_run_go(&mut self, status: RunStatus, detail: Option<String>) {
        if let Some(driver) = &mut self.driver {
            driver.let_go();
        }
        let mut changes = Vec::new();
        self.idle(&mut changes, status, detail);
        self.commit(changes);
    }

    fn cancel(&mut self, cancel: &Cancel) -> Result<CancelReply, RpcError> {
        if self.fenced(cancel.epoch) {
            return Err(RpcError::new(UNAVAILABLE, "This epoch is over."));
        }
        let Some(run) = self.state.run.clone().filter(|r| r.id == cancel.run) else {
            if !self.state.over.contains(&cancel.run) {
                // Its prompt may have been overtaken and still be on its way here: then it
                // is over before it begins.
                let mut changes = Vec::new();
                self.change(&mut changes, Change::Ended { run: cancel.run });
                self.append(&Entry::Progress { offset: self.committed(), driver: None, changes }, true);
            }
            return Ok(CancelReply { outcome: CancelOutcome::NotRunning });
        };
        if run.prompted == Prompted::Accepted {
            let mut changes = Vec::new();
            self.end_run(&mut changes, RunStatus::Cancelled, None);
            self.commit(changes);
        } else if !run.cancelling {
            self.stop_run(run.id, None);
        }
        Ok(CancelReply { outcome: CancelOutcome::Stopping })
    }

    /// Stops the turn. `failed` makes an error of it.
    fn stop_run(&mut self, run: RunId, failed: Option<String>) {
        let reason = failed.clone().unwrap_or_else(|| "The run was stopped.".to_owned());
        self.record(Entry::Cancelling { run, failed }, true);
        let open: Vec<RequestKey> = self
            .state
            .requests
            .iter()
            .filter(|r| r.run == run && r.is_open())
            .map(|r| r.key.clone())
            .collect();
        let mut changes = Vec::new();
        for key in &open {
            self.withdraw(&mut changes, key.clone(), reason.clone(), false);
        }
        self.append(&Entry::Progress { offset: self.committed(), driver: None, changes }, true);
        let ids: Vec<String> = open.into_iter().map(|k| k.native_id).collect();
        self.hand_over_cancel(run, &ids);
    }

    fn committed(&self) -> u64 {
        self.state.process.as_ref().map_or(0, |p| p.offset)
    }

    fn hand_over_cancel(&mut self, run: RunId, open: &[String]) {
        let (Some(driver), Some(harness)) = (&mut self.driver, &self.harness) else { return };
        for (i, line) in driver.cancel(run, open).into_iter().enumerate() {
            harness.write(format!("cancel:{run}:{i}"), line);
        }
        self.kill_at = Some(Instant::now() + STOPPING);
    }

    fn resolve(&mut self, resolve: &Resolve, reply: Reply<ResolveReply>) {
        let key = &resolve.request_key;
        let answer = match judge(&self.state, resolve, self.fenced(resolve.epoch)) {
            Judged::Settled(settled) => Some(settled),
            Judged::UnderWay => {
                self.resolvers.push((key.clone(), reply));
                return;
            }
            Judged::Give if self.state.process.is_some() && self.harness.is_none() => {
                let error = RpcError::new(UNAVAILABLE, "The agent's process does not answer at the moment.");
                let _ = reply.send(Err(error));
                return;
            }
            Judged::Give if resolve.answer.outcome == Outcome::Approve && self.is_being_stopped(key) => {
                let why = "The run was being stopped.";
                if let Some(ask) = self.state.request(key).map(|r| r.ask.clone()) {
                    self.refuse(&ask, "The run is being stopped, so this was not allowed.");
                }
                let mut changes = Vec::new();
                self.withdraw(&mut changes, key.clone(), why.to_owned(), false);
                self.commit(changes);
                Some(outcome(ResolveOutcome::NativeGone, why))
            }
            Judged::Give => {
                match (&self.driver, self.state.request(key), &self.harness) {
                    (Some(driver), Some(request), Some(_)) if !self.condemned => {
                        match driver.answer(&request.ask, resolve.decision, &resolve.answer) {
                            Ok(Answered { line, follow_up, modes }) => {
                                let intent = Intent {
                                    decision: resolve.decision,
                                    approval: resolve.approval,
                                    outcome: resolve.answer.outcome,
                                    line: line.clone(),
                                    follow_up: follow_up.clone(),
                                    modes,
                                    stop: resolve.answer.stop,
                                };
                                if let Some(driver) = &mut self.driver {
                                    driver.answering(&intent);
                                }
                                self.record(Entry::Intent { key: key.clone(), intent }, true);
                                self.resolvers.push((key.clone(), reply));
                                if let Some(harness) = &self.harness {
                                    harness.write(format!("answer:{}", resolve.decision), line);
                                    if let Some(line) = follow_up {
                                        harness.write(format!("words:{}", resolve.decision), line);
                                    }
                                }
                                return;
                            }
                            Err(why) => {
                                // The decision is made and cannot be made again: the agent must
                                // not be left waiting.
                                let ask = request.ask.clone();
                                self.refuse(&ask, "The answer a person gave cannot be handed over, so this was not allowed.");
                                let mut changes = Vec::new();
                                self.withdraw(&mut changes, key.clone(), why.clone(), false);
                                self.commit(changes);
                                Some(outcome(ResolveOutcome::DigestMismatch, &why))
                            }
                        }
                    }
                    _ => Some(outcome(ResolveOutcome::NativeGone, "The agent's process is gone.")),
                }
            }
        };
        if let Some(answer) = answer {
            let _ = reply.send(Ok(answer));
        }
    }

    fn told(&mut self, key: RequestKey, told: Told) {
        match told {
            Told::Request(Ok(stored)) => {
                if self.state.request(&key).is_some_and(|r| r.approval.is_none()) {
                    self.record(Entry::Stored { key, approval: stored.approval }, false);
                }
            }
            Told::Request(Err(CallError::Refused(error))) if is_final(&error) => {
                self.give_up(&key, &format!("The server did not take the request: {}", error.message));
            }
            Told::End(Ok(())) => self.record(Entry::Reported { key }, false),
            Told::End(Err(CallError::Refused(error))) if is_final(&error) => {
                tracing::warn!(session = %self.key, %error, "the server does not take how a request ended");
                self.record(Entry::Reported { key }, false);
            }
            Told::Request(Err(error)) | Told::End(Err(error)) => {
                tracing::debug!(session = %self.key, %error, "the server is told again");
                self.retry_at.insert(key, Instant::now() + RETRY);
            }
        }
    }

    /// Refuses a request that could not be stored, and ends its run. Never done once the
    /// server has acknowledged it.
    fn give_up(&mut self, key: &RequestKey, why: &str) {
        let Some(request) = self.state.request(key).filter(|r| r.is_open() && r.approval.is_none()) else {
            return;
        };
        let run = request.run;
        let ask = request.ask.clone();
        self.refuse(&ask, "This request could not be stored, so nobody was asked and it was not allowed.");
        let mut changes = Vec::new();
        self.withdraw(&mut changes, key.clone(), why.to_owned(), false);
        self.commit(changes);
        if self.state.run.as_ref().is_some_and(|r| r.id == run && !r.cancelling) {
            self.stop_run(run, Some(why.to_owned()));
        }
    }

    // ---- time, and the link

    fn deadline(&self, request: &Request) -> Option<Timestamp> {
        let run = self.state.run.as_ref().filter(|r| r.id == request.run)?;
        (request.is_open() && request.approval.is_none())
            .then(|| Timestamp(request.asked_at.0 + run.agent.hitl_timeout_s.saturating_mul(1000)))
    }

    fn tick(&mut self) {
        let instant = Instant::now();
        if self.flush_at.is_some_and(|t| t <= instant) {
            self.flush_at = None;
            let steps = self.driver.as_mut().map(Driver::flush).unwrap_or_default();
            let mut changes = Vec::new();
            self.take_steps(steps, &mut changes);
            self.commit(changes);
        }
        if self.handshake_by.is_some_and(|t| t <= instant) {
            let mut changes = Vec::new();
            self.fatal(
                &mut changes,
                "The agent did not get ready in time, or did not confirm its permission mode. It was stopped.",
            );
            self.commit(changes);
        }
        if self.kill_at.is_some_and(|t| t <= instant) {
            self.kill_at = None;
            if let Some(harness) = &self.harness {
                harness.send(ToHolder::Kill);
            }
        }
        self.stop_if_due();
        if self.settle_at.is_some_and(|t| t <= instant) {
            self.settle_at = None;
            if let Some((status, detail)) = self.driver.as_ref().and_then(Driver::settles) {
                self.let_run_go(status, detail);
            }
        }
        self.settle_at = match self.driver.as_ref().and_then(Driver::settles) {
            Some(_) => self.settle_at.or(Some(instant + SETTLING)),
            None => None,
        };
        let rests = self.harness.is_some()
            && self.state.run.is_none()
            && self.ending.is_none()
            // One that cannot take its conversation up again is kept.
            && self.driver.as_ref().is_some_and(|d| d.is_ready() && d.rests() && d.resumes());
        self.resting_since = if rests { self.resting_since.or(Some(instant)) } else { None };
        if self.rests_until().is_some_and(|t| t <= instant) {
            tracing::debug!(session = %self.key, "the agent has had nothing to do; its process is ended");
            self.end_process(String::new());
        }
        let late: Vec<RequestKey> = self
            .state
            .requests
            .iter()
            .filter(|r| self.deadline(r).is_some_and(|d| d <= now()))
            .map(|r| r.key.clone())
            .collect();
        for key in late {
            self.give_up(
                &key,
                "The request could not be stored in time, so it was refused. Nobody was asked.",
            );
        }
    }

    /// When the process is ended because it has nothing to do.
    fn rests_until(&self) -> Option<Instant> {
        Some(self.resting_since? + self.settings.idle_end?)
    }

    /// When to look again without being told anything.
    fn wake(&self) -> Instant {
        let instant = Instant::now();
        let waits = self.state.requests.iter().filter_map(|r| self.deadline(r));
        let deadlines = waits.map(|d| instant + d.since(now()) + Duration::from_millis(1));
        let timers = [
            self.flush_at,
            self.handshake_by,
            self.kill_at,
            self.attach_at,
            self.stop_by,
            self.settle_at,
            self.rests_until(),
            self.done_since.map(|t| t + LINGER),
        ];
        timers
            .into_iter()
            .flatten()
            .chain(self.retry_at.values().copied().filter(|t| *t > instant))
            .chain(deadlines)
            .min()
            .unwrap_or(instant + Duration::from_hours(1))
    }

    /// Sends what the server may get now.
    fn pump(&mut self) {
        let Some(link) = self.link.clone() else { return };
        let instant = Instant::now();
        let due: Vec<Request> = self
            .state
            .requests
            .iter()
            .filter(|r| (r.end.is_none() && r.approval.is_none()) || (r.end.is_some() && !r.reported))
            .filter(|r| !self.telling.contains(&r.key))
            .filter(|r| self.retry_at.get(&r.key).is_none_or(|t| *t <= instant))
            .cloned()
            .collect();
        for request in due {
            self.telling.insert(request.key.clone());
            self.retry_at.remove(&request.key);
            tell_server(&link, self.key, request, self.myself.clone());
        }
        while let Some(seq) = self.outbox.next_due() {
            let at = usize::try_from(seq - self.state.acked - 1).ok();
            let Some(event) = at.and_then(|at| self.state.events.get(at)) else { break };
            link.notify(&SessionEvent {
                key: self.key,
                epoch: link.epoch,
                seq,
                run: event.run,
                at: event.at,
                body: event.body.clone(),
            });
        }
    }

    fn publish(&mut self) {
        let held = self.state.is_told().then(|| HeldSession {
            key: self.key,
            incarnation: self.state.incarnation(),
            run: self.state.run.as_ref().map(|r| r.id),
            sent_seq: self.state.made,
            acked_seq: self.state.acked,
            pending: self.state.pending(),
        });
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }
}

/// Tells the server of a request, or of its end, and hands its answer to the session.
fn tell_server(link: &Link, session: SessionId, request: Request, back: mpsc::UnboundedSender<Order>) {
    let (epoch, key) = (link.epoch, request.key.clone());
    let told = match request.end {
        None => {
            let answer = link.call(&PermissionRequest {
                key: session,
                epoch,
                run: request.run,
                request_key: request.key,
                after_seq: request.after_seq,
                harness: request.harness,
                tool: request.ask.tool,
                folder: request.folder,
                sub_agent: request.ask.sub_agent,
                sub_agent_title: request.ask.sub_agent_title,
                call_id: request.ask.call_id,
                mode: request.mode,
                input: request.ask.input,
                action_digest: request.digest,
                words: request.ask.words,
                options: request.ask.options,
                grants: request.ask.grants,
                native_deadline_ms: None,
            });
            async move { Told::Request(answer.await) }.boxed()
        }
        Some(End::Withdrawn { reason, gone }) => {
            let request_key = request.key;
            let answer =
                link.call(&Withdrawn { key: session, epoch, request_key, reason, execution_gone: gone });
            async move { Told::End(answer.await) }.boxed()
        }
        Some(End::Effect(effect)) => {
            let answer = link.call(&Effect { key: session, epoch, request_key: request.key, effect });
            async move { Told::End(answer.await) }.boxed()
        }
    };
    tokio::spawn(async move {
        let told = told.await;
        let _ = back.send(Order::Told { key, epoch, told });
    });
}

fn plain(outcome: ResolveOutcome) -> ResolveReply {
    ResolveReply { outcome, why: None }
}

fn outcome(outcome: ResolveOutcome, why: &str) -> ResolveReply {
    ResolveReply { outcome, why: Some(why.to_owned()) }
}

/// What is to be done with a decision.
#[derive(Debug)]
enum Judged {
    Settled(ResolveReply),
    /// The same decision is being handed over.
    UnderWay,
    Give,
}

/// Compares a decision with the request that is held. The stored action is the only
/// thing a decision is for: any difference is refused.
fn judge(state: &State, resolve: &Resolve, fenced: bool) -> Judged {
    use ResolveOutcome::{AlreadyApplied, DigestMismatch, Fenced, NativeGone, OutcomeUnknown, Unknown};
    let settled = |result, why: &str| Judged::Settled(outcome(result, why));
    if fenced {
        return settled(Fenced, "The link this decision came over is over.");
    }
    let Some(request) = state.request(&resolve.request_key) else {
        return settled(Unknown, "No such request was ever asked here.");
    };
    let answer = AnswerDigest::of(resolve.approval, resolve.decision, resolve.action_digest, &resolve.answer);
    if request.digest != resolve.action_digest {
        return settled(DigestMismatch, "The request the agent waits for is not the one that was decided.");
    }
    if answer != resolve.answer_digest || request.approval.is_some_and(|a| a != resolve.approval) {
        return settled(DigestMismatch, "The answer is not the one that was decided.");
    }
    match (&request.intent, &request.end) {
        (Some(intent), _) if intent.decision != resolve.decision => {
            settled(NativeGone, "The agent was given another decision before.")
        }
        (Some(_), Some(End::Effect(EffectKind::Unseen))) => {
            settled(OutcomeUnknown, "The agent went on without telling what came of it.")
        }
        (Some(_), Some(End::Effect(EffectKind::Unknown))) => {
            settled(OutcomeUnknown, "The agent's process ended before the effect of the answer was seen.")
        }
        (Some(_), Some(_)) => Judged::Settled(plain(AlreadyApplied)),
        (Some(_), None) if request.applied => Judged::Settled(plain(AlreadyApplied)),
        (Some(_), None) => Judged::UnderWay,
        (None, Some(End::Withdrawn { reason, .. })) => settled(NativeGone, reason),
        (None, Some(End::Effect(_))) => settled(NativeGone, "The agent no longer waits for it."),
        (None, None) if state.incarnation() != Some(request.key.incarnation) => {
            settled(NativeGone, "The agent's process is gone.")
        }
        (None, None) => Judged::Give,
    }
}

/// Whether the server will never take what was told, however often: the run is over,
/// another action stands under the same id, or it cannot be read.
fn is_final(error: &RpcError) -> bool {
    matches!(error.code, INVALID_PARAMS | REFUSED)
}
