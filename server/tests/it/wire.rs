//! What is refused, with the right status and words.

use std::path::Path;

use crate::{
    http::{self, FORM},
    product::{Product, cookie},
};

const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

#[tokio::test]
async fn a_strange_host_or_origin_gets_nowhere() {
    let p = Product::with_admin().await;
    let rebound = http::send(&p.address, "GET", "/chat", &[("Host", "evil.example")], b"").await;
    assert_eq!(rebound.status, 421);
    assert!(rebound.body.contains("PUBLIC_URL"), "{}", rebound.body);
    for (name, value) in [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        for path in ["/signin", "/signout", "/theme", "/api/run/cancel", "/api/approval/resolve"] {
            let headers = [FORM, ("Cookie", p.admin.as_str()), (name, value)];
            let refused = http::send(&p.address, "POST", path, &headers, b"run=x").await;
            assert_eq!(refused.status, 403, "{path} {name}: {value}");
        }
    }
    // Also as text/plain, which a form may send without asking.
    let headers = [("Content-Type", "text/plain"), ("Origin", "https://evil.example")];
    assert_eq!(http::send(&p.address, "POST", "/signin", &headers, b"name=x").await.status, 403);
    let own = format!("http://{}", p.address);
    let headers = [FORM, ("Cookie", p.admin.as_str()), ("Origin", own.as_str())];
    assert_eq!(http::send(&p.address, "POST", "/theme", &headers, b"theme=dark").await.status, 303);
}

/// Every server function of the app, as its source declares it: the method and the path.
fn functions() -> Vec<(&'static str, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../app/src");
    let mut folders = vec![folder];
    let mut functions = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source");
            for declared in text.split("#[server(").skip(1) {
                let declared = declared.split(")]").next().expect("the end of an attribute");
                // What fills an argument that is absent is no function.
                let Some(name) = declared.split("endpoint = \"").nth(1) else {
                    assert_eq!(declared, "default", "{}: a function without a name", path.display());
                    continue;
                };
                let name = name.split('"').next().expect("a name");
                let method = if declared.contains("GetUrl") { "GET" } else { "POST" };
                functions.push((method, format!("/api/{name}")));
            }
        }
    }
    functions.sort();
    functions
}

#[tokio::test]
async fn without_a_session_nothing_is_read_and_nothing_done() {
    let p = Product::start().await;
    for path in ["/chat", "/approvals", "/agents", "/users", "/me"] {
        let sent = p.get("", path).await;
        assert_eq!(sent.status, 303, "{path}");
        assert!(sent.header("location").expect("a place").starts_with("/signin?next="), "{path}");
    }
    // The fields of all functions together: each reads its own.
    let fields = format!(
        "id={NOBODY}&run={NOBODY}&session={NOBODY}&agent={NOBODY}&digest={}&outcome=approve&prompt=x&name=x\
         &role=admin&disabled=true&folder=/&mode=x&hitl_timeout_s=60&tab=waiting&search=",
        "0".repeat(64)
    );
    // A made-up cookie is none.
    let port = p.address.rsplit(':').next().expect("a port");
    let made_up = format!("countersign-{port}=abc");
    let functions = functions();
    assert!(functions.len() > 20, "the sources were not found: {functions:?}");
    let mut open = Vec::new();
    for (method, path) in &functions {
        for cookie in ["", made_up.as_str()] {
            let answer = match *method {
                "GET" => p.get_json(cookie, &format!("{path}?{fields}")).await,
                _ => p.post(cookie, path, &fields).await,
            };
            if answer.status != 401 {
                open.push((path.as_str(), answer.status, answer.body));
            }
        }
    }
    // The frame of every page, also of the one to sign in: it says that nobody is.
    let nobody = || ("/api/place/read", 200, "null".to_owned());
    assert_eq!(open, [nobody(), nobody()]);
}

#[tokio::test]
async fn each_role_may_what_it_may() {
    let p = Product::with_admin().await;
    let viewer = p.person("Vic", "viewer").await;
    let approver = p.person("Tom", "approver").await;
    let id = format!("id={NOBODY}");
    let run = format!("run={NOBODY}");
    let reads = [
        ("agent/list", ""),
        ("approval/list", "tab=waiting"),
        ("approval/read", &id),
        ("form/kept", ""),
        ("place/read", ""),
        ("session/list", "search="),
        ("session/read", &id),
        ("worker/list", ""),
    ];
    let resolve = format!("id={NOBODY}&digest={}&outcome=approve", "0".repeat(64));
    let decides = [
        ("approval/extend", id.clone()),
        ("approval/resolve", resolve),
        ("run/cancel", run.clone()),
        ("run/continue", run),
        ("session/prompt", format!("session={NOBODY}&prompt=x")),
        ("session/start", format!("agent={NOBODY}&prompt=x")),
    ];
    let governs = [
        ("agent/edit", format!("id={NOBODY}&name=x&folder=/&mode=x&hitl_timeout_s=60")),
        ("user/add", "name=x&role=admin".to_owned()),
        ("user/disable", format!("id={NOBODY}&disabled=true")),
        ("user/reset", id.clone()),
        ("user/role", format!("id={NOBODY}&role=admin")),
        ("worker/create", "name=w".to_owned()),
        ("worker/revoke", id.clone()),
    ];
    let governs_reading = ["place/made", "user/list"];
    for (name, query) in reads {
        let answer = p.get_json(&viewer, &format!("/api/{name}?{query}")).await;
        assert!(matches!(answer.status, 200 | 404), "{name}: {answer:?}");
    }
    for (name, form) in &decides {
        let path = format!("/api/{name}");
        assert_eq!(p.post(&viewer, &path, form).await.status, 403, "{path}");
        let allowed = p.post(&approver, &path, form).await.status;
        assert!(allowed == 404 || allowed == 422, "{path}: {allowed}");
    }
    for cookie in [&viewer, &approver] {
        for (name, form) in &governs {
            assert_eq!(p.post(cookie, &format!("/api/{name}"), form).await.status, 403, "{name}");
        }
        for name in governs_reading {
            assert_eq!(p.get_json(cookie, &format!("/api/{name}")).await.status, 403, "{name}");
        }
    }
    // Those are all there are.
    let read = reads.iter().map(|(name, _)| *name).chain(governs_reading).map(|name| ("GET", name));
    let written = decides.iter().chain(&governs).map(|(name, _)| ("POST", *name));
    let mut tried: Vec<_> =
        read.chain(written).map(|(method, name)| (method, format!("/api/{name}"))).collect();
    tried.sort();
    assert_eq!(tried, functions());
}

