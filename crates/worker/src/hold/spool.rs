//! The lines of a harness on disk, from the first one not yet posted on.
//!
//! Offsets count from the harness's first byte; `base` is where the file begins.
//! Lines that cannot be kept (too long, not UTF-8) are stored as a mark: a byte that
//! no JSON line begins with, and the number of bytes left out.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use crate::folder::private;

/// The longest line that is kept, in bytes.
pub const LINE_MAX: usize = 8 * 1024 * 1024;
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
    LeftOut(u64),
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
    pub fn append(&mut self, mut line: Vec<u8>) -> io::Result<()> {
        if line.len() > LINE_MAX || line.first() == Some(&MARK) || std::str::from_utf8(&line).is_err() {
            return self.leave_out(line.len() as u64);
        }
        line.push(b'\n');
        self.put(&line)
    }

    /// Appends a mark for a line of that many bytes.
    pub fn leave_out(&mut self, bytes: u64) -> io::Result<()> {
        self.put(format!("\u{1}{bytes}\n").as_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.end += bytes.len() as u64;
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
            Some((&MARK, digits)) => {
                Kept::LeftOut(String::from_utf8_lossy(digits).parse().unwrap_or_default())
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
        let mut file = open(&new)?;
        let (mut at, mut buffer) = (self.posted - self.base, vec![0; 64 * 1024]);
        loop {
            let n = self.file.read_at(&mut buffer, at)?;
            if n == 0 {
                break;
            }
            file.write_all(&buffer[..n])?;
            at += n as u64;
        }
        std::fs::rename(&new, &self.path)?;
        (self.file, self.base) = (file, self.posted);
        Ok(())
    }
}

fn open(path: &PathBuf) -> io::Result<File> {
    private(OpenOptions::new().read(true).write(true).create(true).truncate(true)).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_after_trimming_at_the_same_offsets() {
        let path = std::env::temp_dir().join(format!("cs-spool-{}", uuid::Uuid::new_v4()));
        let mut spool = Spool::create(path.clone()).unwrap();
        spool.append(b"one".to_vec()).unwrap();
        spool.append(vec![b'x'; 5 * 1024 * 1024]).unwrap();
        let at = spool.end();
        spool.append(b"three".to_vec()).unwrap();
        spool.append(vec![0xff]).unwrap();
        spool.leave_out(9_000_000).unwrap();
        spool.posted(at).unwrap();
        assert_eq!(spool.start(), at);
        let (line, next) = spool.read(at).unwrap().unwrap();
        assert_eq!(line, Kept::Line(b"three".to_vec()));
        let (line, next) = spool.read(next).unwrap().unwrap();
        assert_eq!(line, Kept::LeftOut(1));
        let (line, next) = spool.read(next).unwrap().unwrap();
        assert_eq!(line, Kept::LeftOut(9_000_000));
        assert_eq!(spool.read(next).unwrap(), None);
        assert!(std::fs::metadata(&path).unwrap().len() < 100);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_is_not_posted_fills_it() {
        let path = std::env::temp_dir().join(format!("cs-spool-{}", uuid::Uuid::new_v4()));
        let mut spool = Spool::create(path.clone()).unwrap();
        while !spool.is_full() {
            spool.append(vec![b'x'; LINE_MAX]).unwrap();
        }
        spool.posted(spool.end()).unwrap();
        assert!(!spool.is_full());
        std::fs::remove_file(path).unwrap();
    }
}
