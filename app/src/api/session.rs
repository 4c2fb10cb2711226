//! Sessions: list, read, start, write in.

use domain::{
    id::{AgentId, SessionId},
    session::{SessionDetail, SessionRow},
};
use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use super::Answer;

/// A page of sessions, newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionPage {
    pub rows: Vec<SessionRow>,
    /// Where the next page starts, if there is one.
    pub next: Option<String>,
}

/// Sessions the caller may read, newest first, fifty at a time. `search` is looked
/// for in titles.
#[server(endpoint = "session/list", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn list_sessions(search: String, after: Option<String>) -> Answer<SessionPage> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Viewer)?;
    let (rows, next) = store::session::list(&desk::store()?, &caller, &search, after.as_deref())
        .await
        .map_err(desk::shown)?;
    Ok(SessionPage { rows, next })
}

/// One session with its newest turns, or those before `before`.
#[server(endpoint = "session/read", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn read_session(id: SessionId, before: Option<String>) -> Answer<SessionDetail> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Viewer)?;
    store::session::read(&desk::store()?, &caller, id, before.as_deref()).await.map_err(desk::shown)
}

/// Starts a session with its first prompt and goes to it. `private` is `on` or absent,
/// as a checkbox sends it.
#[server(endpoint = "session/start", output = super::Text)]
pub async fn start_session(agent: AgentId, prompt: String, private: Option<String>) -> Answer<SessionId> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Approver)?;
    let id = store::session::start(&desk::store()?, &caller, agent, &prompt, private.is_some())
        .await
        .map_err(desk::shown)?;
    leptos_axum::redirect(&format!("/chat/{id}"));
    Ok(id)
}

/// Adds a prompt to a session. It waits while a run is live.
#[server(endpoint = "session/prompt", output = super::Text)]
pub async fn send_prompt(session: SessionId, prompt: String) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Approver)?;
    store::session::prompt(&desk::store()?, &caller, session, &prompt).await.map_err(desk::shown)?;
    leptos_axum::redirect(&format!("/chat/{session}"));
    Ok(())
}
