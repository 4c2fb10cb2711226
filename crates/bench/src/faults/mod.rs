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
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use sqlx::Row as _;
use uuid::Uuid;

use crate::{Result, chance::Chance};
use books::{Approval, Compared, Decided, Effect, Known};
use people::{Harness, People};
use world::DatabaseEnd;
pub use world::{Held, Size, World, holders, now};

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

/// What was done to the product.
#[derive(Debug, Default)]
struct Done {
    kills: Mutex<BTreeMap<&'static str, u64>>,
    killed: Mutex<HashSet<Uuid>>,
    /// Workers that ended although nobody killed them.
    ended: AtomicU64,
}

impl Done {
    fn count(&self, what: &'static str) {
        *self.kills.lock().unwrap_or_else(PoisonError::into_inner).entry(what).or_default() += 1;
    }
}

/// Runs it; whether everything holds.
pub async fn run(settings: Settings) -> Result<bool> {
    let began = Instant::now();
    let size = Size { workers: settings.workers, connections: 16, mixed: true };
    let world = Arc::new(World::start(size).await?);
    let people = Arc::new(People::new(Arc::clone(&world), settings.seed));
    let done = Arc::new(Done::default());
    let outcome = disturbed(&settings, &people, &done, began).await;
    let compared = match outcome {
        Ok(settled) => compare(&people, &done, settled).await,
        Err(why) => Err(why),
    };
    people.over.store(true, Ordering::Relaxed);
    let holds = match &compared {
        Ok(compared) => report(&settings, compared, &people, &done, began),
        Err(why) => {
            eprintln!("The run stopped: {why}");
            false
        }
    };
    world.stop(!holds).await;
    compared.map(|_| holds)
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
        done.ended.fetch_add(world.keep().await?, Ordering::Relaxed);
    }
    people.enough.store(true, Ordering::Relaxed);
    let from = Instant::now();
    while from.elapsed() < SETTLE {
        done.ended.fetch_add(world.keep().await?, Ordering::Relaxed);
        if people.is_idle().await.unwrap_or(false) {
            return Ok(Vec::new());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    people.unsettled().await
}

/// One thing goes wrong, beside whatever else does.
fn trouble(world: &Arc<World>, done: &Arc<Done>, chance: &mut Chance) {
    let at = chance.place(world.workers.len());
    let what = chance.weighed(&[58, 18, 5, 5, 9, 5]);
    let mut own = Chance::of(chance.below(u64::MAX), 9);
    let (world, done) = (Arc::clone(world), Arc::clone(done));
    tokio::spawn(async move {
        let worker = &world.workers[at];
        let went = match what {
            0 => {
                done.count("worker");
                worker.restart(own.ms(200, 3000)).await
            }
            1 => {
                done.count("cut");
                match own.below(3) {
                    0 => worker.proxy.cut(),
                    1 => {
                        let cut = own.percent(50);
                        worker.proxy.hold(own.ms(100, 2000), cut).await;
                    }
                    _ => worker.proxy.cut_after(i64::try_from(own.below(3000)).unwrap_or(0)),
                }
                Ok(())
            }
            2 => {
                done.count("server");
                world.restart_server(own.ms(10, 800)).await
            }
            3 => {
                done.count("database");
                let end = [DatabaseEnd::Kill, DatabaseEnd::Stop, DatabaseEnd::Freeze][own.place(3)];
                world.restart_database(end, own.ms(50, 1500)).await
            }
            4 => {
                kill_harness(&world, at, &done, &mut own);
                Ok(())
            }
            _ => {
                done.count("freeze");
                worker.freeze(own.ms(200, 2500)).await;
                Ok(())
            }
        };
        if let Err(why) = went {
            eprintln!("Trouble could not be made: {why}");
        }
    });
}

fn kill_harness(world: &World, at: usize, done: &Done, chance: &mut Chance) {
    let held = holders(&world.workers[at].folder);
    if held.is_empty() {
        return;
    }
    let Held { incarnation, holder, pid } = held[chance.place(held.len())];
    // Noted first: what is unknown from now on has a reason.
    done.killed.lock().unwrap_or_else(PoisonError::into_inner).insert(incarnation);
    if chance.percent(70) {
        done.count("harness");
        world::kill(pid);
    } else {
        done.count("holder");
        world::kill(holder);
    }
}

async fn compare(people: &People, done: &Done, unsettled: Vec<String>) -> Result<Compared> {
    let (approvals, deaths) = stored(people).await?;
    let mut effects: Vec<Effect> = Vec::new();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    effects.extend(read(people.ledger.clone()).lines().filter_map(books::of_claude));
    for worker in &people.world.workers {
        effects
            .extend(read(worker.folder.join("data/demo-workspace/ledger.txt")).lines().map(books::of_demo));
    }
    let mut killed = done.killed.lock().unwrap_or_else(PoisonError::into_inner).clone();
    killed.extend(deaths);
    let known = Known {
        killed,
        lives: people.world.lives(),
        without_words: domain::decision::REJECTED_WITHOUT_WORDS,
    };
    let attempts = people.attempts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut compared = books::compare(&approvals, &attempts, &effects, &known);
    for what in unsettled {
        compared.offenders.push(books::Offender { kind: books::Kind::Lost, approval: None, what });
    }
    Ok(compared)
}

/// The product's book, and the incarnations that were told to die.
async fn stored(people: &People) -> Result<(Vec<Approval>, HashSet<Uuid>)> {
    let ms = |column: &str| format!("(extract(epoch from {column}) * 1000)::bigint");
    let sql = format!(
        "select p.id, p.worker_id, p.incarnation, p.request_key, p.harness, p.tool, p.folder, p.sub_agent,
                p.input, p.action_digest, p.status, d.id as decision, d.decided_by is not null as by_person,
                d.outcome, d.message, d.stop, d.edited_input, d.content, d.delivery, d.note,
                {} as decided_ms, d.applied_at is not null as applied
         from approvals p left join lateral (
             select * from decisions d where d.approval_id = p.id
             order by d.decided_by is null, d.decided_at limit 1) d on true",
        ms("d.decided_at")
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(&people.world.pool).await?;
    let mut deaths = HashSet::new();
    let mut all = Vec::with_capacity(rows.len());
    for row in rows {
        let decision = match row.try_get::<Option<Uuid>, _>("decision")? {
            None => None,
            Some(_) => Some(Decided {
                by_person: row.try_get("by_person")?,
                outcome: row.try_get("outcome")?,
                message: row.try_get("message")?,
                stop: row.try_get("stop")?,
                edited_input: row.try_get("edited_input")?,
                content: row.try_get("content")?,
                delivery: row.try_get("delivery")?,
                note: row.try_get("note")?,
                at: u64::try_from(row.try_get::<i64, _>("decided_ms")?).unwrap_or(0),
                applied: row.try_get("applied")?,
            }),
        };
        let approval = Approval {
            id: row.try_get("id")?,
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
            decision,
        };
        if approval.input.windows(10).any(|w| w == b"touch die-") {
            deaths.insert(approval.incarnation);
        }
        all.push(approval);
    }
    Ok((all, deaths))
}

/// Prints the figures, and what does not hold.
fn report(settings: &Settings, compared: &Compared, people: &People, done: &Done, began: Instant) -> bool {
    let mut figures = compared.json();
    let kills = done.kills.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let ended = done.ended.load(Ordering::Relaxed);
    if let Some(map) = figures.as_object_mut() {
        map.insert("measure".into(), json!("faults"));
        map.insert("kills".into(), json!(kills.values().sum::<u64>()));
        map.insert("kinds".into(), json!(kills));
        map.insert("ended_by_themselves".into(), json!(ended));
        map.insert("seed".into(), json!(settings.seed));
        map.insert("seconds".into(), json!(began.elapsed().as_secs()));
    }
    println!("{figures}");
    let mut wrong: Vec<String> = Vec::new();
    for offender in compared.offenders.iter().take(NAMED) {
        let whose = offender.approval.map_or_else(String::new, |id| format!("approval {id}: "));
        wrong.push(format!("{:?}: {whose}{}", offender.kind, offender.what));
    }
    if compared.offenders.len() > NAMED {
        wrong.push(format!("and {} more", compared.offenders.len() - NAMED));
    }
    let sum = compared.effect + compared.not_applied + compared.unknown;
    if sum != compared.decided {
        wrong.push(format!("{} decided, and {sum} have an end", compared.decided));
    }
    if compared.effect * 2 < compared.decided {
        wrong.push("less than half of the decisions had an effect".to_owned());
    }
    // 1,000 of 10,000: the same share of a shorter run.
    let least = match settings.until {
        Until::Decisions(n) => n / 10,
        Until::Seconds(_) => compared.decided / 10,
    };
    if compared.reattached < least {
        wrong.push(format!(
            "{} were decided in one life of a worker and acted on in a later one, fewer than {least}",
            compared.reattached
        ));
    }
    if compared.decided == 0 {
        wrong.push("nothing was decided".to_owned());
    }
    for line in &wrong {
        eprintln!("{line}");
    }
    if !wrong.is_empty() {
        eprintln!("Refusals of the server: {:?}", people.refusals());
    }
    wrong.is_empty()
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
}
