//! `countersign-worker hold`: a small process that owns one harness.
//!
//! It has the harness's pipes, keeps its lines on disk until a worker has posted
//! them, and serves one worker at a time on a local socket, so that the harness
//! outlives its worker and the next one finds the same process. It knows nothing of
//! the protocol spoken through it. A new connection replaces the one before, after
//! everything that one had already sent was taken.

pub mod spool;
pub mod wire;

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read as _, Write as _},
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf},
    process::{Child, ChildStdin, ChildStdout, Command},
    signal::unix::{SignalKind, signal},
    sync::{Notify, mpsc},
    task::JoinHandle,
    time::{sleep, timeout},
};

use self::{
    spool::{HEAD_MAX, Kept, LINE_MAX, Spool},
    wire::{Birth, Exit, FromHolder, Held, Launch, ToHolder},
};
use crate::{folder::write_whole, tether::own_program};

/// The end of standard error that is kept, in bytes.
const STDERR_MAX: usize = 64 * 1024;
/// How long output is still read after the harness ended: what it started may hold the pipe.
const DRAIN: Duration = Duration::from_secs(1);
/// Ids of lines to the harness that are remembered.
const TAKEN_MAX: usize = 10_000;
/// Between two tries to keep a line the disk had no room for.
const ROOM: Duration = Duration::from_secs(1);
/// How long a holder waits for a worker to take the exit status.
const EXIT_KEPT: Duration = Duration::from_hours(24);

/// What waits to be handed to the harness.
enum Input {
    Line { id: String, text: String },
    Close,
}

/// The ids of lines taken, the newest of them, each with whether it was handed over. A
/// worker sends a line again only when its predecessor died before it was confirmed, so
/// one that so many others have followed is not sent again.
#[derive(Default)]
struct Taken {
    all: HashMap<String, bool>,
    order: VecDeque<String>,
}

impl Taken {
    /// Whether it is new.
    fn take(&mut self, id: &str) -> bool {
        if self.all.contains_key(id) {
            return false;
        }
        if self.order.len() == TAKEN_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        self.order.push_back(id.to_owned());
        self.all.insert(id.to_owned(), false);
        true
    }

    fn written(&mut self, id: &str) {
        if let Some(written) = self.all.get_mut(id) {
            *written = true;
        }
    }

    fn is_written(&self, id: &str) -> bool {
        self.all.get(id) == Some(&true)
    }
}

struct Inner {
    spool: Spool,
    stderr: Vec<u8>,
    exit: Option<Exit>,
    /// A line was read that the disk has no room for.
    waits_for_room: bool,
    /// Lines taken for the harness, so that none is handed over twice.
    taken: Taken,
    /// Where confirmations of the present connection go.
    confirm: Option<mpsc::UnboundedSender<FromHolder>>,
}

struct Shared {
    inner: Mutex<Inner>,
    /// Lines, room in the spool or an exit have come.
    changed: Notify,
    over: Notify,
    held: Held,
    input: mpsc::UnboundedSender<Input>,
}

impl Inner {
    /// Keeps a line; with `left_out` bytes, only that there was one of so many bytes.
    fn keep(&mut self, line: &[u8], left_out: u64) -> io::Result<()> {
        let kept = if left_out == 0 { self.spool.append(line) } else { self.spool.leave_out(left_out, line) };
        self.waits_for_room = kept.is_err();
        kept
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic ends the holder; there is no half-done state to fear.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The whole life of a holder. Reads the [`Launch`] from standard input.
pub fn hold() -> io::Result<()> {
    // Its own session: a closed terminal or Ctrl-C in it is not meant for the harness.
    let _ = rustix::process::setsid();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let launch: Launch = serde_json::from_str(&text)?;
    // The parent-death signal follows the thread that forks: it must be the main one.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(launch))
}

fn tell(birth: &Birth) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "{}", serde_json::to_string(birth)?)?;
    out.flush()
}

