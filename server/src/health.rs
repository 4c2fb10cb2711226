//! `GET /health`: whether the server and its database answer. No session needed, and
//! nothing told that a stranger should not know.

use std::time::Duration;

use axum::{extract::State, http::StatusCode, response::IntoResponse};

use crate::state::AppState;

pub async fn health(State(state): State<AppState>) -> impl IntoResponse {
    let ask = store::approval::clock(&state.store);
    match tokio::time::timeout(Duration::from_secs(2), ask).await {
        Ok(Ok(_)) => (StatusCode::OK, "ok\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the database does not answer\n"),
    }
}
