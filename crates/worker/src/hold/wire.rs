//! What a holder and its worker say to each other: one JSON object a line. The bytes
//! of a harness's line follow their [`FromHolder::Line`] as a line of their own, exactly
//! as they came.

use std::{collections::BTreeMap, path::PathBuf};

use domain::id::Incarnation;
use serde::{Deserialize, Serialize};

/// How to start a harness. Handed over on the holder's standard input, because the
/// environment holds secrets.
#[derive(Debug, Serialize, Deserialize)]
pub struct Launch {
    pub incarnation: Incarnation,
    /// Where spool and description are kept.
    pub folder: PathBuf,
    pub socket: PathBuf,
    pub program: PathBuf,
    pub args: Vec<String>,
    /// The whole environment of the harness.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
}

/// What a holder says of itself once the harness runs; `holder.json` in its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    pub incarnation: Incarnation,
    pub socket: PathBuf,
    pub holder: u32,
    /// The harness's process id.
    pub pid: u32,
    /// When the kernel started it, in clock ticks since boot; tells a reused pid apart.
    pub started: Option<u64>,
}

/// The holder's one line on its standard output.
#[derive(Debug, Serialize, Deserialize)]
pub enum Birth {
    Held(Held),
    /// Why the harness could not be started.
    Failed(String),
}

/// How a harness ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The end of what it wrote to its standard error.
    pub stderr: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum FromHolder {
    Hello {
        held: Held,
        /// Where the spool begins; what is before it has been posted.
        start: u64,
        end: u64,
    },
    /// A line of the harness from byte `offset` on; the next one begins at `next`.
    Line { offset: u64, next: u64 },
    /// A line that was too long or not UTF-8, left out.
    LeftOut {
        offset: u64,
        next: u64,
        bytes: u64,
        /// How it begins, as far as that is text. A holder of an older worker says nothing.
        #[serde(default)]
        head: String,
    },
    /// The line with this id was handed to the harness.
    Written { id: String },
    /// The line with this id could not be handed over: the harness closed its input.
    WriteFailed { id: String },
    /// The harness ended, and every line of it was sent before this.
    Exit { exit: Exit },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ToHolder {
    /// Send lines from this offset on.
    From { offset: u64 },
    /// Hand `text` to the harness as one line. An id that was handed over before is
    /// confirmed again and not written again, whichever worker sent it.
    Write { id: String, text: String },
    /// Everything before this offset is kept elsewhere.
    Posted { offset: u64 },
    /// Close the harness's standard input after what was written before.
    CloseInput,
    /// Kill the harness and its process group.
    Kill,
    /// The exit status was taken: the holder may go.
    End,
}