async fn run(launch: Launch) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    // Caught and left alone; a caught signal is back to its default in the harness.
    let _kept = (signal(SignalKind::hangup())?, signal(SignalKind::interrupt())?);
    let (mut child, listener, spool) = match prepare(&launch) {
        Ok(ready) => ready,
        Err(error) => return tell(&Birth::Failed(error)),
    };
    let pid = child.id().unwrap_or_default();
    let held = Held {
        incarnation: launch.incarnation,
        socket: launch.socket.clone(),
        holder: std::process::id(),
        pid,
        started: started_at(pid),
    };
    let (Some(stdin), Some(stdout), Some(mut stderr)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("the harness has no pipes"));
    };
    let (input, inputs) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        inner: Mutex::new(Inner {
            spool,
            stderr: Vec::new(),
            exit: None,
            waits_for_room: false,
            taken: Taken::default(),
            confirm: None,
        }),
        changed: Notify::new(),
        over: Notify::new(),
        held: held.clone(),
        input,
    });
    let description = launch.folder.join("holder.json");
    if let Err(error) = write_whole(&description, &serde_json::to_vec(&held)?) {
        // Nobody could find it again.
        kill(pid);
        let _ = std::fs::remove_file(&launch.socket);
        return tell(&Birth::Failed(at("cannot write", &description, error)));
    }
    if tell(&Birth::Held(held)).is_err() {
        // The worker died before it could know of this harness: nobody will ask for it.
        kill(pid);
        let _ = std::fs::remove_file(&launch.socket);
        return Ok(());
    }
    tokio::spawn(feed(Arc::clone(&shared), stdin, inputs));
    let reading = tokio::spawn(read_lines(Arc::clone(&shared), stdout));
    let tail = Arc::clone(&shared);
    let last_words = tokio::spawn(async move {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = stderr.read(&mut buffer).await {
            let mut inner = tail.lock();
            inner.stderr.extend_from_slice(&buffer[..n]);
            let over = inner.stderr.len().saturating_sub(STDERR_MAX);
            inner.stderr.drain(..over);
        }
    });
    let serving = tokio::spawn(serve(Arc::clone(&shared), listener));
    tokio::select! {
        status = child.wait() => {
            // A full spool keeps the last lines in the pipe: wait as long as a worker may need.
            finish_reading(&shared, reading).await;
            // What it started may hold this pipe too.
            let _ = timeout(DRAIN, last_words).await;
            let status = status?;
            let mut inner = shared.lock();
            let stderr = String::from_utf8_lossy(&inner.stderr).into_owned();
            inner.exit = Some(Exit { code: status.code(), signal: status.signal(), stderr });
        }
        _ = terminate.recv() => {
            kill(pid);
            let _ = child.wait().await;
            let _ = std::fs::remove_file(&launch.socket);
            return Ok(());
        }
    }
    shared.changed.notify_waiters();
    tokio::select! {
        () = shared.over.notified() => {}
        () = sleep(EXIT_KEPT) => {}
        _ = terminate.recv() => {}
    }
    serving.abort();
    let _ = std::fs::remove_file(&launch.socket);
    Ok(())
}

fn at(what: &str, path: &Path, error: io::Error) -> String {
    format!("{what} {}: {error}", path.display())
}

fn prepare(launch: &Launch) -> Result<(Child, UnixListener, Spool), String> {
    let spool_path = launch.folder.join("spool");
    let spool = Spool::create(spool_path.clone()).map_err(|e| at("cannot write", &spool_path, e))?;
    let _ = std::fs::remove_file(&launch.socket);
    let listener =
        UnixListener::bind(&launch.socket).map_err(|e| at("cannot listen at", &launch.socket, e))?;
    let child = Command::new(own_program().map_err(|e| e.to_string())?)
        .arg0("countersign-worker")
        .arg("tether")
        .arg("--parent")
        .arg(std::process::id().to_string())
        .arg("--")
        .arg(&launch.program)
        .args(&launch.args)
        .env_clear()
        .envs(&launch.env)
        .current_dir(&launch.cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|e| at("cannot start", &launch.program, e))?;
    Ok((child, listener, spool))
}

/// Ends the holder that describes itself in `folder`, with its harness, and removes the
/// folder. For processes nobody knows of: nothing was ever handed to them.
pub fn end(folder: &Path) {
    let described = std::fs::read(folder.join("holder.json")).ok();
    if let Some(held) = described.and_then(|b| serde_json::from_slice::<Held>(&b).ok()) {
        // The harness first, by its group: what it started goes with it.
        if held.runs() {
            kill(held.pid);
        }
        // The holder outlives it, so that somebody learns how it ended.
        if let Some(holder) = listener_of(&held.socket) {
            let _ = rustix::process::kill_process(holder, rustix::process::Signal::KILL);
        }
        let _ = std::fs::remove_file(&held.socket);
    }
    // What cannot be removed is only litter.
    let _ = std::fs::remove_dir_all(folder);
}

/// Who listens at a socket, as far as the machine tells (Linux does): no other process
/// can have the holder's number then.
fn listener_of(socket: &Path) -> Option<rustix::process::Pid> {
    #[cfg(target_os = "linux")]
    {
        let stream = std::os::unix::net::UnixStream::connect(socket).ok()?;
        rustix::net::sockopt::socket_peercred(&stream).ok().map(|peer| peer.pid)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = socket;
        None
    }
}

impl Held {
    /// Whether the harness is there, as far as the machine tells (Linux does).
    pub fn runs(&self) -> bool {
        self.started.is_some() && started_at(self.pid) == self.started
    }
}

