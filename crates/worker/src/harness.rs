//! A harness as its worker has it: through the socket of its holder.

use std::{io, path::Path, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{UnixStream, unix::OwnedReadHalf},
    process::Command,
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};

use crate::{
    hold::{
        spool::LINE_MAX,
        wire::{Birth, Exit, FromHolder, Held, Launch, ToHolder},
    },
    trial,
};

/// How long a holder may take to start a harness, or to say hello.
const BIRTH: Duration = Duration::from_secs(10);
/// Reports under way from the socket to the session. Small: the holder keeps the rest.
const REPORTS: usize = 64;

/// The longest line with its line feed.
const LINE_BYTES_MAX: usize = LINE_MAX + 1;

/// What a holder tells.
#[derive(Debug)]
pub enum Report {
    Line {
        next: u64,
        text: String,
    },
    LeftOut {
        next: u64,
        bytes: u64,
        /// How the line begins.
        head: String,
    },
    Written {
        id: String,
    },
    WriteFailed {
        id: String,
    },
    Exit(Exit),
    /// The holder is gone, and the harness with it.
    Lost,
}

/// A connection to a holder. Dropping it leaves the harness as it is.
#[derive(Debug)]
pub struct Harness {
    pub held: Held,
    /// Where the holder's spool begins.
    pub start: u64,
    commands: mpsc::UnboundedSender<ToHolder>,
    sending: JoinHandle<()>,
    reports: mpsc::Receiver<Report>,
}

/// Why a harness could not be started or reached.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    #[error("{0}")]
    NotStarted(String),
    #[error("its holder does not answer: {0}")]
    Io(#[from] io::Error),
    #[error("its holder does not answer in time")]
    Late,
}

impl Harness {
    /// Starts a holder, and through it a harness. `exe` is this program.
    pub async fn start(exe: &Path, launch: &Launch) -> Result<Self, HarnessError> {
        let log = crate::folder::private(std::fs::OpenOptions::new().create(true).append(true))
            .open(launch.folder.join("holder.log"))?;
        let mut holder = Command::new(exe)
            .arg0("countersign-worker")
            .arg("hold")
            // The worker's own environment may hold its token.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        trial::pass("spawned");
        if let Some(mut stdin) = holder.stdin.take() {
            stdin.write_all(&serde_json::to_vec(launch).map_err(io::Error::other)?).await?;
            stdin.shutdown().await?;
        }
        trial::pass("launched");
        let mut line = String::new();
        if let Some(stdout) = holder.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            timeout(BIRTH, stdout.read_line(&mut line)).await.map_err(|_| HarnessError::Late)??;
        }
        tokio::spawn(async move { holder.wait().await });
        trial::pass("born");
        match serde_json::from_str(&line) {
            Ok(Birth::Held(held)) => Self::attach(&held.socket).await,
            Ok(Birth::Failed(why)) => Err(HarnessError::NotStarted(why)),
            Err(_) => Err(HarnessError::NotStarted("the holder ended at once".to_owned())),
        }
    }

    /// Connects to a holder that is already there.
    pub async fn attach(socket: &Path) -> Result<Self, HarnessError> {
        let (read, mut write) = UnixStream::connect(socket).await?.into_split();
        let mut read = BufReader::with_capacity(64 * 1024, read);
        let mut line = String::new();
        timeout(BIRTH, read.read_line(&mut line)).await.map_err(|_| HarnessError::Late)??;
        let FromHolder::Hello { held, start, .. } = serde_json::from_str(&line).map_err(io::Error::other)?
        else {
            return Err(io::Error::other("it did not say hello").into());
        };
        let (commands, mut queue) = mpsc::unbounded_channel::<ToHolder>();
        let (tell, reports) = mpsc::channel(REPORTS);
        let sending = tokio::spawn(async move {
            while let Some(command) = queue.recv().await {
                let Ok(mut bytes) = serde_json::to_vec(&command) else { continue };
                bytes.push(b'\n');
                if write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            // Whatever ended it, the session must learn that nothing more comes.
            let _ = receive(&mut read, &tell).await;
            let _ = tell.send(Report::Lost).await;
        });
        Ok(Self { held, start, commands, sending, reports })
    }

    pub async fn report(&mut self) -> Report {
        self.reports.recv().await.unwrap_or(Report::Lost)
    }

    pub fn send(&self, command: ToHolder) {
        // A holder that is gone shows as `Lost`.
        let _ = self.commands.send(command);
    }

    /// Lets the holder go, whose harness has ended. Done when it was told: a holder that
    /// is not told waits a day.
    pub async fn release(self) {
        self.send(ToHolder::End);
        drop(self.commands);
        let _ = timeout(Duration::from_secs(1), self.sending).await;
    }

    pub fn write(&self, id: impl Into<String>, text: impl Into<String>) {
        self.send(ToHolder::Write { id: id.into(), text: text.into() });
    }
}

