//! What changes in a page by itself.
//!
//! Each topic has a signal that is bumped when the server says that the topic has a
//! new version; resources name the topics they depend on. A message only wakes: the
//! truth is read again.

#[cfg(feature = "hydrate")]
mod socket;

use domain::time::Timestamp;
use leptos::prelude::*;

/// Whether the page hears of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// Drawn by the server; not hydrated, or not linked yet.
    #[default]
    Drawn,
    Live,
    /// Lost, and since when by the reader's clock.
    Lost(Timestamp),
}

/// The live state of the page. Copies share their signals.
#[derive(Clone, Copy, Debug)]
pub struct Live {
    pub approvals: RwSignal<u64>,
    /// Sessions, runs and their events.
    pub sessions: RwSignal<u64>,
    pub workers: RwSignal<u64>,
    pub agents: RwSignal<u64>,
    pub users: RwSignal<u64>,
    pub link: RwSignal<Link>,
    /// False in the first render on both sides; true once the page answers to people.
    pub hydrated: RwSignal<bool>,
    /// The reader's clock in milliseconds, once a second; 0 until hydrated.
    pub tick: RwSignal<f64>,
    /// Requests that wait for a person, for the tab's title.
    pub waiting: RwSignal<u64>,
    /// The latest announcement for screen readers.
    pub news: RwSignal<String>,
    connected: RwSignal<bool>,
}

impl Live {
    pub fn new() -> Self {
        Self::counting(&ArcRwSignal::new(0))
    }

    /// With the count of waiting requests kept outside: the title reads it.
    pub fn counting(waiting: &ArcRwSignal<u64>) -> Self {
        Self {
            approvals: RwSignal::new(0),
            sessions: RwSignal::new(0),
            workers: RwSignal::new(0),
            agents: RwSignal::new(0),
            users: RwSignal::new(0),
            link: RwSignal::new(Link::Drawn),
            hydrated: RwSignal::new(false),
            tick: RwSignal::new(0.0),
            waiting: RwSignal::from(waiting.clone()),
            news: RwSignal::new(String::new()),
            connected: RwSignal::new(false),
        }
    }

    /// The state of this page.
    pub fn here() -> Self {
        use_context().unwrap_or_else(Self::new)
    }

    /// The signal of a topic, by its name on the wire.
    pub fn topic(self, name: &str) -> Option<RwSignal<u64>> {
        Some(match name {
            "approvals" => self.approvals,
            "sessions" => self.sessions,
            "workers" => self.workers,
            "agents" => self.agents,
            "users" => self.users,
            _ => return None,
        })
    }

    /// Reads everything again.
    pub fn reread(self) {
        for topic in [self.approvals, self.sessions, self.workers, self.agents, self.users] {
            topic.update(|n| *n += 1);
        }
    }

    /// Starts what runs in the browser only, after hydration.
    pub fn start(self) {
        #[cfg(feature = "hydrate")]
        Effect::new(move |_| {
            crate::browser::adopt_typed();
            self.hydrated.set(true);
            self.tick.set(crate::browser::now_ms());
            let _ = set_interval_with_handle(
                move || self.tick.set(crate::browser::now_ms()),
                std::time::Duration::from_secs(1),
            );
            let handle = window_event_listener(leptos::ev::keydown, |ev| crate::browser::move_on_key(&ev));
            // The listener lives as long as the page.
            std::mem::forget(handle);
            // After the effects of this first round have been applied.
            set_timeout(crate::browser::mark_hydrated, std::time::Duration::ZERO);
        });
    }

    /// Opens the socket, once, when the page knows that somebody is signed in.
    pub fn connect(self) {
        if self.connected.get_untracked() {
            return;
        }
        self.connected.set(true);
        #[cfg(feature = "hydrate")]
        socket::open(self);
    }

    /// How much of `left_ms`, as it was when this view was made, is left by now.
    pub fn countdown(self, left_ms: i64) -> impl Fn() -> i64 + Copy + Send + Sync + 'static {
        let made = crate::browser::now_ms();
        move || {
            let tick = self.tick.get();
            if tick > made { (left_ms - passed(made, tick)).max(0) } else { left_ms }
        }
    }

    /// The same, counting up.
    pub fn countup(self, waited_ms: i64) -> impl Fn() -> i64 + Copy + Send + Sync + 'static {
        let made = crate::browser::now_ms();
        move || {
            let tick = self.tick.get();
            if tick > made { waited_ms + passed(made, tick) } else { waited_ms }
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Self::new()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a page is not open for 2^53 ms")]
fn passed(from: f64, to: f64) -> i64 {
    (to - from) as i64
}
