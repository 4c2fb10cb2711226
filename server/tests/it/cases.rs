//! Public complaints about systems that do this job, replayed as kinds of faults.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use domain::{approval::RequestKey, decision::Outcome, event::EventBody, id::Incarnation, run::RunStatus};
use link::{
    frame::{Frame, Message as _, REFUSED},
    message::{Bytes, Heartbeat, PermissionStored, Resolve, ResolveOutcome, ResolveReply},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

use crate::{
    http::{self, FORM},
    live,
    product::Product,
    worker::{Worker, connect_to, digest_of, ended, hello, holding, said},
};

async fn place() -> (Product, String, Worker) {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let w = Worker::link(&p, &token, Uuid::nil()).await;
    (p, token, w)
}

// Shown as approved, while the machine still waited.

#[tokio::test]
async fn a_decision_is_not_called_done_before_the_harness_has_taken_it() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    // The harness has stopped reading: the worker has the decision and says nothing yet.
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    let (id, _) = w.called::<Resolve>().await;
    let read = p.until_delivery(paused.id, "sent").await;
    assert_eq!(read["receipt"]["applied_at"], serde_json::Value::Null);
    assert_eq!(read["receipt"]["effect_at"], serde_json::Value::Null);
    assert!(read["receipt"]["waiting_ms"].is_i64(), "it says how long it waits: {read}");
    let page = p.get(&p.admin, &format!("/approvals/{}", paused.id)).await;
    assert!(!page.body.contains("It ran."), "nothing is claimed");
    w.reply(id, &ResolveReply { outcome: ResolveOutcome::Applied, why: None }).await;
    let read = p.until_delivery(paused.id, "applied").await;
    assert_eq!(read["receipt"]["effect_at"], serde_json::Value::Null);
    w.effect(&paused, link::message::EffectKind::Ran).await.expect("taken");
    let read = p.until_delivery(paused.id, "effect").await;
    assert_eq!(read["receipt"]["waiting_ms"], serde_json::Value::Null);
}

// A page that connected again showed no pending request.

#[tokio::test]
async fn a_page_that_connects_late_learns_of_what_came_before() {
    let (p, _, mut w) = place().await;
    let mut tab = live::open_own(&p, &p.admin).await;
    let first = live::next(&mut tab).await.into_text().expect("text");
    drop(tab);
    let paused = w.paused(&p).await;
    // The same tab again: every version comes at once, and the approvals' has moved.
    let mut tab = live::open_own(&p, &p.admin).await;
    let again = live::next(&mut tab).await.into_text().expect("text");
    let version = |text: &str| {
        let told: serde_json::Value = serde_json::from_str(text).expect("JSON");
        told["versions"]["approvals"].as_u64().expect("a version")
    };
    assert!(version(&again) > version(&first), "{first} {again}");
    // A reload, and another device.
    let other = crate::product::cookie(&p.sign_in("Ana", crate::product::PASSWORD).await);
    for cookie in [&p.admin, &other] {
        let list = p.read_json(cookie, "/api/approval/list?tab=waiting").await;
        assert_eq!(list["rows"][0]["id"], paused.id.to_string());
        let page = p.get(cookie, "/approvals").await;
        assert!(page.body.contains(&paused.id.to_string()));
    }
}

