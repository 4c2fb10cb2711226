//! `countersign-bench [MEASURE…]`: figures of the built programs as JSON lines, all in
//! one run, with the load generator on the same machine. Nothing here is a test: the
//! figures of two runs on shared machines are compared as ratios within a run.
//!
//! `faults` and `soak` are apart: each is a run of its own that asserts what must hold
//! and fails where it does not ([`faults`], [`soak`]).
//!
//! The server, its database and the demo agent are the real ones. Requests to pause
//! come from a worker of this program's own, over a real link.

mod chance;
mod faults;
mod http;
mod load;
mod peer;
mod product;
mod soak;

use std::{process::ExitCode, time::Duration};

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use load::Figures;
use product::Product;

type Result<T, E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Every measure, in the order of a run: later ones use what earlier ones stored.
const MEASURES: [&str; 7] =
    ["startup", "pause", "approvals_page", "memory", "resolve", "click_to_applied", "wasm"];
/// Connections of the load generator.
const CONNECTIONS: usize = 16;
/// Approvals stored before the page is measured.
const STORED: usize = 10_000;
/// How long a steady load runs.
const STEADY: Duration = Duration::from_secs(8);

#[tokio::main]
async fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    match asked.split_first() {
        Some((measure, options)) if measure == "faults" => {
            return ended(match faults::settings(options) {
                Ok(settings) => faults::run(settings).await,
                Err(why) => Err(why),
            });
        }
        Some((measure, options)) if measure == "soak" => {
            return ended(match soak::share(options) {
                Ok(share) => soak::run(share).await,
                Err(why) => Err(why),
            });
        }
        _ => {}
    }
    if let Some(unknown) = asked.iter().find(|m| !MEASURES.contains(&m.as_str())) {
        eprintln!("There is no measure {unknown}. There are: {}; and faults, soak.", MEASURES.join(", "));
        return ExitCode::FAILURE;
    }
    let wanted = |measure: &str| asked.is_empty() || asked.iter().any(|m| m == measure);
    match run(&wanted).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("The measurement stopped: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Does the work, unless a signal tells to end: then what was started can be ended in order.
pub async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        done = work => done,
        _ = interrupt.recv() => Err("it was interrupted".into()),
        _ = terminate.recv() => Err("it was told to end".into()),
    }
}

fn ended(holds: Result<bool>) -> ExitCode {
    match holds {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("The measurement stopped: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(measure: &str, mut figures: Value, aim: Value) {
    if let Some(map) = figures.as_object_mut() {
        map.insert("measure".into(), json!(measure));
        map.insert("aim".into(), aim);
    }
    println!("{figures}");
}

async fn run(wanted: &impl Fn(&str) -> bool) -> Result<()> {
    if wanted("wasm") {
        print("wasm", product::wasm()?, json!({ "brotli_bytes": 300_000 }));
    }
    let needs_product = MEASURES.iter().any(|m| *m != "wasm" && wanted(m));
    if !needs_product {
        return Ok(());
    }
    let product = Product::start().await?;
    let measured = unless_interrupted(Box::pin(measure(&product, wanted))).await;
    product.stop().await;
    measured
}

async fn measure(product: &Product, wanted: &impl Fn(&str) -> bool) -> Result<()> {
    if wanted("startup") {
        let mut ms = Vec::new();
        for _ in 0..5 {
            ms.push(product.startup().await?);
        }
        ms.sort_by(f64::total_cmp);
        print("startup", json!({ "ms": ms[2], "all_ms": ms }), json!({ "ms": 300 }));
    }
    let server = product.serve(true).await?;
    let needs_stored = ["pause", "approvals_page", "resolve", "memory"].iter().any(|m| wanted(m));
    if needs_stored {
        let mut stored = peer::store(&server, STORED).await?;
        if wanted("pause") {
            print("pause", json!({ "rps": stored.rps, "stored": STORED }), Value::Null);
        }
        if wanted("approvals_page") || wanted("memory") {
            let cookie = server.cookie.clone();
            let page = |_| http::Request::get("/approvals", &cookie);
            load::count(&server.address, CONNECTIONS, 1_000, &page).await?;
            if wanted("memory") {
                tokio::time::sleep(Duration::from_secs(2)).await;
                print("memory", json!({ "idle_mb": server.resident_mb()? }), json!({ "idle_mb": 40 }));
            }
            if wanted("approvals_page") {
                let f = load::steady(&server.address, CONNECTIONS, STEADY, &page).await?;
                print("approvals_page", f.json(), json!({ "rps": 2000, "p99_ms": 15 }));
            }
        }
        if wanted("resolve") {
            let pgbench = product.pgbench(CONNECTIONS, STEADY)?;
            let f = resolve(&server, &mut stored).await?;
            let again = product.pgbench(CONNECTIONS, STEADY)?;
            let limit = f64::midpoint(pgbench, again);
            let mut figures = f.json();
            if let Some(map) = figures.as_object_mut() {
                map.insert("pgbench_tps".into(), json!([pgbench.round(), again.round()]));
                map.insert("vs_pgbench".into(), json!((f.rps / limit * 100.0).round() / 100.0));
            }
            print("resolve", figures, json!({ "vs_pgbench": 0.33 }));
        }
        stored.close().await;
    }
    if wanted("click_to_applied") {
        let f = click_to_applied(&server).await?;
        print("click_to_applied", f.json_without_rps(), Value::Null);
    }
    server.stop().await;
    Ok(())
}

/// Approves stored requests over HTTP, each once.
async fn resolve(server: &product::Server, stored: &mut peer::Stored) -> Result<Figures> {
    let asked = std::mem::take(&mut stored.asked);
    let n = asked.len().min(8_000);
    let cookie = server.cookie.clone();
    let request = |i: usize| {
        let (id, digest) = &asked[i];
        let form = format!("id={id}&digest={digest}&outcome=approve");
        http::Request::post("/api/approval/resolve", &cookie, &form)
    };
    load::count(&server.address, CONNECTIONS, n, &request).await
}

/// From the click on *Approve* to the answer being written to the demo agent.
async fn click_to_applied(server: &product::Server) -> Result<Figures> {
    let agent = server.demo_agent().await?;
    let mut latencies = Vec::new();
    let mut http = http::Connection::open(&server.address).await?;
    let form = format!("agent={agent}&prompt={}", http::encoded("append bench.txt: start"));
    let started = http.send(&http::Request::post("/api/session/start", &server.cookie, &form)).await?;
    let session: uuid::Uuid = serde_json::from_slice(&started.body)?;
    for i in 0..60 {
        if i > 0 {
            let form =
                format!("session={session}&prompt={}", http::encoded(&format!("append bench.txt: {i}")));
            http.send(&http::Request::post("/api/session/prompt", &server.cookie, &form)).await?;
        }
        let (id, digest) = server.wait_pending(session).await?;
        let form = format!("id={id}&digest={digest}&outcome=approve");
        let click = std::time::Instant::now();
        http.send(&http::Request::post("/api/approval/resolve", &server.cookie, &form)).await?;
        server.wait_applied(id).await?;
        latencies.push(click.elapsed());
        server.wait_idle(session).await?;
    }
    // The first ones start the harness and fill caches.
    Ok(Figures::of(latencies.split_off(10), Duration::ZERO))
}
