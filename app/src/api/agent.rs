//! Agents: list, edit.

#![expect(clippy::too_many_arguments, reason = "an argument is a field of a form")]

use domain::{agent::AgentView, id::AgentId};
use leptos::prelude::*;

use super::Answer;

/// Every agent, by name.
#[server(endpoint = "agent/list", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn list_agents() -> Answer<Vec<AgentView>> {
    use super::desk;
    desk::caller(domain::user::Role::Viewer)?;
    store::agent::list(&desk::store()?).await.map_err(desk::shown)
}

/// Changes an agent. Takes effect with its next prompt. The last three are `on` or
/// absent, as checkboxes send them; `never_asks_confirmed` is needed for a mode that
/// never asks.
#[server(endpoint = "agent/edit", output = super::Text)]
pub async fn edit_agent(
    id: AgentId,
    name: String,
    folder: String,
    mode: String,
    hitl_timeout_s: i64,
    waits_for_continue: Option<String>,
    asks_everything: Option<String>,
    never_asks_confirmed: Option<String>,
) -> Answer<()> {
    use super::{desk, form};
    let caller = desk::caller(domain::user::Role::Admin)?;
    let typed = [
        ("id", Some(id.to_string())),
        ("name", Some(name.clone())),
        ("folder", Some(folder.clone())),
        ("mode", Some(mode.clone())),
        ("hitl_timeout_s", Some(hitl_timeout_s.to_string())),
        ("waits_for_continue", waits_for_continue.clone()),
        ("asks_everything", asks_everything.clone()),
        ("never_asks_confirmed", never_asks_confirmed.clone()),
    ];
    let edit = domain::agent::AgentEdit {
        name: name.trim().to_owned(),
        folder: folder.trim().to_owned(),
        mode,
        asks_everything: asks_everything.is_some(),
        never_asks_confirmed: never_asks_confirmed.is_some(),
        hitl_timeout_s,
        waits_for_continue: waits_for_continue.is_some(),
    };
    store::agent::edit(&desk::store()?, &caller, id, &edit).await.map_err(|error| {
        let typed = typed.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?)));
        form::keep(caller.id, typed.collect());
        desk::shown(error)
    })?;
    leptos_axum::redirect("/agents");
    Ok(())
}