#[tokio::test]
async fn a_server_that_could_not_listen_for_a_while_tells_its_pages_to_read_again() {
    let (p, _, mut w) = place().await;
    // The second server has a role of its own, which the database can refuse.
    let role = format!("listener_{}", Uuid::now_v7().simple());
    let set = async |sql: String| {
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&p.pool).await.expect("set");
    };
    set(format!("create role {role} superuser login")).await;
    let url = p.url.replacen("://countersign@", &format!("://{role}@"), 1);
    assert_ne!(url, p.url);
    let other = Product::on(url, &[]).await;
    let mut tab = live::open_own(&other, &other.cookie_here(&p.admin)).await;
    live::next(&mut tab).await;
    // It is cut off, and cannot come back while something happens: the word of it goes to
    // nobody.
    set(format!("alter role {role} nologin")).await;
    let cut = format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'");
    let left = format!("select count(*) from pg_stat_activity where usename = '{role}'");
    let began = Instant::now();
    loop {
        set(cut.clone()).await;
        let left: i64 =
            sqlx::query_scalar(sqlx::AssertSqlSafe(left.clone())).fetch_one(&p.pool).await.expect("a count");
        if left == 0 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{left} connections live on");
    }
    let mut word = sqlx::postgres::PgListener::connect_with(&p.pool).await.expect("a listener");
    word.listen("countersign").await.expect("listening");
    w.paused(&p).await;
    // Approvals are the first of the topics.
    let is_of_approvals = |told: &str| {
        told.split_once(' ').is_some_and(|(_, bits)| bits.parse::<u32>().is_ok_and(|b| b & 1 != 0))
    };
    let told = async { while !is_of_approvals(word.recv().await.expect("a word").payload()) {} };
    tokio::time::timeout(Duration::from_secs(30), told).await.expect("the other servers are told");
    set(format!("alter role {role} login")).await;
    let began = Instant::now();
    loop {
        let message = live::next(&mut tab).await;
        live::answer(&mut tab, &message).await;
        if message.to_text().is_ok_and(|told| told.contains("\"approvals\"")) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(40), "{}", other.said());
    }
}

// A request forgotten, or answered under another id.

#[tokio::test]
async fn a_request_sent_again_is_one_card_and_a_new_id_is_another() {
    let (mut p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    for _ in 0..3 {
        let again: PermissionStored = w.call(&paused.ask).await.expect("stored");
        assert_eq!(again.approval, paused.id);
    }
    // Also over a new link, and after a restart of the server.
    for restarted in [false, true] {
        if restarted {
            p.kill().await;
            p.revive().await;
        }
        w = Worker::link_with(&p, &token, &holding(paused.key, paused.run, &paused.ask)).await;
        let ask = link::message::PermissionRequest { epoch: w.epoch, ..paused.ask.clone() };
        assert_eq!(w.call(&ask).await.expect("stored").approval, paused.id, "restarted: {restarted}");
    }
    let renamed = w.ask(paused.key, paused.run, "2", paused.ask.request_key.incarnation);
    let second: PermissionStored = w.call(&renamed).await.expect("stored");
    assert_ne!(second.approval, paused.id);
    let list = p.read_json(&p.admin, "/api/approval/list?tab=waiting").await;
    assert_eq!(list["rows"].as_array().expect("rows").len(), 2);
    for id in [paused.id, second.approval] {
        assert!(p.approval(id).await["action"].to_string().contains("echo hi"), "the input is shown");
    }
    // Each decision goes to the request it is for.
    p.decide(&p.admin, second.approval, renamed.action_digest, "reject", "").await;
    assert_eq!(w.apply().await.request_key, renamed.request_key);
}

// A denied tool ran anyway.

#[tokio::test]
async fn a_deny_after_a_restart_is_a_deny_whatever_the_agent_is_set_to_by_then() {
    let (mut p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    p.kill().await;
    p.revive().await;
    p.edit_agent("mode=never&hitl_timeout_s=900&never_asks_confirmed=on&waits_for_continue=on").await;
    let decided = p.decide(&p.admin, paused.id, paused.ask.action_digest, "reject", "").await;
    assert_eq!(decided.status, 200, "{decided:?}");
    w = Worker::link_with(&p, &token, &holding(paused.key, paused.run, &paused.ask)).await;
    // The agent's new way of waiting for Continue run counts too, and only lets the deny through.
    let continued = p.post(&p.admin, "/api/run/continue", &format!("run={}", paused.run)).await;
    assert_eq!(continued.status, 200, "{continued:?}");
    let resolve = w.apply().await;
    assert_eq!(resolve.answer.outcome, Outcome::Reject);
    assert_eq!(resolve.request_key, paused.ask.request_key);
    p.until_delivery(paused.id, "applied").await;
    assert!(w.calls_until_quiet().await.is_empty());
}

#[tokio::test]
async fn a_mode_that_stops_asking_leaves_open_requests_waiting() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    p.edit_agent("mode=never&hitl_timeout_s=900&never_asks_confirmed=on").await;
    assert!(w.calls_until_quiet().await.is_empty());
    let read = p.approval(paused.id).await;
    assert_eq!(read["row"]["status"], "pending");
    assert_eq!(read["mode"], "ask", "it shows the mode it was asked in");
}

// A time-out that looped, and was written down as a person's refusal.

#[tokio::test]
async fn a_time_out_is_told_apart_from_a_refusal() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let incarnation = Incarnation(Uuid::now_v7());
    let mut ask = w.ask(key, run, "1", incarnation);
    ask.native_deadline_ms = Some(300);
    let first: PermissionStored = w.call(&ask).await.expect("stored");
    let resolve = w.apply().await;
    let words = resolve.answer.message.expect("words");
    assert!(words.contains("No person refused it"), "{words}");
    // A harness that tries again after a refusal is a new request, and a person's to decide.
    let again = w.ask(key, run, "2", incarnation);
    let second: PermissionStored = w.call(&again).await.expect("stored");
    assert_ne!(second.approval, first.approval);
    assert!(w.calls_until_quiet().await.is_empty());
    let read = p.approval(first.approval).await;
    assert_eq!(read["row"]["status"], "expired");
    assert_eq!(read["receipt"]["by"], serde_json::Value::Null);
    let page = p.get(&p.admin, &format!("/approvals/{}", first.approval)).await;
    assert!(!page.body.contains("Rejected by"), "nobody is named");
    let list = p.read_json(&p.admin, "/api/approval/list?tab=expired").await;
    assert_eq!((&list["counts"]["expired"], &list["counts"]["decided"]), (&1.into(), &0.into()));
}

