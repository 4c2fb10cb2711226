//! Every route, and what stands before it.

use std::path::Path;

use app::api::desk::Signed;
use axum::{
    Router,
    body::Body,
    extract::{DefaultBodyLimit, Request, State},
    http::{HeaderValue, StatusCode, Uri, header},
    middleware,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use domain::failure::Failure;
use leptos::prelude::*;
use leptos_axum::{LeptosRoutes as _, ResponseOptions, generate_route_list};
use store::{Token, login::Login, user::LinkState};
use tower_http::{
    catch_panic::CatchPanicLayer, csrf::CsrfLayer, services::ServeDir, set_header::SetResponseHeaderLayer,
};

use crate::{
    auth::{forms, guard},
    gateway, health, live,
    state::AppState,
};

/// The largest body of a form or server function: a prompt of 256 KiB, encoded.
const BODY_MAX: usize = 1024 * 1024;

pub fn router(state: AppState, site: Option<&Path>) -> Router {
    let pages = generate_route_list(app::App);
    let shell = {
        let site = state.site.clone();
        move || app::shell(site.clone())
    };
    let csrf = CsrfLayer::new();
    // The address people use is trusted also where a proxy changes `Host`.
    let csrf = csrf.clone().add_trusted_origin(&state.reach.url).unwrap_or(csrf);
    let people = Router::new()
        .route("/", get(|| async { Redirect::to("/chat") }))
        .route("/signin", post(forms::sign_in))
        .route("/signout", post(forms::sign_out))
        .route("/signout-everywhere", post(forms::sign_out_everywhere))
        .route("/setup/{token}", post(forms::setup))
        .route("/link/{token}", post(forms::set_password))
        .route("/theme", post(forms::theme))
        .route("/api/{*function}", get(function).post(function))
        .route("/live", get(live::live))
        .leptos_routes_with_handler(
            pages.clone(),
            get({
                let shell = shell.clone();
                let pages = pages.clone();
                move |State(state): State<AppState>, request: Request| {
                    page(state, request, pages.clone(), shell.clone())
                }
            }),
        )
        .fallback({
            move |State(state): State<AppState>, request: Request| async move {
                lost(state, request, shell.clone()).await
            }
        })
        .layer(middleware::from_fn_with_state(state.clone(), guard::session))
        .layer(csrf)
        .layer(middleware::from_fn_with_state(state.clone(), guard::origin))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(tower_http::limit::RequestBodyLimitLayer::new(BODY_MAX));
    let mut all = people.route("/link", get(gateway::link)).route("/health", get(health::health));
    if let Some(site) = site {
        let for_ever = SetResponseHeaderLayer::overriding(
            header::CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=31536000, immutable"),
        );
        let files = |name: &str| ServeDir::new(site.join(name)).precompressed_br().precompressed_gzip();
        all = all
            .nest_service("/pkg", tower::ServiceBuilder::new().layer(for_ever.clone()).service(files("pkg")))
            .nest_service("/fonts", tower::ServiceBuilder::new().layer(for_ever).service(files("fonts")));
    }
    all.layer(middleware::from_fn_with_state(state.clone(), guard::headers))
        .layer(middleware::from_fn_with_state(state.clone(), guard::host))
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(state)
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands the panic over by value")]
fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let why = panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_default();
    let id = uuid::Uuid::new_v4().simple().to_string()[..8].to_owned();
    tracing::error!(%id, %why, "a request panicked");
    failed(Failure::Internal { id })
}

/// What pages and server functions find in their context.
fn context(state: &AppState, login: Option<&Login>) -> impl Fn() + Clone + Send + Sync + 'static {
    let store = state.store.clone();
    let site = state.site.clone();
    let signed = Signed(login.map(|l| l.caller.clone()));
    move || {
        provide_context(store.clone());
        provide_context(site.clone());
        provide_context(signed.clone());
    }
}

