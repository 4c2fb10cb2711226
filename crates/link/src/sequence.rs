//! The two ends of a session's event sequence.

/// The sender's end: what is made, sent and acknowledged. Events wait in the
/// journal until they are acknowledged; at most `window` are under way.
#[derive(Clone, Debug)]
pub struct Outbox {
    made: i64,
    sent: i64,
    acked: i64,
    window: i64,
}

impl Outbox {
    /// A sender whose events up to `acked` are stored and up to `made` exist.
    pub fn new(acked: i64, made: i64, window: usize) -> Self {
        Self { made, sent: acked, acked, window: i64::try_from(window).unwrap_or(i64::MAX) }
    }

    /// Numbers a new event.
    pub fn make(&mut self) -> i64 {
        self.made += 1;
        self.made
    }

    /// The next event to send, if the window allows one.
    pub fn next_due(&mut self) -> Option<i64> {
        (self.sent < self.made && self.sent - self.acked < self.window).then(|| {
            self.sent += 1;
            self.sent
        })
    }

    /// The receiver has stored everything up to `seq`. Never goes back.
    pub fn acknowledge(&mut self, seq: i64) {
        self.acked = self.acked.max(seq.min(self.made));
        self.sent = self.sent.max(self.acked);
    }

    /// A new link: whatever is not acknowledged goes again.
    pub fn relink(&mut self, acked: i64) {
        self.acknowledge(acked);
        self.sent = self.acked;
    }

    pub fn acked(&self) -> i64 {
        self.acked
    }

    pub fn made(&self) -> i64 {
        self.made
    }
}

/// What to do with an event that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// Store it, then acknowledge.
    Next,
    /// Stored before: acknowledge again.
    Repeated,
    /// One before it is missing: drop it; the sender will go back.
    Gap,
}

/// Judges an event by the last one stored.
pub fn arrival(stored: i64, seq: i64) -> Arrival {
    match seq - stored {
        1 => Arrival::Next,
        ..=0 => Arrival::Repeated,
        _ => Arrival::Gap,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_beyond_the_window() {
        let mut out = Outbox::new(0, 0, 2);
        for _ in 0..5 {
            out.make();
        }
        assert_eq!((out.next_due(), out.next_due(), out.next_due()), (Some(1), Some(2), None));
        out.acknowledge(1);
        assert_eq!((out.next_due(), out.next_due()), (Some(3), None));
    }

    #[test]
    fn a_new_link_sends_again_what_was_not_stored() {
        let mut out = Outbox::new(0, 3, 10);
        while out.next_due().is_some() {}
        out.relink(1);
        assert_eq!((out.next_due(), out.next_due(), out.next_due()), (Some(2), Some(3), None));
    }

    #[test]
    fn acknowledgements_never_go_back_nor_beyond_what_exists() {
        let mut out = Outbox::new(2, 4, 10);
        out.acknowledge(1);
        assert_eq!(out.acked(), 2);
        out.acknowledge(99);
        assert_eq!(out.acked(), 4);
        assert_eq!(out.next_due(), None);
    }

    #[test]
    fn arrivals_are_told_apart() {
        assert_eq!(arrival(4, 5), Arrival::Next);
        assert_eq!(arrival(4, 4), Arrival::Repeated);
        assert_eq!(arrival(4, 6), Arrival::Gap);
    }
}