// The script was swapped between approval and run.

#[tokio::test]
async fn another_action_under_an_id_that_was_shown_is_refused() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    let mut swapped = paused.ask.clone();
    swapped.input = Bytes(br#"{"command":"sh ./other.sh"}"#.to_vec());
    swapped.action_digest = digest_of(&swapped);
    let refused = w.call(&swapped).await.expect_err("refused");
    assert_eq!(refused.code, REFUSED);
    assert!(refused.message.contains("same native id"), "{refused}");
    // Neither is it after the first one was approved.
    p.decide(&p.admin, paused.id, paused.ask.action_digest, "approve", "").await;
    let resolve = w.apply().await;
    assert_eq!(w.call(&swapped).await.expect_err("refused").code, REFUSED);
    assert_eq!(resolve.action_digest, paused.ask.action_digest, "it is bound to what was shown");
    // The folder, the tool and who asks are part of the action too.
    for change in [
        |a: &mut link::message::PermissionRequest| a.folder = "/elsewhere".into(),
        |a: &mut link::message::PermissionRequest| a.tool = "Shell".into(),
        |a: &mut link::message::PermissionRequest| a.sub_agent = Some("other".into()),
        |a: &mut link::message::PermissionRequest| {
            // The same JSON to a reader of JSON, and not the same bytes.
            a.input = Bytes(br#"{"command":"echo hi","n":9007199254740992}"#.to_vec());
        },
    ] {
        let mut other = paused.ask.clone();
        change(&mut other);
        other.action_digest = digest_of(&other);
        assert_ne!(other.action_digest, paused.ask.action_digest);
        assert_eq!(w.call(&other).await.expect_err("refused").code, REFUSED);
    }
}

#[tokio::test]
async fn a_native_id_that_counts_from_one_again_in_a_new_process_is_another_request() {
    let (p, _, mut w) = place().await;
    let paused = w.paused(&p).await;
    let mut renewed = paused.ask.clone();
    renewed.request_key = RequestKey { incarnation: Incarnation(Uuid::now_v7()), native_id: "1".into() };
    renewed.action_digest = digest_of(&renewed);
    let stored: PermissionStored = w.call(&renewed).await.expect("stored");
    assert_ne!(stored.approval, paused.id);
    let crossed = p.decide(&p.admin, stored.approval, paused.ask.action_digest, "approve", "").await;
    assert_eq!(crossed.status, 409, "an equal action of another process is not what was shown");
}

// The socket died behind a proxy.

/// A proxy between a test and the server: it drops a connection over which the server said
/// nothing for `idle`, and can fall silent without a word.
struct Proxy {
    address: String,
    silent: Arc<AtomicBool>,
    /// Connections the server has closed.
    closed: Arc<AtomicUsize>,
}

impl Proxy {
    async fn before(p: &Product, idle: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (silent, closed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (server, quiet, ends) = (p.address.clone(), Arc::clone(&silent), Arc::clone(&closed));
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let Ok(far) = TcpStream::connect(&server).await else { continue };
                let (mut near_in, mut near_out) = near.into_split();
                let (mut far_in, mut far_out) = far.into_split();
                let (quiet, ends) = (Arc::clone(&quiet), Arc::clone(&ends));
                tokio::spawn(async move {
                    // What a silent proxy holds back keeps its sockets open.
                    let up = async {
                        let mut buffer = [0; 4096];
                        while let Ok(n) = near_in.read(&mut buffer).await {
                            if n == 0 {
                                break;
                            }
                            if !quiet.load(Ordering::Relaxed)
                                && far_out.write_all(&buffer[..n]).await.is_err()
                            {
                                break;
                            }
                        }
                    };
                    let down = async {
                        let mut buffer = [0; 4096];
                        while let Ok(read) = tokio::time::timeout(idle, far_in.read(&mut buffer)).await {
                            let n = read.unwrap_or(0);
                            if n == 0 {
                                ends.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            if !quiet.load(Ordering::Relaxed)
                                && near_out.write_all(&buffer[..n]).await.is_err()
                            {
                                break;
                            }
                        }
                    };
                    tokio::select! { () = up => {}, () = down => {} }
                });
            }
        });
        Self { address, silent, closed }
    }
}

