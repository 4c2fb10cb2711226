//! Keyset cursors: where the next page of a list starts.

use chrono::{DateTime, Utc};
use domain::failure::Failure;
use uuid::Uuid;

/// The last row of a page: its time and id. Written `<microseconds>_<uuid>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    pub at: DateTime<Utc>,
    pub id: Uuid,
}

impl Cursor {
    /// Reads a cursor of an address. A wrong one is the caller's fault.
    pub fn read(text: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some(text) = text.filter(|t| !t.is_empty()) else { return Ok(None) };
        let parsed = text.split_once('_').and_then(|(at, id)| {
            Some(Self { at: DateTime::from_timestamp_micros(at.parse().ok()?)?, id: id.parse().ok()? })
        });
        parsed.map(Some).ok_or_else(|| {
            Failure::invalid("after", "This page address is not valid. Go back to the start of the list.")
        })
    }

    pub fn write(self) -> String {
        format!("{}_{}", self.at.timestamp_micros(), self.id)
    }
}

/// Cuts a page of `rows` read with one more than `most`; the cursor is that of the
/// last row kept.
pub(crate) fn page<T>(mut rows: Vec<T>, most: usize, of: impl Fn(&T) -> Cursor) -> (Vec<T>, Option<String>) {
    let more = rows.len() > most;
    rows.truncate(most);
    let next = rows.last().filter(|_| more).map(|row| of(row).write());
    (rows, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_to_the_microsecond() {
        let at = DateTime::from_timestamp_micros(1_796_048_528_250_123);
        let cursor = at.map(|at| Cursor { at, id: Uuid::nil() });
        assert_eq!(Cursor::read(cursor.map(Cursor::write).as_deref()), Ok(cursor));
        assert!(Cursor::read(Some("x")).is_err());
        assert_eq!(Cursor::read(Some("")), Ok(None));
    }
}
