//! `countersign-bench faults`: decisions in great number while everything that can be
//! killed is killed, and three books compared at the end ([`books`]).
//!
//! Real programs and a real database. Half of the agents are the demo agent, half the
//! scripted Claude. A seed sets what is done and when; what the machine makes of it
//! still differs from run to run.

mod books;
mod people;
mod proxy;
mod world;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use serde_json::json;
use sqlx::Row as _;
use uuid::Uuid;

use crate::{Result, chance::Chance, unless_interrupted};
use books::{Approval, Compared, Decided, Effect, Known};
use people::{Harness, People};
use world::{DatabaseEnd, SHORT_S, Worker};
pub use world::{Size, World, holders, now};

/// Offenders that are named.
const NAMED: usize = 20;
/// How long everything may take to settle when nothing is disturbed any more.
const SETTLE: Duration = Duration::from_mins(2);

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// When it ends: after this many decisions, or about this time in all.
    pub until: Until,
    pub seed: u64,
    pub workers: usize,
    /// Sessions of each harness at each worker.
    pub sessions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    Decisions(u64),
    Seconds(u64),
}

/// Everything that is done to the product.
const KINDS: [&str; 7] = ["worker", "cut", "server", "database", "harness", "holder", "freeze"];
/// From so many decisions on each of them must have been.
const MANY: u64 = 5_000;

