//! Limits failed sign-ins, per account and per address, in this server's memory.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::Mutex,
    time::{Duration, Instant},
};

/// Failures after which an account waits, and an address.
pub const PER_ACCOUNT: u32 = 5;
const PER_ADDRESS: u32 = 30;
/// How long, from the first of them.
pub const WINDOW: Duration = Duration::from_mins(15);
/// Keys kept; beyond it the oldest windows go.
const KEYS: usize = 10_000;

#[derive(Debug, Default)]
pub struct Limiter {
    accounts: Mutex<HashMap<String, Window>>,
    addresses: Mutex<HashMap<IpAddr, Window>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since: Instant,
    failures: u32,
}

/// What a try may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on; so many tries are left after this one fails.
    Try {
        left: u32,
    },
    Wait(Duration),
}

impl Limiter {
    /// Counts a try as failed until [`Limiter::succeeded`] takes it back: tries under way
    /// at once cannot pass the limit together.
    pub fn begin(&self, account: &str, address: IpAddr, now: Instant) -> Verdict {
        let address = count(&self.addresses, address, PER_ADDRESS, now);
        if let Verdict::Wait(_) = address {
            return address;
        }
        count(&self.accounts, account.trim().to_lowercase(), PER_ACCOUNT, now)
    }

    pub fn succeeded(&self, account: &str, address: IpAddr) {
        if let Ok(mut accounts) = self.accounts.lock() {
            accounts.remove(&account.trim().to_lowercase());
        }
        if let Ok(mut addresses) = self.addresses.lock()
            && let Some(window) = addresses.get_mut(&address)
        {
            window.failures = window.failures.saturating_sub(1);
        }
    }
}

fn count<K: Eq + Hash + Clone>(
    windows: &Mutex<HashMap<K, Window>>,
    key: K,
    most: u32,
    now: Instant,
) -> Verdict {
    // A poisoned lock means a bug elsewhere: fail closed.
    let Ok(mut windows) = windows.lock() else { return Verdict::Wait(WINDOW) };
    if windows.len() >= KEYS {
        windows.retain(|_, w| now.duration_since(w.since) < WINDOW);
        if windows.len() >= KEYS
            && let Some(oldest) = windows.iter().min_by_key(|(_, w)| w.since).map(|(k, _)| k.clone())
        {
            windows.remove(&oldest);
        }
    }
    let window = windows.entry(key).or_insert(Window { since: now, failures: 0 });
    let age = now.duration_since(window.since);
    if age >= WINDOW {
        *window = Window { since: now, failures: 0 };
    }
    if window.failures >= most {
        return Verdict::Wait(WINDOW.saturating_sub(now.duration_since(window.since)));
    }
    window.failures += 1;
    Verdict::Try { left: most - window.failures }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn five_failures_wait_and_the_name_s_case_does_not_matter() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        for left in (0..PER_ACCOUNT).rev() {
            assert_eq!(limiter.begin("Ana", HERE, now), Verdict::Try { left });
        }
        assert!(matches!(limiter.begin(" ana", HERE, now), Verdict::Wait(_)));
        assert!(matches!(limiter.begin("tomas", HERE, now), Verdict::Try { .. }));
        assert!(matches!(limiter.begin("ana", HERE, now + WINDOW), Verdict::Try { left: 4 }));
    }

    #[test]
    fn an_address_that_tries_many_names_waits() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        for i in 0..PER_ADDRESS {
            assert!(matches!(limiter.begin(&format!("n{i}"), HERE, now), Verdict::Try { .. }));
        }
        assert!(matches!(limiter.begin("other", HERE, now), Verdict::Wait(_)));
    }

    #[test]
    fn success_takes_the_failures_back() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        limiter.begin("ana", HERE, now);
        limiter.succeeded("ana", HERE);
        assert_eq!(limiter.begin("ana", HERE, now), Verdict::Try { left: 4 });
    }
}
