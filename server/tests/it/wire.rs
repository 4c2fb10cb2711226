//! What is refused, with the right status and words.

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

#[tokio::test]
async fn without_a_session_nothing_is_read_and_nothing_done() {
    let p = Product::start().await;
    for path in ["/chat", "/approvals", "/agents", "/users", "/me"] {
        let sent = p.get("", path).await;
        assert_eq!(sent.status, 303, "{path}");
        assert!(sent.header("location").expect("a place").starts_with("/signin?next="), "{path}");
    }
    for path in [
        "/api/session/list?search=",
        "/api/approval/list?tab=waiting",
        "/api/agent/list",
        "/api/worker/list",
        "/api/user/list",
        "/api/place/made",
    ] {
        assert_eq!(p.get_json("", path).await.status, 401, "{path}");
    }
    let forged = format!("id={NOBODY}&digest={}&outcome=approve", "0".repeat(64));
    assert_eq!(p.post("", "/api/approval/resolve", &forged).await.status, 401);
    assert_eq!(p.post("", "/api/run/cancel", &format!("run={NOBODY}")).await.status, 401);
    // A made-up cookie is none.
    let port = p.address.rsplit(':').next().expect("a port");
    let forged = format!("countersign-{port}=abc");
    assert_eq!(p.get_json(&forged, "/api/agent/list").await.status, 401);
}

#[tokio::test]
async fn each_role_may_what_it_may() {
    let p = Product::with_admin().await;
    let viewer = p.person("Vic", "viewer").await;
    let approver = p.person("Tom", "approver").await;
    let resolve = format!("id={NOBODY}&digest={}&outcome=approve", "0".repeat(64));
    for (path, form) in [
        ("/api/approval/resolve", resolve.clone()),
        ("/api/approval/extend", format!("id={NOBODY}")),
        ("/api/session/start", format!("agent={NOBODY}&prompt=x")),
        ("/api/session/prompt", format!("session={NOBODY}&prompt=x")),
        ("/api/run/cancel", format!("run={NOBODY}")),
        ("/api/run/continue", format!("run={NOBODY}")),
    ] {
        assert_eq!(p.post(&viewer, path, &form).await.status, 403, "{path}");
        let allowed = p.post(&approver, path, &form).await.status;
        assert!(allowed == 404 || allowed == 422, "{path}: {allowed}");
    }
    let edit = format!("id={NOBODY}&name=x&folder=/&mode=x&hitl_timeout_s=60");
    for (path, form) in [
        ("/api/agent/edit", edit),
        ("/api/worker/create", "name=w".to_owned()),
        ("/api/worker/revoke", format!("id={NOBODY}")),
        ("/api/user/add", "name=x&role=admin".to_owned()),
        ("/api/user/reset", format!("id={NOBODY}")),
        ("/api/user/role", format!("id={NOBODY}&role=admin")),
        ("/api/user/disable", format!("id={NOBODY}&disabled=true")),
    ] {
        assert_eq!(p.post(&approver, path, &form).await.status, 403, "{path}");
    }
    assert_eq!(p.get_json(&approver, "/api/user/list").await.status, 403);
    assert_eq!(p.get_json(&approver, "/api/place/made").await.status, 403);
    assert_eq!(p.get_json(&viewer, "/api/agent/list").await.status, 200);
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
    let users = p.read_json(&p.admin, "/api/user/list").await;
    let id =
        users.as_array().expect("a list").iter().find(|u| u["name"] == "Vic").expect("Vic")["id"].clone();
    assert_eq!(p.get_json(&vic, "/api/agent/list").await.status, 200);
    let form = format!("id={}&disabled=true", id.as_str().expect("an id"));
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