#[tokio::test]
async fn bad_input_is_named_and_large_input_refused() {
    let p = Product::with_admin().await;
    let unknown = p.get_json(&p.admin, &format!("/api/approval/read?id={NOBODY}")).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.body.contains("not_found"), "{}", unknown.body);
    let page = p.get(&p.admin, &format!("/approvals/{NOBODY}")).await;
    assert_eq!(page.status, 404);
    assert_eq!(p.get(&p.admin, "/approvals/not-an-id").await.status, 404);
    assert_eq!(p.get(&p.admin, "/no/such/page").await.status, 404);
    let bad = p.post(&p.admin, "/api/user/add", "name=%E2%80%AE&role=viewer").await;
    assert_eq!(bad.status, 422);
    assert!(bad.body.contains("\"field\":\"name\""), "{}", bad.body);
    assert_eq!(p.post(&p.admin, "/api/user/add", "name=x&role=king").await.status, 422);
    assert_eq!(p.get_json(&p.admin, "/api/approval/list?tab=waiting&after=x").await.status, 422);
    let large = format!("session={NOBODY}&prompt={}", "x".repeat(2 * 1024 * 1024));
    assert_eq!(p.post(&p.admin, "/api/session/prompt", &large).await.status, 413);
}

#[tokio::test]
async fn signing_in_is_limited_and_a_disabled_account_stays_out() {
    let p = Product::with_admin().await;
    let vic = p.person("Vic", "viewer").await;
    let wrong = p.sign_in("Ana", "wrong horse battery").await;
    assert!(wrong.header("location").expect("a place").contains("problem=wrong&left=4"), "{wrong:?}");
    let good = p.sign_in("ANA", crate::product::PASSWORD).await;
    assert_eq!(good.header("location"), Some("/chat"));
    assert_ne!(cookie(&good), p.admin, "a sign-in has a new id");
    for _ in 0..5 {
        p.sign_in("Vic", "wrong horse battery").await;
    }
    let waits = p.sign_in("Vic", crate::product::PASSWORD).await;
    assert!(waits.header("location").expect("a place").contains("problem=wait"), "{waits:?}");
    // Signed in elsewhere: at once out when disabled.
    assert_eq!(p.get_json(&vic, "/api/agent/list").await.status, 200);
    let form = format!("id={}&disabled=true", p.user("Vic").await);
    assert_eq!(p.post(&p.admin, "/api/user/disable", &form).await.status, 200);
    assert_eq!(p.get_json(&vic, "/api/agent/list").await.status, 401);
}

#[tokio::test]
async fn signing_out_everywhere_ends_every_sign_in() {
    let p = Product::with_admin().await;
    let second = cookie(&p.sign_in("Ana", crate::product::PASSWORD).await);
    let out = p.post(&second, "/signout-everywhere", "").await;
    assert_eq!((out.status, out.header("location")), (303, Some("/signin")));
    for cookie in [&p.admin, &second] {
        assert_eq!(p.get_json(cookie, "/api/agent/list").await.status, 401);
    }
}

#[tokio::test]
async fn every_answer_carries_the_policies() {
    let p = Product::with_admin().await;
    let page = p.get(&p.admin, "/chat").await;
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("'nonce-"), "{policy}");
    assert!(!policy.contains("unsafe-inline"), "{policy}");
    assert!(!page.body.contains(" style=\""), "an inline style would be dropped by the policy");
    assert_eq!(page.header("referrer-policy"), Some("same-origin"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    let secret = p.get_json(&p.admin, "/api/place/made").await;
    assert_eq!(secret.header("cache-control"), Some("no-store"));
    let set = p.sign_in("Ana", crate::product::PASSWORD).await;
    let cookie = set.header("set-cookie").expect("a cookie");
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_asked_for_at_once_are_all_drawn() {
    // The title was read from a disposed owner in one page of a hundred under load.
    let p = Product::with_admin().await;
    let many = |path: &'static str| {
        let p = &p;
        async move {
            for _ in 0..60 {
                let page = p.get(&p.admin, path).await;
                assert_eq!(page.status, 200, "{path}");
                assert!(page.body.contains("<title>"), "{path}");
            }
        }
    };
    let all =
        ["/approvals", "/chat", "/agents", "/users", "/me", "/approvals?tab=all", "/approvals", "/chat"];
    futures::future::join_all(all.iter().chain(&all).map(|path| many(path))).await;
    assert!(!p.said().contains("panicked"), "{}", p.said());
}
