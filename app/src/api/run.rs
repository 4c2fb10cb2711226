//! Runs: cancel, continue.

use domain::id::RunId;
use leptos::prelude::*;

use super::Answer;

/// Cancels a run, its open approvals and its unsent decisions, and stops the harness.
#[server(endpoint = "run/cancel", output = super::Text)]
pub async fn cancel_run(run: RunId) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Approver)?;
    let session = store::run::cancel(&desk::store()?, &caller, run).await.map_err(desk::shown)?;
    leptos_axum::redirect(&format!("/chat/{session}"));
    Ok(())
}

/// Hands the decisions that wait for it to the same native execution.
#[server(endpoint = "run/continue", output = super::Text)]
pub async fn continue_run(run: RunId) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Approver)?;
    let session = store::run::continue_run(&desk::store()?, &caller, run).await.map_err(desk::shown)?;
    leptos_axum::redirect(&format!("/chat/{session}"));
    Ok(())
}