/// A server function. Who asks is checked inside each.
async fn function(State(state): State<AppState>, request: Request) -> Response {
    let path = request.uri().path();
    if !leptos::server_fn::axum::server_fn_paths().any(|(known, _)| known == path) {
        return (StatusCode::NOT_FOUND, "There is no such address.\n").into_response();
    }
    let context = context(&state, request.extensions().get::<Login>());
    let response = leptos_axum::handle_server_fns_with_context(context, request).await.into_response();
    if response.status() != StatusCode::INTERNAL_SERVER_ERROR {
        return response;
    }
    // Arguments that cannot be read fail before the function can set a status.
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = axum::body::to_bytes(body, BODY_MAX).await else { return parts.status.into_response() };
    if let Ok(failure) = serde_json::from_slice::<Failure>(&bytes)
        && let Ok(status) = StatusCode::from_u16(failure.status())
    {
        parts.status = status;
    }
    Response::from_parts(parts, Body::from(bytes))
}

/// An address that names nothing: the app draws its page for that.
async fn lost<V: IntoView + 'static>(
    state: AppState,
    request: Request<Body>,
    shell: impl Fn() -> V + Clone + Send + Sync + 'static,
) -> Response {
    let context = page_context(&state, request.extensions().get::<Login>());
    let handler = leptos_axum::render_app_async_with_context(context, shell);
    let mut response = handler(request).await;
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// The context of a page: also sets the policy that belongs to its nonce.
fn page_context(state: &AppState, login: Option<&Login>) -> impl Fn() + Clone + Send + Sync + 'static {
    let context = context(state, login);
    move || {
        context();
        if let (Some(nonce), Some(response)) = (leptos::nonce::use_nonce(), use_context::<ResponseOptions>())
            && let Ok(policy) = HeaderValue::from_str(&guard::page_policy(&nonce))
        {
            response.insert_header(header::CONTENT_SECURITY_POLICY, policy);
        }
    }
}

/// A page, with the content policy that belongs to its nonce.
async fn page<V: IntoView + 'static>(
    state: AppState,
    request: Request<Body>,
    pages: Vec<leptos_axum::AxumRouteListing>,
    shell: impl Fn() -> V + Clone + Send + Sync + 'static,
) -> Response {
    let login = request.extensions().get::<Login>();
    let path = request.uri().path();
    let open = path == "/signin" || path.starts_with("/setup/") || path.starts_with("/link/");
    if login.is_none() && !open {
        let next = request.uri().path_and_query().map_or(path, axum::http::uri::PathAndQuery::as_str);
        return Redirect::to(&format!("/signin?next={}", forms::encoded(next))).into_response();
    }
    let over = match link_problem(&state, request.uri().clone()).await {
        Ok(over) => over,
        Err(answer) => return answer,
    };
    let context = page_context(&state, login);
    let handler = leptos_axum::render_route_with_context(pages, context, shell);
    let mut response = handler(State(state), request).await;
    if over {
        *response.status_mut() = StatusCode::GONE;
    }
    response
}

/// Looks at a one-time link without using it. True: it is over and the page, which
/// names the problem in its address, says so. An answer that is sent instead: to there.
async fn link_problem(state: &AppState, at: Uri) -> Result<bool, Response> {
    let path = at.path();
    let Some((token, first)) = path
        .strip_prefix("/setup/")
        .map(|token| (token, true))
        .or_else(|| path.strip_prefix("/link/").map(|token| (token, false)))
    else {
        return Ok(false);
    };
    let found = match store::user::link_state(&state.store, &Token::presented(token)).await {
        Ok(found) => found,
        Err(error) => return Err(failed(error.into_failure())),
    };
    let problem = match found {
        LinkState::FirstAdmin if first => return Ok(false),
        LinkState::Password { .. } if !first => return Ok(false),
        LinkState::Used => "used",
        LinkState::Expired => "expired",
        LinkState::Unknown | LinkState::FirstAdmin | LinkState::Password { .. } => "unknown",
    };
    let named = format!("problem={problem}");
    if at.query() == Some(named.as_str()) {
        return Ok(true);
    }
    Err(Redirect::to(&format!("{path}?{named}")).into_response())
}

/// A failure outside pages and server functions.
pub fn failed(failure: Failure) -> Response {
    let status = StatusCode::from_u16(failure.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, format!("{failure}\n")).into_response()
}
