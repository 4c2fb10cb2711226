//! People: list, add, role, disable, links, sign out everywhere.

use domain::{
    id::UserId,
    user::{Role, UserRow},
};
use leptos::prelude::*;

use super::Answer;

/// Everybody, by name.
#[server(endpoint = "user/list", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn list_users() -> Answer<Vec<UserRow>> {
    use super::desk;
    desk::caller(Role::Admin)?;
    store::user::list(&desk::store()?).await.map_err(desk::shown)
}

/// Adds a person and makes the link with which they set their password;
/// [`super::place::read_made`] shows it for a minute.
#[server(endpoint = "user/add", output = super::Text)]
pub async fn add_user(name: String, role: Role) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(Role::Admin)?;
    let name = domain::user::check_name(&name).map_err(desk::refuse)?;
    store::user::add(&desk::store()?, &caller, &name, role).await.map_err(desk::shown)?;
    leptos_axum::redirect("/users#made");
    Ok(())
}

/// Makes a new link for a person. Their old password ends when it is used.
#[server(endpoint = "user/reset", output = super::Text)]
pub async fn reset_user(id: UserId) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(Role::Admin)?;
    store::user::reset(&desk::store()?, &caller, id).await.map_err(desk::shown)?;
    leptos_axum::redirect("/users#made");
    Ok(())
}

/// Gives a person another role. Their sign-ins end, so the next one has a new id. The last admin keeps the role.
#[server(endpoint = "user/role", output = super::Text)]
pub async fn set_role(id: UserId, role: Role) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(Role::Admin)?;
    store::user::set_role(&desk::store()?, &caller, id, role).await.map_err(desk::shown)?;
    leptos_axum::redirect("/users");
    Ok(())
}

/// Disables or enables an account. Disabling ends every sign-in at once.
#[server(endpoint = "user/disable", output = super::Text)]
pub async fn set_disabled(id: UserId, disabled: bool) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(Role::Admin)?;
    store::user::set_disabled(&desk::store()?, &caller, id, disabled).await.map_err(desk::shown)?;
    leptos_axum::redirect("/users");
    Ok(())
}