/// The kernel's start time of a process, from `/proc`. One that has ended has none, though
/// nobody may ever reap it, as in a container without an init.
fn started_at(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets and may hold anything.
    let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
    let ended = matches!(rest.next()?, "Z" | "X");
    rest.nth(18)?.parse().ok().filter(|_| !ended)
}

fn kill(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // It may have ended in this moment; then there is nothing to kill.
    let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
}

async fn finish_reading(shared: &Shared, mut reading: JoinHandle<()>) {
    loop {
        if timeout(DRAIN, &mut reading).await.is_ok() {
            return;
        }
        let inner = shared.lock();
        if !inner.spool.is_full() && !inner.waits_for_room {
            reading.abort();
            return;
        }
    }
}

/// Reads the harness's lines into the spool, and waits while it is full.
async fn read_lines(shared: Arc<Shared>, stdout: ChildStdout) {
    let mut stdout = BufReader::with_capacity(64 * 1024, stdout);
    // Of a line that is too long only the first bytes stay in `line`.
    let (mut line, mut skipped) = (Vec::new(), 0_usize);
    loop {
        while shared.lock().spool.is_full() {
            shared.changed.notified().await;
        }
        let Ok(buffer) = stdout.fill_buf().await else { return };
        if buffer.is_empty() {
            // A line without its end is not one.
            return;
        }
        let end = buffer.iter().position(|b| *b == b'\n');
        let taken = end.unwrap_or(buffer.len());
        if skipped == 0 && line.len() + taken <= LINE_MAX {
            line.extend_from_slice(&buffer[..taken]);
        } else {
            if skipped == 0 {
                skipped = line.len();
                line.truncate(HEAD_MAX);
                line.shrink_to_fit();
            }
            skipped += taken;
        }
        stdout.consume(taken + usize::from(end.is_some()));
        if end.is_some() {
            let line = std::mem::take(&mut line);
            let bytes = std::mem::take(&mut skipped);
            loop {
                let kept = shared.lock().keep(&line, bytes as u64);
                if kept.is_ok() {
                    break;
                }
                // A line that cannot be kept must not be lost in silence: the pipe fills, the
                // harness waits until there is room.
                sleep(ROOM).await;
            }
            shared.changed.notify_waiters();
        }
    }
}

/// The one writer of the harness's standard input.
async fn feed(shared: Arc<Shared>, stdin: ChildStdin, mut inputs: mpsc::UnboundedReceiver<Input>) {
    let mut stdin = Some(stdin);
    while let Some(input) = inputs.recv().await {
        match input {
            Input::Close => stdin = None,
            Input::Line { id, mut text } => {
                text.push('\n');
                let handed = match &mut stdin {
                    Some(pipe) => pipe.write_all(text.as_bytes()).await.is_ok(),
                    None => false,
                };
                let mut inner = shared.lock();
                let report = if handed {
                    inner.taken.written(&id);
                    FromHolder::Written { id }
                } else {
                    FromHolder::WriteFailed { id }
                };
                if let Some(confirm) = &inner.confirm {
                    let _ = confirm.send(report);
                }
            }
        }
    }
}

/// Serves one worker at a time.
async fn serve(shared: Arc<Shared>, listener: UnixListener) {
    let mut present: Option<(JoinHandle<()>, Arc<Notify>)> = None;
    while let Ok((stream, _)) = listener.accept().await {
        if let Some((task, replaced)) = present.take() {
            replaced.notify_one();
            let _ = task.await;
        }
        let replaced = Arc::new(Notify::new());
        let task = tokio::spawn(connection(Arc::clone(&shared), stream, Arc::clone(&replaced)));
        present = Some((task, replaced));
    }
}

async fn connection(shared: Arc<Shared>, stream: UnixStream, replaced: Arc<Notify>) {
    let (read, mut write) = stream.into_split();
    let (confirm, confirmations) = mpsc::unbounded_channel();
    let hello = {
        let mut inner = shared.lock();
        inner.confirm = Some(confirm);
        FromHolder::Hello { held: shared.held.clone(), start: inner.spool.start(), end: inner.spool.end() }
    };
    if send(&mut write, &hello, None).await.is_err() {
        return;
    }
    let (from, starts) = mpsc::unbounded_channel();
    let out = tokio::spawn(stream_lines(Arc::clone(&shared), write, confirmations, starts));
    take_commands(&shared, read, &from, &replaced).await;
    out.abort();
}

async fn take_commands(
    shared: &Shared,
    read: OwnedReadHalf,
    from: &mpsc::UnboundedSender<u64>,
    replaced: &Notify,
) {
    let mut lines = BufReader::new(read).lines();
    loop {
        let line = tokio::select! {
            line = lines.next_line() => line,
            () = replaced.notified() => {
                // What the earlier worker had sent before it went is still taken, whole
                // lines only; a dead one's socket ends, a hung one's is given a moment.
                while let Ok(Ok(Some(line))) = timeout(Duration::from_millis(200), lines.next_line()).await {
                    take(shared, from, &line);
                }
                return;
            }
        };
        match line {
            Ok(Some(line)) => take(shared, from, &line),
            _ => return,
        }
    }
}

