//! What stands before every route: the host, the session, the response headers.

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{auth::cookie, routes::failed, state::AppState};

/// Refuses a `Host` that is not ours: a rebound name passes an origin check.
pub async fn host(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let host = request
        .headers()
        .get(header::HOST)
        .and_then(|h| h.to_str().ok())
        .or_else(|| request.uri().authority().map(axum::http::uri::Authority::as_str));
    if host.is_some_and(|h| state.reach.accepts_host(h)) {
        return next.run(request).await;
    }
    let told = format!(
        "This server answers at {} only. To use another address, start it with PUBLIC_URL set to that address.\n",
        state.reach.url
    );
    (StatusCode::MISDIRECTED_REQUEST, told).into_response()
}

/// Refuses what a page of another origin sends. The check of `tower_http` compares hosts
/// and lets another scheme through; a browser that says its origin says all of it.
pub async fn origin(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let origin = request.headers().get(header::ORIGIN);
    let is_ours = origin.is_none_or(|o| o.to_str().is_ok_and(|o| state.reach.accepts_origin(o)));
    if is_ours || request.method().is_safe() {
        return next.run(request).await;
    }
    (StatusCode::FORBIDDEN, "This address may not send anything here.\n").into_response()
}

/// Puts the signed-in person into the request, if the cookie is good.
pub async fn session(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    if let Some(token) = cookie::read(request.headers(), &state.reach) {
        match store::login::find(&state.store, &token).await {
            Ok(Some(login)) => {
                request.extensions_mut().insert(login);
            }
            Ok(None) => {}
            // The page's own script reads failures of functions as JSON.
            Err(error) if request.uri().path().starts_with("/api/") => {
                let failure = error.into_failure();
                let status =
                    StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                return (status, axum::Json(failure)).into_response();
            }
            Err(error) => return failed(error.into_failure()),
        }
    }
    next.run(request).await
}

/// The headers of every response. The page's own policy, with its nonce, is set where
/// it is rendered; this one is for everything else.
pub async fn headers(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let post = request.method() == Method::POST;
    let kept = request.uri().path().starts_with("/pkg/") || request.uri().path().starts_with("/fonts/");
    let mut response = next.run(request).await;
    // A plain form's answer is a GET of another page, said as such.
    if post && response.status() == StatusCode::FOUND {
        *response.status_mut() = StatusCode::SEE_OTHER;
    }
    let headers = response.headers_mut();
    let mut put = |name: header::HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    put(header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; base-uri 'none'");
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(header::X_FRAME_OPTIONS, "DENY");
    // Without it a form's way back is lost and `Origin` becomes `null`.
    put(header::REFERRER_POLICY, "same-origin");
    put(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    put(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    put(header::HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()");
    if !kept {
        put(header::CACHE_CONTROL, "no-store");
    }
    if state.reach.tls {
        put(header::STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    }
    response
}

/// The policy of a page: scripts of ours and the one with this nonce, nothing inline.
pub fn page_policy(nonce: &str) -> String {
    format!(
        "default-src 'none'; script-src 'self' 'nonce-{nonce}' 'wasm-unsafe-eval'; style-src 'self'; \
         img-src 'self' data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'"
    )
}
