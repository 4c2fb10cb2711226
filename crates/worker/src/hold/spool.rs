//! The lines of a harness on disk, from the first one not yet posted on.
//!
//! Offsets count from the harness's first byte; `base` is where the file begins.
//! Lines that cannot be kept (too long, not UTF-8) are stored as a mark: a byte that
//! no JSON line begins with, the number of bytes, and how the line begins. A permission
//! request names its id there, so that it can be refused.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use crate::folder::private;

/// The longest line that is kept, in bytes.
pub const LINE_MAX: usize = 8 * 1024 * 1024;
/// Bytes kept of the beginning of a line that is left out.
pub const HEAD_MAX: usize = 4 * 1024;
/// Bytes not yet posted beyond which the harness is no longer read.
pub const SPOOL_MAX: u64 = 64 * 1024 * 1024;
/// Posted bytes at the head that make it worth rewriting the file.
const TRIM_AT: u64 = 4 * 1024 * 1024;
const MARK: u8 = 1;

#[derive(Debug)]
pub struct Spool {
    path: PathBuf,
    file: File,
    base: u64,
    end: u64,
    posted: u64,
}

/// A line read back.
#[derive(Debug, PartialEq, Eq)]
pub enum Kept {
    Line(Vec<u8>),
    /// So many bytes, beginning with these.
    LeftOut(u64, String),
}

impl Spool {
    pub fn create(path: PathBuf) -> io::Result<Self> {
        let file = open(&path)?;
        Ok(Self { path, file, base: 0, end: 0, posted: 0 })
    }

    pub const fn start(&self) -> u64 {
        self.base
    }

    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Whether the harness has to wait.
    pub const fn is_full(&self) -> bool {
        self.end - self.posted > SPOOL_MAX
    }

    /// Appends a line, given without its line feed.
    pub fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if line.len() > LINE_MAX || line.first() == Some(&MARK) || std::str::from_utf8(line).is_err() {
            return self.leave_out(line.len() as u64, line);
        }
        self.put(line)
    }

    /// Appends a mark for a line of that many bytes that begins with `head`.
    pub fn leave_out(&mut self, bytes: u64, head: &[u8]) -> io::Result<()> {
        let head = &head[..head.len().min(HEAD_MAX)];
        let head = head.utf8_chunks().next().map_or("", |whole| whole.valid());
        self.put(format!("\u{1}{bytes} {head}").as_bytes())
    }

    /// Appends a line whole or not at all: what is there of one that did not fit is written
    /// over by the next try.
    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        let at = self.end - self.base;
        self.file.write_all_at(line, at)?;
        self.file.write_all_at(b"\n", at + line.len() as u64)?;
        self.end += line.len() as u64 + 1;
        Ok(())
    }

    /// The line at `offset` and where the next one begins; none if there is none yet.
    pub fn read(&self, offset: u64) -> io::Result<Option<(Kept, u64)>> {
        if offset >= self.end {
            return Ok(None);
        }
        let mut at = offset.saturating_sub(self.base);
        let mut line = Vec::new();
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let n = self.file.read_at(&mut buffer, at)?;
            if n == 0 {
                return Ok(None);
            }
            if let Some(i) = buffer[..n].iter().position(|b| *b == b'\n') {
                line.extend_from_slice(&buffer[..i]);
                break;
            }
            line.extend_from_slice(&buffer[..n]);
            at += n as u64;
        }
        let next = offset.max(self.base) + line.len() as u64 + 1;
        let kept = match line.split_first() {
            Some((&MARK, mark)) => {
                let mark = String::from_utf8_lossy(mark);
                let (bytes, head) = mark.split_once(' ').unwrap_or((&mark, ""));
                Kept::LeftOut(bytes.parse().unwrap_or_default(), head.to_owned())
            }
            _ => Kept::Line(line),
        };
        Ok(Some((kept, next)))
    }

    /// Everything before `offset` is kept elsewhere.
    pub fn posted(&mut self, offset: u64) -> io::Result<()> {
        self.posted = self.posted.max(offset.min(self.end));
        if self.posted - self.base < TRIM_AT {
            return Ok(());
        }
        let new = self.path.with_extension("new");
        let trimmed = self.copy_to(&new);
        if trimmed.is_err() {
            // There was no room for both; half a copy would only take more.
            let _ = std::fs::remove_file(&new);
        }
        (self.file, self.base) = (trimmed?, self.posted);
        Ok(())
    }

    /// Puts what is not posted into a new file in the place of this one.
    fn copy_to(&self, new: &Path) -> io::Result<File> {
        let mut file = open(new)?;
        let (mut at, end) = (self.posted - self.base, self.end - self.base);
        let mut buffer = vec![0; 64 * 1024];
        while at < end {
            let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
            let n = self.file.read_at(&mut buffer[..most], at)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.write_all(&buffer[..n])?;
            at += n as u64;
        }
        std::fs::rename(new, &self.path)?;
        Ok(file)
    }
}

fn open(path: &Path) -> io::Result<File> {
    private(OpenOptions::new().read(true).write(true).create(true).truncate(true)).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_after_trimming_at_the_same_offsets() {
        let path = std::env::temp_dir().join(format!("cs-spool-{}", uuid::Uuid::new_v4()));
        let mut spool = Spool::create(path.clone()).unwrap();
        spool.append(b"one").unwrap();
        spool.append(&vec![b'x'; 5 * 1024 * 1024]).unwrap();
        let at = spool.end();
        spool.append(b"three").unwrap();
        spool.append(&[0xff]).unwrap();
        spool.leave_out(9_000_000, "{\"id\": 1, \"é".as_bytes().split_last().unwrap().1).unwrap();
        spool.posted(at).unwrap();
        assert_eq!(spool.start(), at);
        let (line, next) = spool.read(at).unwrap().unwrap();
        assert_eq!(line, Kept::Line(b"three".to_vec()));
        let (line, next) = spool.read(next).unwrap().unwrap();
        assert_eq!(line, Kept::LeftOut(1, String::new()));
        let (line, next) = spool.read(next).unwrap().unwrap();
        assert_eq!(line, Kept::LeftOut(9_000_000, "{\"id\": 1, \"".to_owned()));
        assert_eq!(spool.read(next).unwrap(), None);
        assert!(std::fs::metadata(&path).unwrap().len() < 100);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_not_posted_fills_it() {
        let path = std::env::temp_dir().join(format!("cs-spool-{}", uuid::Uuid::new_v4()));
        let mut spool = Spool::create(path.clone()).unwrap();
        while !spool.is_full() {
            spool.append(&vec![b'x'; LINE_MAX]).unwrap();
        }
        spool.posted(spool.end()).unwrap();
        assert!(!spool.is_full());
        std::fs::remove_file(path).unwrap();
    }
}
