//! Workers: list, make a token, revoke it.

use domain::{id::WorkerId, worker::WorkerView};
use leptos::prelude::*;

use super::Answer;

/// Every worker, by name.
#[server(endpoint = "worker/list", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn list_workers() -> Answer<Vec<WorkerView>> {
    use super::desk;
    desk::caller(domain::user::Role::Viewer)?;
    store::worker::list(&desk::store()?).await.map_err(desk::shown)
}

/// Makes a worker and its token, which [`super::place::read_made`] shows for a minute.
#[server(endpoint = "worker/create", output = super::Text)]
pub async fn create_worker(name: String) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Admin)?;
    let name = domain::user::check_name(&name).map_err(desk::refuse)?;
    store::worker::create(&desk::store()?, &caller, &name).await.map_err(desk::shown)?;
    leptos_axum::redirect("/agents#made");
    Ok(())
}

/// Revokes a worker's token and closes its link.
#[server(endpoint = "worker/revoke", output = super::Text)]
pub async fn revoke_worker(id: WorkerId) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Admin)?;
    store::worker::revoke(&desk::store()?, &caller, id).await.map_err(desk::shown)?;
    leptos_axum::redirect("/agents");
    Ok(())
}