/// What was done to the product, and what went wrong meanwhile.
#[derive(Debug, Default)]
struct Done {
    kills: Mutex<BTreeMap<&'static str, u64>>,
    /// When the process of an incarnation was killed.
    killed: Mutex<HashMap<Uuid, u64>>,
    /// What ended although nobody killed it, and what did not come back.
    unasked: Mutex<Vec<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Done {
    fn count(&self, what: &'static str) {
        *locked(&self.kills).entry(what).or_default() += 1;
    }

    fn unasked(&self, what: impl IntoIterator<Item = String>) {
        locked(&self.unasked).extend(what);
    }
}

/// Runs it; whether everything holds.
pub async fn run(settings: Settings) -> Result<bool> {
    let began = Instant::now();
    let size = Size { workers: settings.workers, connections: 16, mixed: true };
    let world = Arc::new(World::start(size).await?);
    let people = Arc::new(People::new(Arc::clone(&world), settings.seed));
    let done = Arc::new(Done::default());
    let ran = unless_interrupted(async {
        let unsettled = disturbed(&settings, &people, &done, began).await?;
        Ok((compare(&people, &done, unsettled).await?, world.panics()?))
    });
    let ran = ran.await;
    people.over.store(true, Ordering::Relaxed);
    let holds = match &ran {
        Ok((compared, panics)) => {
            done.unasked(panics.clone());
            report(&settings, compared, &people, &done, began)
        }
        Err(why) => {
            eprintln!("The run stopped: {why}");
            false
        }
    };
    world.stop(!holds).await;
    ran.map(|_| holds)
}

/// People and trouble, until it is enough and everything has settled. What has not
/// settled is given back in words.
async fn disturbed(
    settings: &Settings,
    people: &Arc<People>,
    done: &Arc<Done>,
    began: Instant,
) -> Result<Vec<String>> {
    let world = Arc::clone(&people.world);
    tokio::spawn(Arc::clone(people).watch());
    tokio::spawn(Arc::clone(people).decide());
    tokio::spawn(Arc::clone(people).go_on());
    let mut number = 0;
    for worker in &world.workers {
        for _ in 0..settings.sessions {
            for (agent, harness) in [(worker.demo, Harness::Demo), (worker.claude, Harness::Claude)] {
                number += 1;
                tokio::spawn(Arc::clone(people).write(number, agent, harness));
            }
        }
    }
    let mut chance = Chance::of(settings.seed, 1);
    let mut told = 0;
    let enough = |decided: u64| match settings.until {
        Until::Decisions(n) => decided >= n,
        // What is under way needs the rest.
        Until::Seconds(s) => began.elapsed().as_secs() >= s * 3 / 4,
    };
    loop {
        let decided = people.decided.load(Ordering::Relaxed);
        if enough(decided) {
            break;
        }
        if decided / 500 > told {
            told = decided / 500;
            eprintln!("{decided} decided after {:.0} s", began.elapsed().as_secs_f64());
        }
        trouble(&world, done, &mut chance);
        tokio::time::sleep(chance.ms(50, 650)).await;
        done.unasked(world.keep().await?);
    }
    people.enough.store(true, Ordering::Relaxed);
    let from = Instant::now();
    while from.elapsed() < SETTLE {
        done.unasked(world.keep().await?);
        if people.unsettled().await.is_ok_and(|left| left.is_empty()) {
            return Ok(Vec::new());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    people.unsettled().await
}

/// One thing goes wrong, beside whatever else does. What was not there to be disturbed is
/// not counted.
fn trouble(world: &Arc<World>, done: &Arc<Done>, chance: &mut Chance) {
    let at = chance.place(world.workers.len());
    let what = chance.weighed(&[58, 18, 5, 5, 9, 5]);
    let mut own = Chance::of(chance.below(u64::MAX), 9);
    let (world, done) = (Arc::clone(world), Arc::clone(done));
    tokio::spawn(async move {
        let worker = &world.workers[at];
        let (kind, went) = match what {
            0 => {
                let silent = if own.percent(80) { own.ms(100, 1500) } else { Duration::ZERO };
                ("worker", worker.restart(silent, own.ms(200, 3000)).await)
            }
            1 => {
                match own.below(3) {
                    0 => worker.proxy.cut(),
                    1 => {
                        let cut = own.percent(50);
                        worker.proxy.hold(own.ms(100, 2000), cut).await;
                    }
                    _ => worker.proxy.cut_after(i64::try_from(own.below(3000)).unwrap_or(0)),
                }
                ("cut", Ok(true))
            }
            2 => ("server", world.restart_server(own.ms(10, 800)).await),
            3 => {
                let end = [DatabaseEnd::Kill, DatabaseEnd::Stop, DatabaseEnd::Freeze][own.place(3)];
                ("database", world.restart_database(end, own.ms(50, 1500)).await)
            }
            4 => {
                let (kind, killed) = kill_harness(worker, &done, &mut own);
                (kind, Ok(killed))
            }
            _ => ("freeze", Ok(worker.freeze(own.ms(200, 2500)).await)),
        };
        match went {
            Ok(true) => done.count(kind),
            Ok(false) => {}
            Err(why) => done.unasked([format!("after trouble with the {kind}: {why}")]),
        }
    });
}

/// Kills a harness or its holder; which, and whether it was there.
fn kill_harness(worker: &Worker, done: &Done, chance: &mut Chance) -> (&'static str, bool) {
    let held = holders(&worker.folder);
    if held.is_empty() {
        return ("harness", false);
    }
    let held = held[chance.place(held.len())];
    // Noted before: what is unknown from then on has a reason.
    let at = now();
    let (kind, was_there) =
        if chance.percent(70) { ("harness", held.kill_harness()) } else { ("holder", held.kill_holder()) };
    if was_there {
        locked(&done.killed).entry(held.incarnation).or_insert(at);
    }
    (kind, was_there)
}

async fn compare(people: &People, done: &Done, unsettled: Vec<String>) -> Result<Compared> {
    let approvals = stored(people).await?;
    let mut effects: Vec<Effect> = Vec::new();
    effects.extend(std::fs::read_to_string(&people.ledger)?.lines().map(books::of_claude));
    for worker in &people.world.workers {
        let ledger = worker.folder.join("data/demo-workspace/ledger.txt");
        effects.extend(std::fs::read_to_string(ledger)?.lines().map(books::of_demo));
    }
    let known = Known {
        killed: locked(&done.killed).clone(),
        cancelled: locked(&people.cancelled).clone(),
        lives: people.world.lives(),
    };
    let attempts = locked(&people.attempts).clone();
    let mut compared = books::compare(&approvals, &attempts, &effects, &known);
    for what in unsettled {
        compared.offenders.push(books::Offender { kind: books::Kind::Lost, approval: None, what });
    }
    Ok(compared)
}

/// The product's book.
async fn stored(people: &People) -> Result<Vec<Approval>> {
    let ms = |time: &str| format!("(extract(epoch from {time}) * 1000)::bigint");
    let sql = format!(
        "select p.id, p.run_id, {} as run_over_ms, r.detail, p.worker_id, p.incarnation, p.request_key, p.harness, p.tool,
                p.folder, p.sub_agent, p.input, p.action_digest, p.status, p.closed_reason,
                a.hitl_timeout_s = {SHORT_S} as is_short
         from approvals p join runs r on r.id = p.run_id join agents a on a.id = p.agent_id order by p.id",
        ms("greatest(r.ended_at, r.cancel_settled_at)")
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&people.world.pool).await?;
    let mut decisions = decisions(people).await?;
    let time = |ms: i64| u64::try_from(ms).unwrap_or(0);
    rows.into_iter()
        .map(|row| {
            let id = row.try_get("id")?;
            Ok(Approval {
                id,
                run: row.try_get("run_id")?,
                run_over: row.try_get::<Option<i64>, _>("run_over_ms")?.map(time),
                run_detail: row.try_get("detail")?,
                worker: row.try_get("worker_id")?,
                incarnation: row.try_get("incarnation")?,
                request_key: row.try_get("request_key")?,
                harness: row.try_get("harness")?,
                tool: row.try_get("tool")?,
                folder: row.try_get("folder")?,
                sub_agent: row.try_get("sub_agent")?,
                input: row.try_get("input")?,
                digest: row.try_get("action_digest")?,
                status: row.try_get("status")?,
                closed_reason: row.try_get("closed_reason")?,
                is_short: row.try_get("is_short")?,
                decisions: decisions.remove(&id).unwrap_or_default(),
            })
        })
        .collect()
}

/// The decisions of each approval, in the order they were made.
async fn decisions(people: &People) -> Result<HashMap<Uuid, Vec<Decided>>> {
    let sql = "select approval_id, decided_by is not null as by_person, outcome, message, stop, edited_input,
                      content, delivery, note, (extract(epoch from decided_at) * 1000)::bigint as decided_ms,
                      (extract(epoch from applied_at) * 1000)::bigint as applied_ms
               from decisions order by decided_at, id";
    let time = |ms: i64| u64::try_from(ms).unwrap_or(0);
    let mut all: HashMap<Uuid, Vec<Decided>> = HashMap::new();
    for row in sqlx::query(sql).fetch_all(&people.world.pool).await? {
        all.entry(row.try_get("approval_id")?).or_default().push(Decided {
            by_person: row.try_get("by_person")?,
            outcome: row.try_get("outcome")?,
            message: row.try_get("message")?,
            stop: row.try_get("stop")?,
            edited_input: row.try_get("edited_input")?,
            content: row.try_get("content")?,
            delivery: row.try_get("delivery")?,
            note: row.try_get("note")?,
            at: time(row.try_get("decided_ms")?),
            applied_at: row.try_get::<Option<i64>, _>("applied_ms")?.map(time),
        });
    }
    Ok(all)
}

/// Prints the figures, and what does not hold.
fn report(settings: &Settings, compared: &Compared, people: &People, done: &Done, began: Instant) -> bool {
    let mut figures = compared.json();
    let kills = locked(&done.kills).clone();
    let unasked = locked(&done.unasked).clone();
    if let Some(map) = figures.as_object_mut() {
        map.insert("measure".into(), json!("faults"));
        map.insert("kills".into(), json!(kills.values().sum::<u64>()));
        map.insert("kinds".into(), json!(kills));
        map.insert("unasked".into(), json!(unasked.len()));
        map.insert("seed".into(), json!(settings.seed));
        map.insert("seconds".into(), json!(began.elapsed().as_secs()));
    }
    println!("{figures}");
    let offenders = compared.offenders.iter().map(|offender| {
        let whose = offender.approval.map_or_else(String::new, |id| format!("approval {id}: "));
        format!("{:?}: {whose}{}", offender.kind, offender.what)
    });
    let mut wrong: Vec<String> = offenders.chain(unasked).collect();
    if wrong.len() > NAMED {
        let more = format!("and {} more", wrong.len() - NAMED);
        wrong.truncate(NAMED);
        wrong.push(more);
    }
    wrong.extend(too_little(settings.until, compared, &kills));
    for line in &wrong {
        eprintln!("{line}");
    }
    if !wrong.is_empty() {
        eprintln!("Refusals of the server: {:?}", people.refusals());
    }
    wrong.is_empty()
}

/// What was too little to show anything.
fn too_little(until: Until, compared: &Compared, kills: &BTreeMap<&'static str, u64>) -> Vec<String> {
    let Compared { decided, by_demo, effect, not_applied, unknown, reattached, .. } = *compared;
    let mut wrong = Vec::new();
    let sum = effect + not_applied + unknown;
    if sum != decided {
        wrong.push(format!("{decided} decided, and {sum} have an end"));
    }
    if effect * 2 < decided {
        wrong.push("less than half of the decisions had an effect".to_owned());
    }
    // One in two seconds is slow, even where everything is.
    let least = match until {
        Until::Decisions(n) => n,
        Until::Seconds(s) => s / 2,
    };
    if decided < least.max(1) {
        wrong.push(format!("{decided} were decided, fewer than {least}"));
    }
    if !(40..=60).contains(&(by_demo * 100 / decided.max(1))) {
        wrong.push(format!("{by_demo} of {decided} were asked by the demo agent, which is not half"));
    }
    // 1,000 of 10,000: the same share of another run.
    if reattached * 10 < decided {
        wrong.push(format!(
            "{reattached} were decided in one life of a worker and handed over in a later one, fewer than a tenth"
        ));
    }
    let missing = KINDS.iter().filter(|kind| decided >= MANY && !kills.contains_key(**kind));
    wrong.extend(missing.map(|kind| format!("nothing was done of the kind {kind}")));
    wrong
}

/// The figures as people ask for them: `--seconds N` or `--decisions N`, `--seed N`.
pub fn settings(arguments: &[String]) -> Result<Settings> {
    let mut settings = Settings { until: Until::Decisions(10_000), seed: now(), workers: 4, sessions: 5 };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let value: u64 = rest.next().ok_or_else(|| format!("{name} needs a number"))?.parse()?;
        match name.as_str() {
            "--seconds" => settings.until = Until::Seconds(value),
            "--decisions" => settings.until = Until::Decisions(value),
            "--seed" => settings.seed = value,
            "--workers" => settings.workers = usize::try_from(value)?,
            "--sessions" => settings.sessions = usize::try_from(value)?,
            _ => return Err(format!("faults has no option {name}").into()),
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let read = |text: &str| settings(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let short = read("--seconds 120 --seed 7").unwrap();
        assert_eq!((short.until, short.seed), (Until::Seconds(120), 7));
        assert!(read("--seconds").is_err());
        assert!(read("--fast 1").is_err());
    }

    #[test]
    fn too_little_is_said() {
        let kills = KINDS.map(|kind| (kind, 1)).into();
        let full = || Compared {
            decided: 10_000,
            by_demo: 5_000,
            effect: 8_000,
            not_applied: 1_500,
            unknown: 500,
            reattached: 1_000,
            ..Compared::default()
        };
        let until = Until::Decisions(10_000);
        assert_eq!(too_little(until, &full(), &kills), Vec::<String>::new());
        for less in [
            Compared { unknown: 499, ..full() },
            Compared { effect: 4_000, not_applied: 5_500, ..full() },
            Compared { decided: 9_999, unknown: 499, ..full() },
            Compared { by_demo: 3_999, ..full() },
            Compared { by_demo: 6_100, ..full() },
            Compared { reattached: 999, ..full() },
        ] {
            assert_eq!(too_little(until, &less, &kills).len(), 1, "{less:?}");
        }
        let mut one_missing = kills.clone();
        one_missing.remove("holder");
        assert_eq!(too_little(until, &full(), &one_missing).len(), 1);
        let one = Compared { decided: 1, by_demo: 0, effect: 1, ..Compared::default() };
        assert!(!too_little(Until::Seconds(120), &one, &kills).is_empty());
    }
}
