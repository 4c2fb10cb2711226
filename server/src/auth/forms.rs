//! The plain forms: sign in, sign out, first admin, set a password, theme. Each
//! answers 303 to a page that says what is so.

use std::{
    net::{IpAddr, SocketAddr},
    time::Instant,
};

use axum::{
    Extension, Form,
    extract::{ConnectInfo, Path, State},
    http::{HeaderMap, header},
    response::{IntoResponse, Redirect, Response},
};
use domain::{failure::Failure, id::UserId, user};
use serde::Deserialize;
use store::{Token, login::Login};

use crate::{
    auth::{cookie, limit::Verdict, password},
    routes::failed,
    state::AppState,
};

#[derive(Deserialize)]
pub struct SignIn {
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    next: String,
}

/// Where a person goes after signing in: a page of ours, never another address.
fn own_page(next: &str) -> &str {
    let own = next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n']);
    if own && !next.starts_with("/signin") { next } else { "/chat" }
}

/// The address the request came from; behind a proxy on this machine, what it says.
fn address(peer: SocketAddr, headers: &HeaderMap) -> IpAddr {
    let forwarded =
        || headers.get("x-forwarded-for")?.to_str().ok()?.rsplit(',').next()?.trim().parse::<IpAddr>().ok();
    if peer.ip().is_loopback() { forwarded().unwrap_or(peer.ip()) } else { peer.ip() }
}

pub async fn sign_in(
    State(state): State<AppState>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    Form(form): Form<SignIn>,
) -> Response {
    let back = |problem: &str| {
        let next = own_page(&form.next);
        let next = if next == "/chat" { String::new() } else { format!("&next={}", encoded(next)) };
        Redirect::to(&format!("/signin?problem={problem}{next}")).into_response()
    };
    if state.reach.insecure {
        return back("insecure");
    }
    let from = address(peer, &headers);
    let left = match state.limiter.begin(&form.name, from, Instant::now()) {
        Verdict::Wait(wait) => {
            let minutes = wait.as_secs().div_ceil(60).max(1);
            return back(&format!("wait&minutes={minutes}"));
        }
        Verdict::Try { left } => left,
    };
    let account = match store::user::account(&state.store, &form.name).await {
        Ok(account) => account,
        Err(error) => return failed(error.into_failure()),
    };
    let stored = account.as_ref().and_then(|a| a.password_hash.clone());
    let known = form.password.chars().count() <= user::PASSWORD_MAX;
    let fits = known && password::fits(form.password.clone(), stored).await;
    match account {
        Some(account) if fits && account.disabled => back("disabled"),
        Some(account) if fits => {
            state.limiter.succeeded(&form.name, from);
            welcome(&state, account.id, own_page(&form.next)).await
        }
        _ => back(&format!("wrong&left={left}")),
    }
}

/// Signs a person in and sends them on. Always a new id: none is fixed by a visitor.
async fn welcome(state: &AppState, id: UserId, to: &str) -> Response {
    match store::login::create(&state.store, id).await {
        Ok((_, token)) => match cookie::set(&token, &state.reach) {
            Some(value) => ([(header::SET_COOKIE, value)], Redirect::to(to)).into_response(),
            None => failed(Failure::Internal { id: "cookie".into() }),
        },
        Err(error) => failed(error.into_failure()),
    }
}

/// `text` as a value of a query.
pub fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

fn signed_out(state: &AppState) -> Response {
    match cookie::clear(&state.reach) {
        Some(value) => ([(header::SET_COOKIE, value)], Redirect::to("/signin")).into_response(),
        None => Redirect::to("/signin").into_response(),
    }
}

pub async fn sign_out(State(state): State<AppState>, login: Option<Extension<Login>>) -> Response {
    if let Some(Extension(login)) = login
        && let Err(error) = store::login::end(&state.store, login.id).await
    {
        return failed(error.into_failure());
    }
    signed_out(&state)
}