fn take(shared: &Shared, from: &mpsc::UnboundedSender<u64>, line: &str) {
    let Ok(command) = serde_json::from_str::<ToHolder>(line) else { return };
    match command {
        ToHolder::From { offset } => {
            let _ = from.send(offset);
        }
        ToHolder::Write { id, text } => {
            let mut inner = shared.lock();
            // One line is one message: a line feed inside would be two.
            if text.contains('\n') {
                if let Some(confirm) = &inner.confirm {
                    let _ = confirm.send(FromHolder::WriteFailed { id });
                }
            } else if inner.taken.take(&id) {
                let _ = shared.input.send(Input::Line { id, text });
            } else if inner.taken.is_written(&id)
                && let Some(confirm) = &inner.confirm
            {
                let _ = confirm.send(FromHolder::Written { id });
            }
        }
        ToHolder::Posted { offset } => {
            let _ = shared.lock().spool.posted(offset);
            shared.changed.notify_waiters();
        }
        ToHolder::CloseInput => {
            let _ = shared.input.send(Input::Close);
        }
        ToHolder::Kill => {
            if shared.lock().exit.is_none() {
                kill(shared.held.pid);
            }
        }
        ToHolder::End => {
            if shared.lock().exit.is_some() {
                shared.over.notify_one();
            }
        }
    }
}

/// Sends confirmations and lines, and the exit after the last line.
async fn stream_lines(
    shared: Arc<Shared>,
    mut write: tokio::net::unix::OwnedWriteHalf,
    mut confirmations: mpsc::UnboundedReceiver<FromHolder>,
    mut starts: mpsc::UnboundedReceiver<u64>,
) {
    let (mut at, mut told) = (None::<u64>, false);
    loop {
        // Listening starts before looking, so that no change falls in between.
        let changed = shared.changed.notified();
        while let Ok(report) = confirmations.try_recv() {
            if send(&mut write, &report, None).await.is_err() {
                return;
            }
        }
        while let Ok(offset) = starts.try_recv() {
            (at, told) = (Some(offset.max(shared.lock().spool.start())), false);
        }
        if let Some(offset) = at {
            let (line, exit) = {
                let inner = shared.lock();
                (inner.spool.read(offset), inner.exit.clone())
            };
            match line {
                Err(_) => return,
                Ok(Some((kept, next))) => {
                    let sent = match kept {
                        Kept::Line(bytes) => {
                            send(&mut write, &FromHolder::Line { offset, next }, Some(&bytes)).await
                        }
                        Kept::LeftOut(bytes, head) => {
                            send(&mut write, &FromHolder::LeftOut { offset, next, bytes, head }, None).await
                        }
                    };
                    if sent.is_err() {
                        return;
                    }
                    at = Some(next);
                    continue;
                }
                Ok(None) => {
                    if let Some(exit) = exit.filter(|_| !told) {
                        told = true;
                        if send(&mut write, &FromHolder::Exit { exit }, None).await.is_err() {
                            return;
                        }
                    }
                }
            }
        }
        tokio::select! {
            () = changed => {}
            report = confirmations.recv() => match report {
                Some(report) => if send(&mut write, &report, None).await.is_err() { return },
                None => return,
            },
            offset = starts.recv() => match offset {
                Some(offset) => (at, told) = (Some(offset.max(shared.lock().spool.start())), false),
                None => return,
            },
        }
    }
}

async fn send(
    write: &mut tokio::net::unix::OwnedWriteHalf,
    message: &FromHolder,
    line: Option<&[u8]>,
) -> io::Result<()> {
    let mut bytes = serde_json::to_vec(message)?;
    bytes.push(b'\n');
    if let Some(line) = line {
        bytes.extend_from_slice(line);
        bytes.push(b'\n');
    }
    write.write_all(&bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_once_and_the_ids_do_not_pile_up() {
        let mut taken = Taken::default();
        assert!(taken.take("answer:1") && !taken.take("answer:1") && !taken.is_written("answer:1"));
        taken.written("answer:1");
        assert!(taken.is_written("answer:1"));
        for n in 0..TAKEN_MAX - 1 {
            taken.take(&n.to_string());
        }
        assert!(!taken.take("answer:1"));
        for n in 0..3 * TAKEN_MAX {
            taken.take(&n.to_string());
        }
        assert_eq!((taken.all.len(), taken.order.len()), (TAKEN_MAX, TAKEN_MAX));
    }
}
