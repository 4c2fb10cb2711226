//! People at work: some write prompts, some decide what comes into the inbox, over HTTP
//! as a browser does. Whatever they meant is noted before it is sent.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt::Write as _,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    books::{Attempt, Meant, Told, demo_step, question},
    locked,
    world::World,
};
use crate::{
    Result,
    chance::Chance,
    http::{self, Connection},
};

/// What all people share.
pub struct People {
    pub world: Arc<World>,
    pub seed: u64,
    pub ledger: PathBuf,
    /// No more prompts.
    pub enough: AtomicBool,
    /// Everybody goes home.
    pub over: AtomicBool,
    pub attempts: Mutex<Vec<Attempt>>,
    /// Decisions the server confirmed.
    pub decided: AtomicU64,
    marks: AtomicU64,
    /// Sessions with a run that is not over.
    busy: Mutex<HashSet<Uuid>>,
    taken: Mutex<HashSet<Uuid>>,
    /// Runs that somebody told to cancel.
    pub cancelled: Mutex<HashSet<Uuid>>,
}

/// Who an agent is, for the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harness {
    Demo,
    Claude,
}

impl People {
    pub fn new(world: Arc<World>, seed: u64) -> Self {
        Self {
            ledger: world.data.join("ledger"),
            world,
            seed,
            enough: AtomicBool::new(false),
            over: AtomicBool::new(false),
            attempts: Mutex::new(Vec::new()),
            decided: AtomicU64::new(0),
            marks: AtomicU64::new(0),
            busy: Mutex::new(HashSet::new()),
            taken: Mutex::new(HashSet::new()),
            cancelled: Mutex::new(HashSet::new()),
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    async fn post(&self, path: &str, form: &str) -> Result<http::Response> {
        let mut http = Connection::open(&self.world.address).await?;
        let request = http::Request::post(path, &self.world.cookie, form);
        tokio::time::timeout(Duration::from_secs(20), http.exchange(&request)).await?
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let mut http = Connection::open(&self.world.address).await?;
        let request = http::Request::get(path, &self.world.cookie);
        let answer = tokio::time::timeout(Duration::from_secs(20), http.send(&request)).await??;
        Ok(serde_json::from_slice(&answer.body)?)
    }

    // ---- prompts

    fn mark(&self, kind: &str) -> String {
        format!("{kind}-{}", self.marks.fetch_add(1, Ordering::Relaxed))
    }

    fn prompt(&self, harness: Harness, chance: &mut Chance) -> String {
        match harness {
            Harness::Demo => {
                let mut text = String::new();
                for _ in 0..=chance.below(3) {
                    let both = chance.percent(25);
                    let mut step =
                        || demo_step(&self.mark(if chance.percent(60) { "run" } else { "append" }));
                    let line = if both { format!("both: {} && {}", step(), step()) } else { step() };
                    let _ = writeln!(text, "{line}");
                }
                text
            }
            Harness::Claude => {
                let mut steps = Vec::new();
                for _ in 0..=chance.below(3) {
                    match chance.below(10) {
                        0 => steps.push(json!({"burst": [chance.below(30), "thinking aloud"]}).to_string()),
                        1 => steps.push(json!({"wait": chance.below(150)}).to_string()),
                        2 | 3 => {
                            let both: Vec<String> = (0..2).map(|_| self.call(chance)).collect();
                            steps.push(format!(r#"{{"asks":[{}]}}"#, both.join(",")));
                        }
                        _ => {}
                    }
                    steps.push(format!(r#"{{"ask":{}}}"#, self.call(chance)));
                }
                if chance.percent(5) {
                    steps.push(format!(r#"{{"background":[{{"ask":{}}}]}}"#, self.call(chance)));
                }
                let ledger = Value::from(self.ledger.display().to_string());
                format!(r#"script:{{"ledger":{ledger},"do":[{}]}}"#, steps.join(","))
            }
        }
    }

    fn call(&self, chance: &mut Chance) -> String {
        // A number that a parser of floats would change, and white space it would drop.
        let dies = chance.percent(1);
        let mark = self.mark(if dies { "die" } else { "call" });
        let mut more = String::new();
        let asks = !dies && chance.percent(6);
        if asks {
            more.push_str(r#","tool":"AskUserQuestion""#);
        }
        let input = match chance.below(3) {
            _ if asks => question(&mark),
            0 => format!(r#"{{"command":"touch {mark}"}}"#),
            1 => format!(r#"{{ "command" : "touch {mark}", "timeout":9007199254740993 }}"#),
            _ => format!(r#"{{"command":"touch {mark} && echo \u00e9 \"x\"","description":"Touch {mark}"}}"#),
        };
        if dies {
            let moment = ["before", "asked", "answered", "effect"][chance.place(4)];
            let _ = write!(more, r#","die":["{moment}","kill"]"#);
        } else if chance.percent(2) {
            let _ = write!(more, r#","withdraw":{{"after_ms":{}}}"#, chance.below(1500));
        }
        if chance.percent(10) {
            let _ = write!(more, r#","takes":{}"#, chance.below(200));
        }
        if chance.percent(10) {
            let _ = write!(more, r#","agent":"sub{}""#, chance.below(100));
        }
        if chance.percent(3) {
            more.push_str(r#","again":1"#);
        }
        format!(r#"{{"input":{input}{more}}}"#)
    }

    /// Writes in one session after the other: a new one when the last has had enough.
    pub async fn write(self: Arc<Self>, number: u64, agent: Uuid, harness: Harness) {
        let mut chance = Chance::of(self.seed, 1000 + number);
        let mut session: Option<Uuid> = None;
        while !self.enough.load(Ordering::Relaxed) {
            if session.is_some_and(|s| locked(&self.busy).contains(&s)) {
                tokio::time::sleep(Duration::from_millis(40)).await;
                continue;
            }
            // Never sent twice: after an answer that did not come, another text is written.
            let text = http::encoded(&self.prompt(harness, &mut chance));
            let sent = match session {
                Some(session) => {
                    self.post("/api/session/prompt", &format!("session={session}&prompt={text}")).await
                }
                None => self.post("/api/session/start", &format!("agent={agent}&prompt={text}")).await,
            };
            if let Ok(answer) = sent
                && (200..400).contains(&answer.status)
            {
                if session.is_none() {
                    session = serde_json::from_slice(&answer.body).ok();
                }
                if session.is_some() && chance.percent(10) {
                    // The next message at once: it waits in the queue.
                    continue;
                }
                if let Some(session) = session {
                    // Until the watcher has seen it.
                    locked(&self.busy).insert(session);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            } else {
                tokio::time::sleep(chance.ms(100, 400)).await;
            }
        }
    }

    /// Keeps the list of sessions that are not idle.
    pub async fn watch(self: Arc<Self>) {
        while !self.is_over() {
            let began = locked(&self.busy).clone();
            let sql = "select distinct session_id from runs where status in ('pending', 'running', 'paused')
                       or (cancel_asked_at is not null and cancel_settled_at is null)";
            if let Ok(found) = sqlx::query_scalar::<_, Uuid>(sql).fetch_all(&self.world.pool).await {
                let found: HashSet<Uuid> = found.into_iter().collect();
                // What was added while this was asked stays.
                locked(&self.busy).retain(|s| found.contains(s) || !began.contains(s));
                locked(&self.busy).extend(found);
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
    }

    // ---- decisions

    /// Reads the inbox; somebody takes each request.
    pub async fn decide(self: Arc<Self>) {
        let mut chance = Chance::of(self.seed, 2);
        let mut number = 0;
        while !self.is_over() {
            let mut after = String::new();
            loop {
                let more = if after.is_empty() {
                    String::new()
                } else {
                    format!("&after={}", http::encoded(&after))
                };
                let Ok(page) = self.get(&format!("/api/approval/list?tab=waiting{more}")).await else {
                    break;
                };
                for row in page["rows"].as_array().into_iter().flatten() {
                    let Some(id) = row["id"].as_str().and_then(|i| i.parse::<Uuid>().ok()) else { continue };
                    if locked(&self.taken).insert(id) {
                        number += 1;
                        let mut own = Chance::of(self.seed, 1_000_000 + number);
                        let people = Arc::clone(&self);
                        tokio::spawn(async move {
                            people.think(id, &mut own).await;
                            // If it still waits, somebody looks again.
                            locked(&people.taken).remove(&id);
                        });
                    }
                }
                match page["next"].as_str() {
                    Some(next) => next.clone_into(&mut after),
                    None => break,
                }
            }
            tokio::time::sleep(chance.ms(30, 80)).await;
        }
    }

    /// Presses *Continue Run* where that is waited for.
    pub async fn go_on(self: Arc<Self>) {
        let mut chance = Chance::of(self.seed, 4);
        while !self.is_over() {
            let sql = "select distinct r.id from runs r join approvals p on p.run_id = r.id
                       join decisions d on d.approval_id = p.id
                       where r.open_approvals = 0 and d.delivery = 'queued' and d.continued_at is null";
            let waiting = sqlx::query_scalar::<_, Uuid>(sql).fetch_all(&self.world.pool).await;
            for run in waiting.unwrap_or_default() {
                // An answer that does not come is seen by looking again.
                let _ = self.post("/api/run/continue", &format!("run={run}")).await;
            }
            tokio::time::sleep(chance.ms(50, 400)).await;
        }
    }

    async fn think(&self, id: Uuid, chance: &mut Chance) {
        let slow = chance.percent(50);
        tokio::time::sleep(if slow { chance.ms(300, 2500) } else { chance.ms(0, 300) }).await;
        let Ok(shown) = self.get(&format!("/api/approval/read?id={id}")).await else { return };
        let run = shown["run"].as_str().and_then(|run| run.parse::<Uuid>().ok());
        let (Some(digest), Some(run)) = (shown["digest"].as_str(), run) else { return };
        if shown["row"]["status"] != "pending" {
            return;
        }
        let is_short = shown["timeout_ms"].as_i64().is_some_and(|ms| ms <= 10_000);
        if is_short && chance.percent(10) {
            // Nobody decides this one.
            tokio::time::sleep(Duration::from_secs(11)).await;
            return;
        }
        let takes_edit = shown["editable"].as_array().is_some_and(|e| !e.is_empty());
        let asks = shown["reply"] == "answers";
        let meant = |kind: usize, chance: &mut Chance| Meant {
            pick: (asks && kind <= 1).then(|| ["Left", "Right"][chance.place(2)].to_owned()),
            approve: kind <= 1,
            message: match kind {
                2 => Some(format!("Use \"staging\" instead.\nNumber {}.", chance.below(1000))),
                3 => Some("Stop here.".to_owned()),
                _ => None,
            },
            edit: (kind == 1).then(|| format!("echo edited {}", chance.below(1_000_000))),
            stop: kind == 3,
        };
        let edits = if takes_edit { 8 } else { 0 };
        let kind = chance.weighed(&[74, edits, 14, 3, 6]);
        let first = meant(kind, chance);
        if chance.percent(1) {
            // A forged digest: of another action.
            let forged: String = digest.chars().rev().collect();
            if forged != digest {
                self.send(id, &forged, &first, chance).await;
            }
        }
        let second = chance.percent(4).then(|| meant(chance.weighed(&[50, 0, 50]), chance));
        let cancels = chance.percent(2);
        let mut another = Chance::of(chance.below(u64::MAX), 3);
        let mut third = another.clone();
        // Two people at once, and a third who cancels the run.
        tokio::join!(
            self.send(id, digest, &first, chance),
            async {
                if let Some(second) = &second {
                    self.send(id, digest, second, &mut another).await;
                }
            },
            async {
                if cancels {
                    tokio::time::sleep(third.ms(0, 60)).await;
                    // Noted first: what is stopped from now on has a reason.
                    locked(&self.cancelled).insert(run);
                    let _ = self.post("/api/run/cancel", &format!("run={run}")).await;
                }
            }
        );
    }

    async fn send(&self, id: Uuid, digest: &str, meant: &Meant, chance: &mut Chance) {
        let outcome = if meant.approve { "approve" } else { "reject" };
        let mut form = format!("id={id}&digest={digest}&outcome={outcome}");
        if let Some(message) = &meant.message {
            let _ = write!(form, "&message={}", http::encoded(message));
        }
        if let Some(edit) = &meant.edit {
            let _ = write!(form, "&edit[command]={}", http::encoded(edit));
        }
        if let Some(pick) = &meant.pick {
            let _ = write!(form, "&picks[q0]={}", u8::from(pick == "Right"));
        }
        if meant.stop {
            form.push_str("&stop=on");
        }
        for _ in 0..20 {
            let told = match self.post("/api/approval/resolve", &form).await {
                Ok(answer) if (200..400).contains(&answer.status) => Told::Stored,
                Ok(answer) if answer.status < 500 => {
                    Told::Refused(String::from_utf8_lossy(&answer.body).into_owned())
                }
                _ => Told::Unsure,
            };
            let again = told == Told::Unsure;
            if told == Told::Stored {
                self.decided.fetch_add(1, Ordering::Relaxed);
            }
            let attempt = Attempt { approval: id, digest: digest.to_owned(), meant: meant.clone(), told };
            locked(&self.attempts).push(attempt);
            if !again || self.is_over() {
                return;
            }
            // A person presses the button again.
            tokio::time::sleep(chance.ms(100, 500)).await;
        }
    }

    /// What is not over: runs, stops, decisions, requests.
    pub async fn unsettled(&self) -> Result<Vec<String>> {
        Ok(sqlx::query_scalar(
            "select format('run %s of session %s is %s', id, session_id, status) from runs
             where status in ('pending', 'running', 'paused')
             union all
             select format('run %s of session %s was cancelled, and the stop is not confirmed', id, session_id)
             from runs where cancel_asked_at is not null and cancel_settled_at is null
             union all
             select format('decision %s of approval %s is %s', id, approval_id, delivery) from decisions
             where delivery in ('queued', 'sent', 'applied')
             union all
             select format('approval %s of run %s is pending', id, run_id) from approvals
             where status = 'pending'",
        )
        .fetch_all(&self.world.pool)
        .await?)
    }

    /// How the server refused, counted by its words.
    pub fn refusals(&self) -> BTreeMap<String, u64> {
        let mut all: HashMap<String, u64> = HashMap::new();
        for attempt in locked(&self.attempts).iter() {
            if let Told::Refused(words) = &attempt.told {
                *all.entry(words.chars().take(120).collect()).or_default() += 1;
            }
        }
        all.into_iter().collect()
    }
}