pub async fn sign_out_everywhere(State(state): State<AppState>, login: Option<Extension<Login>>) -> Response {
    if let Some(Extension(login)) = login
        && let Err(error) = store::login::end_all(&state.store, login.caller.id).await
    {
        return failed(error.into_failure());
    }
    signed_out(&state)
}

#[derive(Deserialize)]
pub struct NewPassword {
    #[serde(default)]
    name: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    repeat: String,
}

/// Checks both passwords and hashes one. The error is the name of the problem.
async fn checked(form: &NewPassword) -> Result<String, &'static str> {
    user::check_password(&form.password).map_err(|_| "password")?;
    if form.password != form.repeat {
        return Err("repeat");
    }
    password::hash(form.password.clone()).await.ok_or("server")
}

/// Uses the first admin's link.
pub async fn setup(
    State(state): State<AppState>,
    Path(token): Path<String>,
    Form(form): Form<NewPassword>,
) -> Response {
    let back = |problem: &str| {
        Redirect::to(&format!("/setup/{}?problem={problem}", encoded(&token))).into_response()
    };
    if state.reach.insecure {
        return back("insecure");
    }
    let Ok(name) = user::check_name(&form.name) else { return back("name") };
    let hash = match checked(&form).await {
        Ok(hash) => hash,
        Err(problem) => return back(problem),
    };
    match store::user::become_first_admin(&state.store, &Token::presented(&token), &name, &hash).await {
        Ok(id) => welcome(&state, id, "/chat").await,
        Err(error) => match error.into_failure() {
            Failure::Conflict { .. } | Failure::NotFound { .. } => back("used"),
            Failure::Invalid { .. } => back("name"),
            failure => failed(failure),
        },
    }
}

/// Uses a person's link.
pub async fn set_password(
    State(state): State<AppState>,
    Path(token): Path<String>,
    Form(form): Form<NewPassword>,
) -> Response {
    let back =
        |problem: &str| Redirect::to(&format!("/link/{}?problem={problem}", encoded(&token))).into_response();
    if state.reach.insecure {
        return back("insecure");
    }
    let hash = match checked(&form).await {
        Ok(hash) => hash,
        Err(problem) => return back(problem),
    };
    match store::user::set_password(&state.store, &Token::presented(&token), &hash).await {
        Ok(id) => welcome(&state, id, "/chat").await,
        Err(error) => match error.into_failure() {
            Failure::Conflict { .. } | Failure::NotFound { .. } => back("used"),
            failure => failed(failure),
        },
    }
}

#[derive(Deserialize)]
pub struct Theme {
    theme: String,
}

/// Keeps the chosen colours in a cookie and goes back.
pub async fn theme(State(state): State<AppState>, headers: HeaderMap, Form(form): Form<Theme>) -> Response {
    let theme = match form.theme.as_str() {
        "light" => "light",
        "dark" => "dark",
        _ => "auto",
    };
    let back = headers
        .get(header::REFERER)
        .and_then(|r| r.to_str().ok())
        .and_then(|r| url::Url::parse(r).ok())
        .map_or_else(|| "/chat".to_owned(), |r| r.path().to_owned());
    let secure = if state.reach.tls { "; Secure" } else { "" };
    let cookie = format!("theme={theme}; Path=/; Max-Age=31536000; SameSite=Lax{secure}");
    ([(header::SET_COOKIE, cookie)], Redirect::to(own_page(&back))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_never_sent_to_another_address() {
        assert_eq!(own_page("/approvals/1?x=2"), "/approvals/1?x=2");
        for next in ["//evil.example", "https://evil.example", "/\\evil.example", "", "/signin", "/a\r\nb"] {
            assert_eq!(own_page(next), "/chat", "{next:?}");
        }
    }

    #[test]
    fn a_forwarded_address_counts_only_from_this_machine() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", "10.0.0.1, 10.0.0.9".parse().expect("a value"));
        let peer = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(address(peer("127.0.0.1:1"), &headers).to_string(), "10.0.0.9");
        assert_eq!(address(peer("10.1.1.1:1"), &headers).to_string(), "10.1.1.1");
    }
}