#[tokio::test]
async fn an_idle_socket_is_kept_alive_well_within_a_proxy_s_minute() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let proxy = Proxy::before(&p, Duration::from_secs(30)).await;
    let mut w = Worker { socket: connect_to_through(&proxy, &p, &token).await, epoch: 0, calls: 0 };
    w.epoch = w.call(&hello(Uuid::nil())).await.expect("welcome").epoch;
    let (key, run) = w.prompted(&p).await;
    let mut tab = through(&proxy, &p).await;
    // Three of the server's signs of life on either socket, and nothing else.
    let pings = async {
        let mut seen = 0;
        while seen < 4 {
            let message = live::next(&mut tab).await;
            live::answer(&mut tab, &message).await;
            seen += u32::from(message.to_text().is_ok_and(|text| text.contains("\"ping\"")));
        }
    };
    let beats = async {
        let mut seen = 0;
        while seen < 4 {
            w.send(Frame::notify(&Heartbeat {})).await;
            let frame = w.next().await.expect("a frame");
            seen += u32::from(matches!(frame, Frame::Notify { method, .. } if method == Heartbeat::METHOD));
        }
    };
    tokio::join!(pings, beats);
    // Over the same sockets a request is stored, and the tab hears of it.
    w.call(&w.ask(key, run, "1", Incarnation(Uuid::now_v7()))).await.expect("stored");
    while !live::next(&mut tab).await.to_text().is_ok_and(|told| told.contains("\"approvals\"")) {}
    assert_eq!(proxy.closed.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_peer_that_fell_silent_is_noticed_within_45_seconds() {
    let p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    let proxy = Proxy::before(&p, Duration::MAX).await;
    let mut w = Worker { socket: connect_to_through(&proxy, &p, &token).await, epoch: 0, calls: 0 };
    w.call(&hello(Uuid::nil())).await.expect("welcome");
    let tab = through(&proxy, &p).await;
    proxy.silent.store(true, Ordering::Relaxed);
    let began = Instant::now();
    // The worker shows as away, and the server has closed both sockets. Beyond the 45
    // seconds a loaded machine gets some.
    loop {
        let all = p.read_json(&p.admin, "/api/worker/list").await;
        let (away, closed) = (all[0]["linked"] == false, proxy.closed.load(Ordering::Relaxed));
        if away && closed == 2 {
            break;
        }
        assert!(began.elapsed() < Duration::from_mins(1), "not noticed: away {away}, {closed} closed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop((tab, w));
}

async fn connect_to_through(proxy: &Proxy, p: &Product, token: &str) -> crate::worker::Socket {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let mut request = format!("ws://{}/link", proxy.address).into_client_request().expect("a request");
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {token}").parse().expect("a value"));
    headers.insert("host", p.address.parse().expect("a value"));
    tokio_tungstenite::connect_async(request).await.expect("a socket").0
}

async fn through(proxy: &Proxy, p: &Product) -> crate::worker::Socket {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
    let mut request = format!("ws://{}/live", proxy.address).into_client_request().expect("a request");
    let headers = request.headers_mut();
    headers.insert("cookie", p.admin.parse().expect("a value"));
    headers.insert("host", p.address.parse().expect("a value"));
    headers.insert("origin", format!("http://{}", p.address).parse().expect("a value"));
    let mut tab = tokio_tungstenite::connect_async(request).await.expect("a socket").0;
    live::next(&mut tab).await;
    tab
}

// Memory that grew until the server was killed: whatever is shown has an end.

#[tokio::test]
async fn a_long_run_is_read_in_bounded_pieces() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    // Ten thousand events and three thousand approvals, written as the server writes them.
    let body = serde_json::to_value(said(&"x".repeat(200))).expect("JSON");
    sqlx::query(
        "insert into run_events (run_id, seq, at, body)
         select $1, n, app_now(), $2 from generate_series(1, 10000) n",
    )
    .bind(run.0)
    .bind(&body)
    .execute(&p.pool)
    .await
    .expect("events");
    sqlx::query("update sessions set stored_seq = 10000").execute(&p.pool).await.expect("a sequence");
    let ask = w.ask(key, run, "first", Incarnation(Uuid::now_v7()));
    let first = w.call(&ask).await.expect("stored").approval;
    sqlx::query(
        "insert into approvals (id, run_id, session_id, agent_id, worker_id, incarnation, request_key, harness,
             tool, folder, mode, input, action_digest, kind, title, checked, after_seq, status, closed_at,
             created_at, expires_at)
         select gen_random_uuid(), run_id, session_id, agent_id, worker_id, incarnation, request_key || n, harness,
             tool, folder, mode, input, action_digest, kind, title, checked, n * 3, 'approved', app_now(),
             created_at - make_interval(secs => n), expires_at
         from approvals, generate_series(1, 3000) n where id = $1",
    )
    .bind(first.0)
    .execute(&p.pool)
    .await
    .expect("approvals");
    let began = Instant::now();
    let answer = p.get_json(&p.admin, &format!("/api/session/read?id={key}")).await;
    assert!(answer.body.len() < 2_000_000, "{} bytes", answer.body.len());
    let read: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    let items = read["turns"][0]["items"].as_array().expect("items");
    assert!(items.len() <= 500, "{} items", items.len());
    assert!(read["turns"][0]["left_out"].as_u64() >= Some(9_700), "it says how much is left out");
    let waiting = items.iter().filter(|i| i["approval"]["approval"]["row"]["status"] == "pending").count();
    assert_eq!(waiting, 1, "the open request is among them");
    let page = p.get(&p.admin, &format!("/chat/{key}")).await;
    assert_eq!(page.status, 200);
    assert!(page.body.len() < 6_000_000, "{} bytes", page.body.len());
    assert!(page.body.contains(&first.to_string()));
    // Lists go page by page, and each page is as small as the first.
    let (mut after, mut rows, mut largest) = (String::new(), 0, 0);
    for _ in 0..5 {
        let list = p.get_json(&p.admin, &format!("/api/approval/list?tab=all&after={after}")).await;
        largest = largest.max(list.body.len());
        let list: serde_json::Value = serde_json::from_str(&list.body).expect("JSON");
        rows += list["rows"].as_array().expect("rows").len();
        after = list["next"].as_str().expect("a next page").to_owned();
    }
    assert_eq!(rows, 125);
    assert!(largest < 60_000, "{largest} bytes");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[tokio::test]
async fn many_long_answers_do_not_make_a_page_of_any_size() {
    let (p, _, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let long = serde_json::to_value(said(&"x".repeat(domain::event::EVENT_TEXT_MAX))).expect("JSON");
    sqlx::query(
        "insert into run_events (run_id, seq, at, body) select $1, n, app_now(), $2 from generate_series(1, 600) n",
    )
    .bind(run.0)
    .bind(&long)
    .execute(&p.pool)
    .await
    .expect("events");
    sqlx::query("update sessions set stored_seq = 600").execute(&p.pool).await.expect("a sequence");
    w.tell(key, run, 601, ended(RunStatus::Completed)).await;
    let answer = p.get_json(&p.admin, &format!("/api/session/read?id={key}")).await;
    assert!(answer.body.len() < 8_000_000, "{} bytes", answer.body.len());
    let read: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    let items = read["turns"][0]["items"].as_array().expect("items");
    assert!(items.len() > 10 && read["turns"][0]["left_out"].as_u64() >= Some(300), "{}", items.len());
    let end = items.last().expect("an item");
    assert!(end.to_string().contains("completed"), "the newest are kept");
}

#[tokio::test]
async fn a_frame_or_a_list_without_end_ends_the_link_and_not_the_server() {
    let (p, token, mut w) = place().await;
    let (key, run) = w.prompted(&p).await;
    let over = EventBody::Said { text: "x".repeat(9 * 1024 * 1024), sub_agent: None };
    w.send(w.event(key, run, 1, over)).await;
    assert_ne!(w.closed().await, 1000);
    let mut w =
        Worker { socket: connect_to(&p.address, &token).await.expect("a socket"), epoch: 0, calls: 0 };
    w.call(&hello(Uuid::nil())).await.expect("the server goes on");
}

// Any web page could drive the local server.

#[tokio::test]
async fn a_strange_page_gets_nothing_and_changes_nothing() {
    let (p, token, mut w) = place().await;
    let paused = w.paused(&p).await;
    let own = format!("http://{}", p.address);
    let port = p.address.rsplit(':').next().expect("a port").to_owned();
    let form =
        format!("id={}&digest={}&outcome=approve&run={}", paused.id, paused.ask.action_digest, paused.run);
    let evil: [&[(&str, &str)]; 7] = [
        &[("Origin", "https://evil.example")],
        &[("Origin", "null")],
        &[("Origin", "http://127.0.0.1:1")],
        &[("Sec-Fetch-Site", "cross-site")],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Origin", "https://evil.example"), ("Sec-Fetch-Site", "cross-site")],
        &[("Origin", "file://")],
    ];
    for path in
        ["/api/approval/resolve", "/api/approval/extend", "/api/run/cancel", "/signin", "/signout", "/theme"]
    {
        for headers in evil {
            // As a form, as text that needs no preflight, as JSON; the browser adds the cookie.
            for kind in [FORM.1, "text/plain", "application/json", "multipart/form-data; boundary=x"] {
                let mut all = vec![("Content-Type", kind), ("Cookie", p.admin.as_str())];
                all.extend(headers);
                let refused = http::send(&p.address, "POST", path, &all, form.as_bytes()).await;
                assert_eq!(refused.status, 403, "{path} {headers:?} {kind}: {refused:?}");
            }
        }
        // A tool without Origin and without a cookie.
        if path.starts_with("/api/") {
            let headers = [FORM, ("Accept", "application/json")];
            let refused = http::send(&p.address, "POST", path, &headers, form.as_bytes()).await;
            assert_eq!(refused.status, 401, "{path}: {refused:?}");
        }
        // A name bound to this machine's address, also with the right Origin beside it.
        for host in ["evil.example", "evil.example:80", "localhost", "127.0.0.1.evil.example", "0.0.0.0"] {
            let headers = [FORM, ("Host", host), ("Origin", own.as_str()), ("Cookie", p.admin.as_str())];
            let refused = http::send(&p.address, "POST", path, &headers, form.as_bytes()).await;
            assert_eq!(refused.status, 421, "{path} {host}: {refused:?}");
        }
    }
    // GET changes nothing.
    for path in ["/api/approval/resolve", "/api/run/cancel", "/signout"] {
        let headers = [("Cookie", p.admin.as_str()), ("Accept", "application/json")];
        let at = format!("{path}?{form}");
        let refused = http::send(&p.address, "GET", &at, &headers, b"").await;
        assert!(refused.status >= 400, "{path}: {refused:?}");
    }
    assert_eq!(p.count("select count(*) from approvals where status = 'pending'").await, 1);
    assert_eq!(p.get_json(&p.admin, "/api/agent/list").await.status, 200, "and nobody was signed out");
    // Sockets: the page's needs Origin and session, the worker's a token.
    for (cookie, origin, status) in [
        ("", Some(own.as_str()), 401),
        (p.admin.as_str(), None, 403),
        (p.admin.as_str(), Some("null"), 403),
        (p.admin.as_str(), Some("https://evil.example"), 403),
        ("", None, 403),
    ] {
        assert_eq!(live::open(&p, cookie, origin).await.err(), Some(status), "{cookie} {origin:?}");
    }
    let upgrade = [
        ("Connection", "Upgrade, close"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let bearer = format!("Bearer {token}");
    let wrong = format!("Bearer {token}x");
    for (more, status) in [
        (vec![], 401),
        (vec![("Cookie", p.admin.as_str())], 401),
        (vec![("Authorization", wrong.as_str())], 401),
        (vec![("Authorization", bearer.as_str()), ("Host", "evil.example")], 421),
    ] {
        let mut headers = upgrade.to_vec();
        headers.extend(more.iter().copied());
        let refused = http::send(&p.address, "GET", "/link", &headers, b"").await;
        assert_eq!(refused.status, status, "{more:?}: {refused:?}");
    }
    // The token is taken from the header only, never from an address that lands in logs.
    let mut headers = upgrade.to_vec();
    headers.push(("Cookie", p.admin.as_str()));
    for at in [format!("/link?token={token}"), format!("/link?access_token={token}")] {
        assert_eq!(http::send(&p.address, "GET", &at, &headers, b"").await.status, 401);
    }
    // The cookie is not for scripts, nor for other sites.
    let set = p.sign_in("Ana", crate::product::PASSWORD).await;
    let cookie = set.header("set-cookie").expect("a cookie");
    assert!(cookie.starts_with(&format!("countersign-{port}=")), "{cookie}");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite="), "{cookie}");
    // No answer invites another origin.
    let headers =
        [("Cookie", p.admin.as_str()), ("Origin", "https://evil.example"), ("Accept", "application/json")];
    let read = http::send(&p.address, "GET", "/api/agent/list", &headers, b"").await;
    assert_eq!(read.header("access-control-allow-origin"), None);
    assert_eq!(w.calls_until_quiet().await, Vec::<String>::new());
}

#[tokio::test]
async fn behind_tls_the_cookie_is_secure_and_plain_http_is_not_an_origin() {
    let p = Product::start_with(&[("PUBLIC_URL", "https://decide.example")]).await;
    let form = format!("name=Ana&password={0}&repeat={0}", crate::product::PASSWORD);
    let headers = [FORM, ("Host", "decide.example"), ("Origin", "https://decide.example")];
    let set = http::send(&p.address, "POST", &p.setup_path, &headers, form.as_bytes()).await;
    assert_eq!(set.status, 303, "{set:?}");
    let cookie = set.header("set-cookie").expect("a cookie");
    for part in ["__Host-", "Secure", "HttpOnly", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let headers = [FORM, ("Host", "decide.example"), ("Origin", "http://decide.example")];
    let refused = http::send(&p.address, "POST", "/signin", &headers, b"name=Ana").await;
    assert_eq!(refused.status, 403, "{refused:?}");
}

#[tokio::test]
async fn a_sign_in_that_runs_out_closes_its_page_s_socket() {
    let p = Product::with_admin().await;
    let vic = p.person("Vic", "viewer").await;
    let mut tab = live::open_own(&p, &vic).await;
    live::next(&mut tab).await;
    sqlx::query("update login_sessions set expires_at = app_now() where user_id = (select id from users where name = 'Vic')")
        .execute(&p.pool)
        .await
        .expect("expired");
    // Nothing else happens; the socket looks by itself.
    loop {
        let message = live::next(&mut tab).await;
        live::answer(&mut tab, &message).await;
        match message {
            Message::Close(Some(frame)) => {
                assert_eq!(u16::from(frame.code), 4401);
                break;
            }
            Message::Text(_) | Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
}
