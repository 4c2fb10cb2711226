//! The book of effects, apart from everything the product writes: one line for each
//! call that ran, for each that was refused, and for each that was open when the
//! process ended by its script.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use serde_json::value::RawValue;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Became {
    Ran,
    Refused,
    /// The process ended, as its script said, before the call was over or its result was told.
    Died,
}

/// One line.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    pub became: Became,
    pub tool_use_id: &'a str,
    pub request_id: Option<&'a str>,
    pub tool: &'a str,
    /// The input as it ran, or as it was asked.
    pub input: &'a RawValue,
    /// Why it was refused.
    pub reason: Option<&'a str>,
    /// The process.
    pub pid: u32,
    /// Milliseconds since 1970.
    pub at: u64,
}

/// Now, as a ledger counts time.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Appends a line with one write, so that lines of many processes never mix.
pub fn append(path: &Path, line: &Line<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    OpenOptions::new().append(true).create(true).open(path)?.write_all(&text)
}
