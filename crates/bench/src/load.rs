//! Closed-loop load: each connection sends the next request when its answer is read.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use serde_json::{Value, json};

use crate::{
    Result,
    http::{Connection, Request},
};

/// Latencies of a run, and its rate.
#[derive(Debug)]
pub struct Figures {
    pub rps: f64,
    sorted: Vec<Duration>,
}

impl Figures {
    pub fn of(mut latencies: Vec<Duration>, took: Duration) -> Self {
        latencies.sort_unstable();
        let rps = if took.is_zero() { 0.0 } else { float(latencies.len()) / took.as_secs_f64() };
        Self { rps, sorted: latencies }
    }

    fn quantile_ms(&self, thousandths: usize) -> f64 {
        if self.sorted.is_empty() {
            return 0.0;
        }
        // Nearest rank, in thousandths so that no float is cast.
        let at = (self.sorted.len() - 1) * thousandths / 1000;
        (self.sorted[at].as_secs_f64() * 100_000.0).round() / 100.0
    }

    pub fn json_without_rps(&self) -> Value {
        json!({ "n": self.sorted.len(), "p50_ms": self.quantile_ms(500), "p99_ms": self.quantile_ms(990) })
    }

    pub fn json(&self) -> Value {
        let mut figures = self.json_without_rps();
        if let Some(map) = figures.as_object_mut() {
            map.insert("rps".into(), json!(self.rps.round()));
        }
        figures
    }
}

/// A count as a float; counts here are far below what a float holds exactly.
pub fn float(n: usize) -> f64 {
    u32::try_from(n).map_or(f64::MAX, f64::from)
}

/// `n` requests over `connections`, each once.
pub async fn count(
    address: &str,
    connections: usize,
    n: usize,
    request: &(impl Fn(usize) -> Request + Sync),
) -> Result<Figures> {
    drive(address, connections, request, |next| next < n).await
}

/// As many requests as fit into `time`, after a warm-up of a fifth of it.
pub async fn steady(
    address: &str,
    connections: usize,
    time: Duration,
    request: &(impl Fn(usize) -> Request + Sync),
) -> Result<Figures> {
    let warm = Instant::now() + time / 5;
    drive(address, connections, request, |_| Instant::now() < warm).await?;
    let end = Instant::now() + time;
    drive(address, connections, request, |_| Instant::now() < end).await
}

async fn drive(
    address: &str,
    connections: usize,
    request: &(impl Fn(usize) -> Request + Sync),
    go_on: impl Fn(usize) -> bool + Sync,
) -> Result<Figures> {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    let all = try_join_all((0..connections).map(|_| async {
        let mut connection = Connection::open(address).await?;
        let mut latencies = Vec::new();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if !go_on(i) {
                return Ok::<_, Box<dyn std::error::Error + Send + Sync>>(latencies);
            }
            let sent = Instant::now();
            connection.send(&request(i)).await?;
            latencies.push(sent.elapsed());
        }
    }))
    .await?;
    Ok(Figures::of(all.concat(), began.elapsed()))
}
