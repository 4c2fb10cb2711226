//! The database stopped, started again, read-only, killed in mid-commit, out of room:
//! nothing is acknowledged that is not stored, and all goes on by itself afterwards.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use cluster::{Cluster, Source};
use domain::{
    decision::Outcome,
    id::{Incarnation, RunId, SessionId},
};
use futures::future::join_all;
use link::{
    frame::{Frame, UNAVAILABLE},
    message::{
        Bytes, HeldSession, Hello, PendingRequest, PermissionRequest, PermissionStored, Resolve,
        ResolveOutcome, ResolveReply,
    },
};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    http,
    product::{Product, folder},
    worker::{Dialogue, Fault, Worker, connect, digest_of, hello, holding, person},
};

/// A cluster of a test's own, which it stops and kills.
struct Own {
    data: PathBuf,
    running: Option<Cluster>,
    /// Mounted there, with so many bytes.
    mounted: bool,
}

impl Own {
    async fn start() -> Self {
        Self::start_in(folder(), false).await
    }

    /// On a small disk of its own; nothing where none can be mounted.
    async fn start_on_small_disk(megabytes: u32) -> Option<Self> {
        let data = folder();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=0711"), "countersign-it"])
            .arg(&data)
            .output();
        if mounted.is_ok_and(|m| m.status.success()) {
            return Some(Self::start_in(data, true).await);
        }
        let _ = std::fs::remove_dir(&data);
        crate::say("SKIPPED: no small disk can be mounted without root, so a full one was not tested here.");
        None
    }

    async fn start_in(data: PathBuf, mounted: bool) -> Self {
        let mut own = Self { data, running: None, mounted };
        own.go().await;
        own
    }

    /// Starts it, or starts it again.
    async fn go(&mut self) {
        let source = Source::Private { data: self.data.clone() };
        // What stays on the machine is told: run by root, this makes the user of Postgres.
        let say = |text: &str| {
            if text.starts_with("Creating the system user") {
                crate::say(text);
            }
        };
        self.running = Some(cluster::open(source, &say).await.expect("a cluster"));
    }

    fn url(&self) -> String {
        let options = self.running.as_ref().expect("it runs").options();
        format!(
            "postgres://{}@localhost:{}/{}?host={}&sslmode=disable",
            options.get_username(),
            options.get_port(),
            options.get_database().expect("a database"),
            options.get_socket().expect("a socket").display()
        )
    }

    /// A server on it, with an admin.
    async fn product(&self) -> Product {
        let mut product = Product::on(self.url(), &[]).await;
        product.make_admin().await;
        product
    }

    async fn stop(&mut self) {
        self.running.take().expect("it runs").stop().await;
    }

    /// SIGKILL to the postmaster; its back ends end by themselves.
    fn kill(&mut self) {
        let pid = self.running.as_ref().and_then(Cluster::pid).and_then(Pid::from_raw).expect("a pid");
        kill_process(pid, Signal::KILL).expect("killed");
        self.running.take().expect("it runs").leave();
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let pid = std::fs::read_to_string(self.data.join("postgres/postmaster.pid")).ok();
        drop(self.running.take());
        let pid = pid.and_then(|text| Pid::from_raw(text.lines().next()?.parse().ok()?));
        let began = Instant::now();
        while pid.is_some_and(|pid| test_kill_process(pid).is_ok() && !is_zombie(pid))
            && began.elapsed() < Duration::from_secs(10)
        {
            std::thread::sleep(Duration::from_millis(20));
        }
        if self.mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.data).status();
        }
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

