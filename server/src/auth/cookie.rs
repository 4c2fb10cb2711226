//! The session cookie. `HttpOnly`, `SameSite=Lax`; behind TLS `Secure` and `__Host-`.

use axum::http::{HeaderMap, HeaderValue, header};
use store::{Token, login::IDLE_DAYS};

use crate::config::Reach;

/// The token of the request's cookie.
pub fn read(headers: &HeaderMap, reach: &Reach) -> Option<Token> {
    named(headers, &reach.cookie()).map(Token::presented)
}

/// A cookie's value by its name.
pub fn named<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(n, _)| *n == name)
        .map(|(_, value)| value)
        .filter(|value| !value.is_empty())
}

/// `Set-Cookie` that signs in.
pub fn set(token: &Token, reach: &Reach) -> Option<HeaderValue> {
    let age = i64::from(IDLE_DAYS) * 86_400;
    value(&format!("{}={}; Max-Age={age}", reach.cookie(), token.reveal()), reach)
}

/// `Set-Cookie` that signs out.
pub fn clear(reach: &Reach) -> Option<HeaderValue> {
    value(&format!("{}=; Max-Age=0", reach.cookie()), reach)
}

fn value(start: &str, reach: &Reach) -> Option<HeaderValue> {
    let secure = if reach.tls { "; Secure" } else { "" };
    HeaderValue::from_str(&format!("{start}; Path=/; HttpOnly; SameSite=Lax{secure}")).ok()
}
