//! `countersign-bench soak`: what a day brings, without the waiting, through the
//! scripted Claude: deltas, approvals, a line too long to keep, reloads of pages. After
//! each tenth the memory of server, worker and holders is printed; in the second half
//! it may not grow by more than a fifth.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async, tungstenite::client::IntoClientRequest as _,
};
use uuid::Uuid;

use crate::{
    Result,
    faults::{Size, World, holders},
    http::{self, Connection},
    product::resident_mb,
    unless_interrupted,
};

/// A day's work, and what it is cut into.
const TENTHS: u64 = 10;
const SESSIONS: u64 = 5;
const DELTAS: u64 = 200_000;
const APPROVALS: u64 = 3_000;
const RELOADS: u64 = 200;
/// Longer than any line that is kept.
const LONG_LINE: u64 = 10 * 1024 * 1024;
/// In each half one long line, so that neither has what the other lacks.
const LONG_IN: [u64; 2] = [3, 8];
/// Approvals in one run.
const PER_RUN: u64 = 3;
/// How much the second half may add.
const GROWTH: f64 = 1.2;
const PATIENCE: Duration = Duration::from_mins(5);
/// One delta, with its number after it.
const DELTA: &str = "A piece of what the agent says, as long as such pieces are, number";

/// Memory at one tenth, in megabytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    server: f64,
    worker: f64,
    /// All holders together.
    holders: f64,
}

