//! Points in time as they cross the wire: milliseconds since 1970 in UTC.

use std::time::Duration;

use chrono::{DateTime, Datelike, Timelike, Utc};
use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The moment as a calendar value; the epoch where the number is out of range.
    pub fn utc(self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.0).unwrap_or_default()
    }

    /// `14:32` in UTC.
    pub fn hour_minute(self) -> String {
        let t = self.utc();
        format!("{:02}:{:02}", t.hour(), t.minute())
    }

    /// `14:32:08` in UTC.
    pub fn clock(self) -> String {
        let t = self.utc();
        format!("{:02}:{:02}:{:02}", t.hour(), t.minute(), t.second())
    }

    /// `2026-11-30` in UTC.
    pub fn day(self) -> String {
        let t = self.utc();
        format!("{:04}-{:02}-{:02}", t.year(), t.month(), t.day())
    }

    /// `2026-11-30T14:32:08Z`, for `<time datetime>`.
    pub fn iso(self) -> String {
        format!("{}T{}Z", self.day(), self.clock())
    }

    /// How long from `earlier` to here; zero if it is the other way round.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(t: DateTime<Utc>) -> Self {
        Self(t.timestamp_millis())
    }
}

/// A span as people read it while it counts down: `2:38`, `1:02:09`.
pub fn countdown(left: Duration) -> String {
    let s = left.as_secs();
    if s >= 3600 {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    } else {
        format!("{}:{:02}", s / 60, s % 60)
    }
}

/// A span as people read it when it is over: `0.2 s`, `9.4 s`, `4 min 12 s`, `2 h 5 min`.
pub fn span(took: Duration) -> String {
    let s = took.as_secs();
    match s {
        0..60 => format!("{}.{} s", s, took.subsec_millis() / 100),
        60..3600 if s.is_multiple_of(60) => format!("{} min", s / 60),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        _ if (s / 60).is_multiple_of(60) => format!("{} h", s / 3600),
        _ => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_in_utc() {
        let t = Timestamp(1_796_048_528_250);
        assert_eq!(t.iso(), "2026-11-30T14:22:08Z");
        assert_eq!(t.hour_minute(), "14:22");
    }

    #[test]
    fn spans_read_as_words() {
        assert_eq!(countdown(Duration::from_secs(158)), "2:38");
        assert_eq!(countdown(Duration::from_secs(3729)), "1:02:09");
        assert_eq!(span(Duration::from_millis(240)), "0.2 s");
        assert_eq!(span(Duration::from_secs(252)), "4 min 12 s");
        assert_eq!(span(Duration::from_mins(15)), "15 min");
        assert_eq!(span(Duration::from_mins(125)), "2 h 5 min");
    }
}