fn is_zombie(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

/// A run shows as paused exactly while it has an open request.
async fn pauses_fit(pool: &PgPool) {
    let odd: Vec<Uuid> = sqlx::query_scalar(
        "select r.id from runs r
         where (r.status = 'paused') <> exists (
                   select from approvals a where a.run_id = r.id and a.status = 'pending')
            or r.open_approvals <> (select count(*) from approvals a where a.run_id = r.id and a.status = 'pending')",
    )
    .fetch_all(pool)
    .await
    .expect("a look");
    assert_eq!(odd, [] as [Uuid; 0], "runs and their requests do not fit");
}

/// Looks until the database answers a test.
async fn until_back(pool: &PgPool) {
    let began = Instant::now();
    while sqlx::query("select 1").execute(pool).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(40), "the database does not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a page and the API say while something is the matter: a sentence, and an id that
/// the log has too.
async fn says(p: &Product, cookie: &str, path: &str, form: Option<&str>, words: &str) {
    let answer = match form {
        Some(form) => p.post(cookie, path, form).await,
        None => p.get_json(cookie, path).await,
    };
    assert_eq!(answer.status, 503, "{path}: {answer:?}");
    assert!(answer.body.contains(words), "{path}: {answer:?}");
    let told: serde_json::Value = serde_json::from_str(&answer.body).expect("a failure the page can read");
    assert_eq!(told["failure"], "unavailable");
    let id = answer.body.split("under ").nth(1).expect("an id").split('.').next().expect("an id").to_owned();
    assert_eq!(id.len(), 8, "{answer:?}");
    p.until_said(&id).await;
}

#[tokio::test]
async fn a_database_that_is_stopped_and_started_again_costs_no_acknowledgement() {
    let mut own = Own::start().await;
    let p = own.product().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let (key, run) = w.prompted(&p).await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    let other = w.paused(&p).await;

    own.stop().await;
    // The request is not acknowledged, and the worker may ask again on the same link.
    assert_eq!(w.call(&ask).await.expect_err("not stored").code, UNAVAILABLE);
    let away = "The database cannot be reached.";
    says(&p, &p.admin, "/api/agent/list", None, away).await;
    let form = format!("id={}&digest={}&outcome=approve", other.id, other.ask.action_digest);
    says(&p, &p.admin, "/api/approval/resolve", Some(&form), away).await;
    let page = p.get(&p.admin, "/approvals").await;
    assert_eq!(page.status, 503, "{page:?}");
    assert!(page.body.contains(away), "{page:?}");
    assert_eq!(p.get("", "/health").await.status, 503);

    own.go().await;
    // By itself, and at once: no request after the return pays for the outage.
    for path in ["/api/agent/list", "/api/approval/list?tab=waiting"].iter().cycle().take(24) {
        assert_eq!(p.get_json(&p.admin, path).await.status, 200, "{path}");
    }
    let stored: PermissionStored = w.call(&ask).await.expect("stored");
    pauses_fit(&p.pool).await;

    // Stopped again between a decision's way out and the word that it was applied.
    p.decide(&p.admin, stored.approval, ask.action_digest, "approve", "").await;
    let (id, resolve) = w.called::<Resolve>().await;
    own.stop().await;
    w.reply(id, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
    assert_eq!(w.closed().await, 1013, "the server cannot store it, and says so");
    own.go().await;
    let mut hello = holding(key, run, &ask);
    hello.sessions[0].pending.clear();
    hello.sessions.extend(holding(other.key, other.run, &other.ask).sessions);
    let mut w = relink(&p, &token, &hello).await;
    let (id, again) = w.called::<Resolve>().await;
    assert_eq!(again.decision, resolve.decision);
    w.reply(id, &ResolveReply { outcome: ResolveOutcome::AlreadyApplied, why: None }).await;
    p.until_delivery(stored.approval, "applied").await;
    assert_eq!(p.decide(&p.admin, other.id, other.ask.action_digest, "reject", "").await.status, 200);
    assert_eq!(w.apply().await.approval, other.id);
    pauses_fit(&p.pool).await;
}

/// Links as a worker does: again and again until it is welcome.
async fn relink(p: &Product, token: &str, hello: &Hello) -> Worker {
    let began = Instant::now();
    loop {
        if let Ok(socket) = connect(p, token).await {
            let mut w = Worker { socket, epoch: 0, calls: 1 };
            w.send(Frame::call(1, hello)).await;
            if let Ok(Frame::Answer { id: 1, result: Ok(raw) }) = w.next().await {
                let welcome: link::message::Welcome = link::frame::body(&raw).expect("welcome");
                w.epoch = welcome.epoch;
                return w;
            }
        }
        assert!(began.elapsed() < Duration::from_secs(30), "not linked again\n{}", p.said());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_dialogue_goes_on_by_itself_after_the_database_was_away_at_any_step() {
    let mut own = Own::start().await;
    let p = own.product().await;
    let token = p.worker_token("studio").await;
    drop(Worker::link(&p, &token, Uuid::nil()).await);
    for frame in [3, 6, 7, 9, 10, 13] {
        let session = p.start_session(&p.admin, "").await;
        let mut dialogue = Dialogue::new(&token, session);
        let decides = tokio::spawn(person(p.address.clone(), p.admin.clone(), session, Outcome::Approve));
        let (over, _) = dialogue.link(&p.address, Some(Fault::After(frame))).await;
        // The link stays open while the database goes.
        own.stop().await;
        drop(over);
        tokio::join!(dialogue.finish(&p), own.go());
        decides.await.expect("decided");
        dialogue.holds(&p, &format!("stopped after frame {frame}")).await;
        pauses_fit(&p.pool).await;
    }
}

#[tokio::test]
async fn a_read_only_database_is_said_to_be_that_and_loses_nothing() {
    let own = Own::start().await;
    let p = own.product().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let paused = w.paused(&p).await;
    let (key, run) = w.prompted(&p).await;
    let ask = w.ask(key, run, "1", Incarnation(Uuid::now_v7()));
    // A sign-in that was not used for a while is noted as used when it is.
    sqlx::query("update login_sessions set seen_at = seen_at - interval '5 minutes'")
        .execute(&p.pool)
        .await
        .expect("set back");
    let read_only = async |on: &str| {
        let mut conn = p.pool.acquire().await.expect("a connection");
        for sql in [
            "set default_transaction_read_only = off".to_owned(),
            format!("alter system set default_transaction_read_only = {on}"),
            "select pg_reload_conf()".to_owned(),
            "reset default_transaction_read_only".to_owned(),
        ] {
            sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&mut *conn).await.expect("set");
        }
        let began = Instant::now();
        loop {
            let now: String = sqlx::query_scalar("show default_transaction_read_only")
                .fetch_one(&mut *conn)
                .await
                .expect("a setting");
            if now == on {
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    read_only("on").await;
    // Every connection of the server has heard of it when a write is refused.
    let began = Instant::now();
    while w.call(&ask).await.expect_err("not stored").code != UNAVAILABLE {
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    // People read on, and are told why nothing can be decided.
    for path in ["/approvals", "/chat", &format!("/approvals/{}", paused.id)] {
        assert_eq!(p.get(&p.admin, path).await.status, 200, "{path}");
    }
    let form = format!("id={}&digest={}&outcome=approve", paused.id, paused.ask.action_digest);
    says(&p, &p.admin, "/api/approval/resolve", Some(&form), "read-only").await;
    says(&p, &p.admin, "/api/run/cancel", Some(&format!("run={run}")), "read-only").await;
    w.send(w.event(key, run, 1, crate::worker::said("x"))).await;
    assert_eq!(w.closed().await, 1013, "an event that cannot be stored is not acknowledged");
    pauses_fit(&p.pool).await;
    assert_eq!(p.count("select count(*) from approvals").await, 1);

    read_only("off").await;
    let mut hello = holding(key, run, &ask);
    hello.sessions.extend(holding(paused.key, paused.run, &paused.ask).sessions);
    let mut w = relink(&p, &token, &hello).await;
    w.tell(key, run, 1, crate::worker::said("x")).await;
    let ask = PermissionRequest { epoch: w.epoch, ..ask };
    w.call(&ask).await.expect("stored");
    let taken = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(taken.status, 200, "{taken:?}");
    assert_eq!(w.apply().await.approval, paused.id);
    pauses_fit(&p.pool).await;
}

/// What a worker still waits for, over many sessions.
fn holding_all(asks: &[(SessionId, RunId, PermissionRequest)]) -> Hello {
    let mut hello = hello(Uuid::nil());
    hello.sessions = asks
        .iter()
        .map(|(key, run, ask)| HeldSession {
            key: *key,
            incarnation: Some(ask.request_key.incarnation),
            run: Some(*run),
            sent_seq: 0,
            acked_seq: 0,
            pending: vec![PendingRequest {
                request_key: ask.request_key.clone(),
                action_digest: ask.action_digest,
            }],
        })
        .collect();
    hello
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_killed_in_mid_commit_keeps_all_it_acknowledged() {
    let mut own = Own::start().await;
    let p = own.product().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    for round in 0..4 {
        // Twelve requests, and decisions on them, while the database dies.
        let mut asks = Vec::new();
        for _ in 0..12 {
            let (key, run) = w.prompted(&p).await;
            asks.push((key, run, w.ask(key, run, "1", Incarnation(Uuid::now_v7()))));
        }
        for (n, (_, _, ask)) in asks.iter().enumerate() {
            w.send(Frame::call(10_000 + n as u64, ask)).await;
        }
        let (mut stored, mut decided) = (Vec::new(), Vec::new());
        let mut deciding = Vec::new();
        let mut killed = false;
        loop {
            match w.next().await {
                Ok(Frame::Answer { id, result }) if id >= 10_000 => match result {
                    Ok(raw) => {
                        let reply: PermissionStored = link::frame::body(&raw).expect("a reply");
                        let digest = asks[usize::try_from(id - 10_000).expect("few")].2.action_digest;
                        stored.push(reply.approval);
                        let form = format!("id={}&digest={digest}&outcome=approve", reply.approval);
                        let (address, cookie) = (p.address.clone(), p.admin.clone());
                        deciding.push(tokio::spawn(async move {
                            let headers =
                                [http::FORM, ("Cookie", cookie.as_str()), ("Accept", "application/json")];
                            let path = "/api/approval/resolve";
                            let answer = http::send(&address, "POST", path, &headers, form.as_bytes()).await;
                            (reply.approval, answer.status)
                        }));
                        if stored.len() == 3 + round && !killed {
                            killed = true;
                            if round % 2 == 0 {
                                own.kill();
                            } else {
                                kill_a_back_end(&own.data);
                            }
                        }
                    }
                    Err(error) => {
                        assert_eq!(error.code, UNAVAILABLE, "{error}");
                        break;
                    }
                },
                Ok(_) => {}
                Err(_) => break,
            }
            if stored.len() == asks.len() {
                break;
            }
        }
        assert!(killed, "round {round}: it was over before the kill");
        for (id, status) in join_all(deciding).await.into_iter().map(|d| d.expect("an answer")) {
            if status == 200 {
                decided.push(id);
            }
        }
        if own.running.is_none() {
            own.go().await;
        }
        until_back(&p.pool).await;
        pauses_fit(&p.pool).await;
        for id in &stored {
            let there: i64 = sqlx::query_scalar("select count(*) from approvals where id = $1")
                .bind(id.0)
                .fetch_one(&p.pool)
                .await
                .expect("a count");
            assert_eq!(there, 1, "round {round}: an acknowledged request is gone");
        }
        for id in &decided {
            let there: i64 = sqlx::query_scalar(
                "select count(*) from decisions d join approvals a on a.id = d.approval_id
                 where a.id = $1 and a.status = 'approved'",
            )
            .bind(id.0)
            .fetch_one(&p.pool)
            .await
            .expect("a count");
            assert_eq!(there, 1, "round {round}: an acknowledged decision is gone");
        }
        // The worker comes back, asks again, and every request is there once, decided once, sent once.
        drop(w);
        w = relink(&p, &token, &holding_all(&asks)).await;
        let open = asks.len();
        let (mut applied, mut calls) = (Vec::new(), Vec::new());
        for (n, (_, _, ask)) in asks.iter().enumerate() {
            let ask = PermissionRequest { epoch: w.epoch, ..ask.clone() };
            calls.push((20_000 + n as u64, ask));
        }
        for (id, ask) in &calls {
            w.send(Frame::call(*id, ask)).await;
        }
        while applied.len() < open {
            match w.next().await.expect("the link stays") {
                Frame::Answer { id, result } if id >= 20_000 => {
                    let reply: PermissionStored =
                        link::frame::body(&result.expect("stored")).expect("a reply");
                    let digest = calls[usize::try_from(id - 20_000).expect("few")].1.action_digest;
                    let answer = p.decide(&p.admin, reply.approval, digest, "approve", "").await;
                    assert!(matches!(answer.status, 200 | 409), "{answer:?}");
                }
                Frame::Call { id, method, params } if method == "permission/resolve" => {
                    let resolve: Resolve = link::frame::body(&params).expect("a decision");
                    assert!(!applied.contains(&resolve.request_key), "one request, two answers");
                    applied.push(resolve.request_key);
                    w.reply(id, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
                }
                _ => {}
            }
        }
        for (_, run, _) in &asks {
            let ended = format!("run={run}");
            let approvals: i64 = sqlx::query_scalar("select count(*) from approvals where run_id = $1")
                .bind(run.0)
                .fetch_one(&p.pool)
                .await
                .expect("a count");
            assert_eq!(approvals, 1, "{ended}");
        }
        for (key, run, _) in &asks {
            w.tell(*key, *run, 1, crate::worker::ended(domain::run::RunStatus::Completed)).await;
        }
    }
}

/// SIGKILL to one back end of the server: Postgres ends all the others and recovers.
/// Returns when they have ended.
fn kill_a_back_end(data: &Path) {
    let text = std::fs::read_to_string(data.join("postgres/postmaster.pid")).expect("a pid file");
    let postmaster = text.lines().next().expect("a pid").to_owned();
    let children = std::fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"))
        .expect("its children");
    let back_ends: Vec<Pid> = children
        .split_whitespace()
        .filter(|pid| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("countersign countersign")
        })
        .filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect();
    kill_process(*back_ends.last().expect("a back end"), Signal::KILL).expect("killed");
    let began = Instant::now();
    while back_ends.iter().any(|pid| test_kill_process(*pid).is_ok()) {
        assert!(began.elapsed() < Duration::from_secs(20), "the back ends live on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

const FIRST_GAP: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread")]
async fn dialogues_over_a_database_whose_connections_keep_dying_end_well() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    drop(Worker::link(&p, &token, Uuid::nil()).await);
    let mut sessions = Vec::new();
    for n in 0..10 {
        let outcome = if n % 2 == 0 { Outcome::Approve } else { Outcome::Reject };
        sessions.push((p.start_session(&p.admin, "").await, outcome));
    }
    let over = AtomicUsize::new(0);
    let cutting = async {
        // At first there is time for a few transactions between two cuts, not for a whole
        // dialogue; then for more, however slow the machine is.
        let (mut before, mut gap) = (0, FIRST_GAP);
        loop {
            p.cut_database().await;
            tokio::time::sleep(gap).await;
            let now = over.load(Ordering::Relaxed);
            gap = if now == before { gap * 3 / 2 } else { FIRST_GAP };
            before = now;
        }
    };
    let playing = async {
        for (session, outcome) in sessions {
            let mut dialogue = Dialogue::new(&token, session);
            let decides = tokio::spawn(person(p.address.clone(), p.admin.clone(), session, outcome));
            dialogue.finish(&p).await;
            decides.await.expect("decided");
            dialogue.holds(&p, "cut again and again").await;
            assert_eq!(dialogue.outcome, Some(outcome));
            over.fetch_add(1, Ordering::Relaxed);
        }
    };
    tokio::select! {
        () = cutting => {}
        () = playing => {}
    }
    pauses_fit(&p.pool).await;
}

/// Writes until nothing more fits.
fn fill(data: &Path) -> PathBuf {
    use std::io::Write as _;
    let ballast = data.join("ballast");
    let mut file = std::fs::File::create(&ballast).expect("a file");
    for size in [1 << 20, 1 << 16, 1 << 12, 1] {
        let piece = vec![7_u8; size];
        while file.write_all(&piece).is_ok() {}
    }
    ballast
}

fn noise(megabytes: usize) -> Bytes {
    // Not compressible, and JSON: hexadecimal digits of random bytes.
    let mut text = String::from(r#"{"command":""#);
    while text.len() < megabytes << 20 {
        text.push_str(&Uuid::new_v4().simple().to_string());
    }
    text.push_str(r#""}"#);
    Bytes(text.into_bytes())
}

#[tokio::test]
async fn a_full_disk_is_said_to_be_that_and_loses_nothing() {
    let Some(own) = Own::start_on_small_disk(160).await else { return };
    let p = own.product().await;
    let token = p.worker_token("studio").await;
    let mut w = Worker::link(&p, &token, Uuid::nil()).await;
    let paused = w.paused(&p).await;
    let (key, run) = w.prompted(&p).await;
    let incarnation = Incarnation(Uuid::now_v7());
    let ballast = fill(&own.data);
    // Large requests need new pages, which there are none of. A small one may find room in an
    // old page: what is acknowledged is stored, whichever it is.
    let (mut refused, mut kept) = (0, 0);
    let mut last: Option<PermissionRequest> = None;
    for n in 0..4 {
        let mut ask = w.ask(key, run, &format!("large{n}"), incarnation);
        ask.input = noise(3);
        ask.action_digest = digest_of(&ask);
        match w.call(&ask).await {
            Ok(stored) => {
                kept += 1;
                assert_eq!(
                    p.text("select status from approvals where id = $1", stored.approval.0).await,
                    "pending"
                );
            }
            Err(error) => {
                assert_eq!(error.code, UNAVAILABLE, "{error}");
                refused += 1;
                last = Some(ask);
            }
        }
    }
    assert!(refused > 0, "the disk was not full");
    until_back(&p.pool).await;
    pauses_fit(&p.pool).await;
    assert_eq!(p.count("select count(*) from approvals").await, 1 + kept);
    // People read, and are told what is the matter. A message may still find room in an old
    // page, and a database that was out of room for its log comes back first.
    assert_eq!(p.get(&p.admin, "/approvals").await.status, 200);
    let agent = p.agent().await;
    let began = Instant::now();
    loop {
        let mut form = format!("agent={agent}&prompt=");
        while form.len() < 250 * 1024 {
            form.push_str(&Uuid::new_v4().simple().to_string());
        }
        let told = p.post(&p.admin, "/api/session/start", &form).await;
        assert!(matches!(told.status, 200 | 503), "{told:?}");
        if told.status == 503 && told.body.contains("The disk of the database is full") {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "nobody says that the disk is full: {told:?}");
    }

    std::fs::remove_file(ballast).expect("room again");
    let ask = last.expect("a refused request");
    let began = Instant::now();
    loop {
        match w.call(&ask).await {
            Ok(_) => break,
            Err(error) => assert_eq!(error.code, UNAVAILABLE, "{error}"),
        }
        assert!(began.elapsed() < Duration::from_secs(30), "it does not go on by itself\n{}", p.said());
    }
    let taken = p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    assert_eq!(taken.status, 200, "{taken:?}");
    assert_eq!(w.apply().await.approval, paused.id);
    pauses_fit(&p.pool).await;
}