impl Memory {
    fn named(self) -> [(&'static str, f64); 3] {
        [("server", self.server), ("worker", self.worker), ("holders", self.holders)]
    }
}

/// Runs it; whether memory is level. `share` is a part of the day in hundredths.
pub async fn run(share: u64) -> Result<bool> {
    let world = World::start(Size { workers: 1, connections: 16, mixed: false }).await?;
    let measured = unless_interrupted(Box::pin(measure(&world, share))).await;
    let holds = match &measured {
        Ok(wrong) => {
            for line in wrong {
                eprintln!("{line}");
            }
            wrong.is_empty()
        }
        Err(_) => false,
    };
    world.stop(!holds).await;
    measured.map(|_| holds)
}

/// The part of the day from `arguments`: `--share N` in hundredths.
pub fn share(arguments: &[String]) -> Result<u64> {
    match arguments {
        [] => Ok(100),
        [name, value] if name == "--share" => match value.parse() {
            Ok(share @ 1..=1000) => Ok(share),
            _ => Err("--share needs hundredths of a day, from 1 on".into()),
        },
        _ => Err("soak has only the option --share N".into()),
    }
}

async fn measure(world: &World, share: u64) -> Result<Vec<String>> {
    let began = Instant::now();
    let agent = world.workers[0].claude;
    let ledger = world.data.join("ledger");
    let runs = (APPROVALS * share / 100).div_ceil(TENTHS * SESSIONS * PER_RUN).max(1);
    let deltas = DELTAS * share / 100 / (TENTHS * SESSIONS * runs * (PER_RUN + 1));
    let reloads = (RELOADS * share / 100 / TENTHS).max(1);
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let text = http::encoded(&script(&ledger, 1, 0, None));
        let started = post(world, "/api/session/start", &format!("agent={agent}&prompt={text}")).await?;
        sessions.push(serde_json::from_slice::<Uuid>(&started.body)?);
    }
    settle(world).await?;
    let mut kept: Vec<Memory> = Vec::new();
    let (mut pages, mut live) = (0, None);
    for tenth in 1..=TENTHS {
        for run in 0..runs {
            for (i, session) in sessions.iter().enumerate() {
                let long = (run == 0 && i == 0 && LONG_IN.contains(&tenth)).then_some(LONG_LINE);
                let text = http::encoded(&script(&ledger, deltas, PER_RUN, long));
                post(world, "/api/session/prompt", &format!("session={session}&prompt={text}")).await?;
            }
            settle(world).await?;
        }
        for i in 0..reloads {
            let session = sessions[usize::try_from(i % SESSIONS)?];
            for path in ["/approvals".to_owned(), format!("/chat/{session}")] {
                let mut http = Connection::open(&world.address).await?;
                http.send(&http::Request::get(&path, &world.cookie)).await?;
                pages += 1;
            }
            // A reload closes the page's socket and opens another.
            live = Some(socket(world).await?);
        }
        let memory = memory(world).await?;
        kept.push(memory);
        let mut line = json!({"measure": "soak", "percent": tenth * 10, "seconds": began.elapsed().as_secs(),
            "journals_mb": megabytes(&world.workers[0].folder.join("data/sessions"))});
        if let Some(map) = line.as_object_mut() {
            for (name, mb) in memory.named() {
                map.insert(format!("{name}_mb"), json!(mb));
            }
        }
        println!("{line}");
    }
    drop(live);
    let mut wrong = level(&kept);
    let (events, effects): (i64, i64) = sqlx::query_as(
        "select (select count(*) from run_events),
                (select count(*) from decisions where delivery = 'effect')",
    )
    .fetch_one(&world.pool)
    .await?;
    let ran = std::fs::read_to_string(&ledger)?.lines().filter(|l| l.contains(r#""became":"ran""#)).count();
    let asked = runs * TENTHS * SESSIONS * PER_RUN;
    if u64::try_from(ran)? != asked || u64::try_from(effects)? != asked {
        wrong.push(format!("{asked} were approved, {ran} ran, {effects} have a receipt"));
    }
    // What was said arrived, every piece, and the lines too long to keep were told of.
    let said = TENTHS * SESSIONS * runs * (PER_RUN + 1) * deltas + SESSIONS;
    let (arrived, noticed) = arrived(&world.pool).await?;
    if u64::try_from(arrived)? != said {
        wrong.push(format!("{said} deltas were said, {arrived} arrived"));
    }
    if usize::try_from(noticed)? != LONG_IN.len() {
        wrong.push(format!("{} lines were too long, {noticed} were noticed", LONG_IN.len()));
    }
    println!(
        "{}",
        json!({"measure": "soak", "approvals": asked, "deltas": arrived, "long_lines": noticed, "events": events, "pages": pages, "long_line_bytes": LONG_LINE,
               "level": wrong.is_empty()})
    );
    Ok(wrong)
}

/// How many deltas the product has stored, and how many notices of lines that are too long.
async fn arrived(pool: &PgPool) -> Result<(i64, i64)> {
    let sql = "select (select coalesce(sum((length(body::text) - length(replace(body::text, $1, ''))) / length($1)), 0)
                       from run_events),
                      (select count(*) from run_events where body::text like '%which is too long or not text%')";
    Ok(sqlx::query_as(sql).bind(DELTA).fetch_one(pool).await?)
}

fn script(ledger: &Path, deltas: u64, asks: u64, long: Option<u64>) -> String {
    let mut steps: Vec<Value> = Vec::new();
    if let Some(bytes) = long {
        steps.push(json!({ "huge": bytes }));
    }
    steps.push(json!({"burst": [deltas, DELTA]}));
    for _ in 0..asks {
        steps.push(json!({"ask": {"command": "touch notes.txt"}}));
        steps.push(json!({"burst": [deltas, DELTA]}));
    }
    format!("script:{}", json!({"ledger": ledger.display().to_string(), "do": steps}))
}

/// The socket a page keeps open for news.
async fn socket(world: &World) -> Result<WebSocketStream<MaybeTlsStream<TcpStream>>> {
    let mut request = format!("ws://{}/live", world.address).into_client_request()?;
    request.headers_mut().insert("cookie", world.cookie.parse()?);
    request.headers_mut().insert("origin", format!("http://{}", world.address).parse()?);
    Ok(connect_async(request).await?.0)
}

async fn post(world: &World, path: &str, form: &str) -> Result<http::Response> {
    Connection::open(&world.address).await?.send(&http::Request::post(path, &world.cookie, form)).await
}

/// Approves whatever asks until no run goes on.
async fn settle(world: &World) -> Result<()> {
    let began = Instant::now();
    let mut http = Connection::open(&world.address).await?;
    while began.elapsed() < PATIENCE {
        let waiting: Vec<(Uuid, String)> =
            sqlx::query_as("select id, encode(action_digest, 'hex') from approvals where status = 'pending'")
                .fetch_all(&world.pool)
                .await?;
        for (id, digest) in &waiting {
            let form = format!("id={id}&digest={digest}&outcome=approve");
            http.send(&http::Request::post("/api/approval/resolve", &world.cookie, &form)).await?;
        }
        if waiting.is_empty() && is_idle(&world.pool).await? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    Err("runs did not end in time".into())
}

async fn is_idle(pool: &PgPool) -> Result<bool> {
    let sql = "select not exists (select from runs where status in ('pending', 'running', 'paused'))
               and not exists (select from decisions where delivery in ('queued', 'sent', 'applied'))";
    Ok(sqlx::query_scalar(sql).fetch_one(pool).await?)
}

async fn memory(world: &World) -> Result<Memory> {
    let pid = |child: &Option<tokio::process::Child>| child.as_ref().and_then(tokio::process::Child::id);
    let server = pid(&*world.server.lock().await).ok_or("the server ended")?;
    let worker = pid(&*world.workers[0].child.lock().await).ok_or("the worker ended")?;
    let mut held = 0.0;
    for holder in holders(&world.workers[0].folder) {
        held += resident_mb(holder.holder)?;
    }
    Ok(Memory {
        server: resident_mb(server)?,
        worker: resident_mb(worker)?,
        holders: (held * 10.0).round() / 10.0,
    })
}

/// What grew too much from the middle of the day to its end.
fn level(kept: &[Memory]) -> Vec<String> {
    let (first, rest) = kept.split_at(kept.len() / 2);
    let Some(half) = first.last() else { return vec!["there is nothing to compare".to_owned()] };
    let mut wrong = Vec::new();
    for (place, (name, before)) in half.named().into_iter().enumerate() {
        let most = rest.iter().map(|m| m.named()[place].1).fold(0.0, f64::max);
        if most > before * GROWTH {
            wrong.push(format!("the memory of {name} grew from {before} MB at half to {most} MB"));
        }
    }
    wrong
}

fn megabytes(folder: &Path) -> f64 {
    fn bytes(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .map(|entry| match entry.metadata() {
                Ok(data) if data.is_dir() => bytes(&entry.path()),
                Ok(data) => data.len(),
                Err(_) => 0,
            })
            .sum()
    }
    f64::from(u32::try_from(bytes(folder) / 1024).unwrap_or(u32::MAX)) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_in_the_second_half_is_seen_and_a_steady_level_is_not() {
        let at = |server| Memory { server, worker: 20.0, holders: 50.0 };
        let steady: Vec<Memory> = [60.0, 90.0, 95.0, 97.0, 100.0, 101.0].map(at).into();
        assert_eq!(level(&steady), Vec::<String>::new());
        let grows: Vec<Memory> = [60.0, 70.0, 80.0, 90.0, 100.0, 110.0].map(at).into();
        assert_eq!(level(&grows).len(), 1);
        assert_eq!(level(&[]).len(), 1);
    }

    #[test]
    fn a_share_is_read() {
        assert_eq!(share(&[]).unwrap(), 100);
        assert_eq!(share(&["--share".to_owned(), "5".to_owned()]).unwrap(), 5);
        assert!(share(&["--share".to_owned(), "0".to_owned()]).is_err());
    }
}