async fn receive(read: &mut BufReader<OwnedReadHalf>, tell: &mpsc::Sender<Report>) -> io::Result<()> {
    let mut line = String::new();
    loop {
        line.clear();
        if read.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let report = match serde_json::from_str(&line).map_err(io::Error::other)? {
            FromHolder::Line { offset, next } => {
                let length = next.checked_sub(offset).and_then(|n| usize::try_from(n).ok());
                let Some(length @ 1..=LINE_BYTES_MAX) = length else {
                    return Err(io::Error::other("no line has that length"));
                };
                let mut bytes = vec![0; length];
                read.read_exact(&mut bytes).await?;
                bytes.pop();
                Report::Line { next, text: String::from_utf8(bytes).map_err(io::Error::other)? }
            }
            FromHolder::LeftOut { next, bytes, head, .. } => Report::LeftOut { next, bytes, head },
            FromHolder::Written { id } => Report::Written { id },
            FromHolder::WriteFailed { id } => Report::WriteFailed { id },
            FromHolder::Exit { exit } => Report::Exit(exit),
            FromHolder::Hello { .. } => continue,
        };
        if tell.send(report).await.is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is reported of what a holder sends, and how it ends.
    async fn received(bytes: &[u8]) -> (Vec<Report>, io::Result<()>) {
        let (holder, worker) = UnixStream::pair().expect("a pair of sockets");
        let (read, _write) = worker.into_split();
        let (tell, mut reports) = mpsc::channel(1000);
        let bytes = bytes.to_vec();
        let sending = tokio::spawn(async move {
            let (_, mut write) = holder.into_split();
            // The worker may have hung up.
            let _ = write.write_all(&bytes).await;
        });
        let over = receive(&mut BufReader::new(read), &tell).await;
        let _ = sending.await;
        let mut all = Vec::new();
        while let Ok(report) = reports.try_recv() {
            all.push(report);
        }
        (all, over)
    }

    #[tokio::test]
    async fn a_line_that_ends_before_it_begins_is_refused() {
        for (offset, next) in [(9, 3), (0, 0), (u64::MAX, 0), (0, u64::MAX), (1, 20_000_000)] {
            let (all, over) =
                received(format!("{{\"is\":\"line\",\"offset\":{offset},\"next\":{next}}}\nx\n").as_bytes())
                    .await;
            assert!(all.is_empty() && over.is_err(), "{offset} to {next}");
        }
    }

    #[tokio::test]
    async fn what_a_holder_sends_is_taken_as_far_as_it_is_whole() {
        let (all, over) = received(b"{\"is\":\"line\",\"offset\":0,\"next\":3}\nhi\n{\"is\":\"line\",").await;
        assert!(matches!(&all[..], [Report::Line { next: 3, text }] if text == "hi"));
        assert!(over.is_err());
        let (all, over) = received(b"{\"is\":\"line\",\"offset\":0,\"next\":2}\n\xff\n").await;
        assert!(all.is_empty() && over.is_err());
        let (all, over) = received(b"{\"is\":\"left_out\",\"offset\":0,\"next\":3,\"bytes\":9}\n").await;
        assert!(matches!(&all[..], [Report::LeftOut { next: 3, bytes: 9, head }] if head.is_empty()));
        assert!(over.is_ok());
    }
}
