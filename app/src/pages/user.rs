//! Users & tokens: people, their roles, their links. For admins.

use domain::user::{Role, UserRow};
use leptos::prelude::*;
use leptos_meta::Title;

use crate::{
    api::{
        place::read_made,
        user::{AddUser, ResetUser, SetDisabled, SetRole, list_users},
    },
    components::{
        empty::loading,
        frame::Here,
        icon::{Icon, icon},
        last::Last,
        made::made,
        plain::counted,
        post::{Sending, post},
        problem,
        read::read,
        status::{Status, status},
        time::{Shape, time},
    },
    live::Live,
};

#[derive(Clone, Copy)]
struct Acts {
    add: Sending,
    reset: Sending,
    role: Sending,
    disable: Sending,
}

/// `/users`
#[component]
pub fn UsersPage() -> impl IntoView {
    let live = Live::here();
    let place = Here::place();
    let acts = Acts {
        add: Sending::to::<AddUser>(),
        reset: Sending::to::<ResetUser>(),
        role: Sending::to::<SetRole>(),
        disable: Sending::to::<SetDisabled>(),
    };
    let last = Last::new();
    let users = read(
        move || {
            (
                live.users.get(),
                acts.add.version().get(),
                acts.reset.version().get(),
                acts.role.version().get(),
                acts.disable.version().get(),
            )
        },
        |_| list_users(),
    );
    let secret = read(
        move || (acts.add.version().get(), acts.reset.version().get()),
        move |_| async move { if Here::may(place, Role::Admin).await { read_made().await } else { Ok(None) } },
    );
    view! {
        <Title text="Users & tokens"/>
        <div class="page">
            <header class="page-head"><h1>"Users & tokens"</h1></header>
            {move || problem::note(problem::failure(acts.add.value().get()), "Nobody was added.")}
            {move || problem::note(problem::failure(acts.reset.value().get()), "No link was made.")}
            {move || problem::note(problem::failure(acts.role.value().get()), "The role was not changed.")}
            {move || problem::note(problem::failure(acts.disable.value().get()), "The account was not changed.")}
            <Transition>
                {move || Suspend::new(async move { secret.await.ok().flatten().map(made) })}
            </Transition>
            <Transition fallback=loading>
                {move || Suspend::new(async move {
                    match last.or_last(users.await) {
                        Ok(users) => whole(&users, acts),
                        Err(failed) => problem::instead(&failed.0),
                    }
                })}
            </Transition>
        </div>
    }
}

fn whole(users: &[UserRow], acts: Acts) -> AnyView {
    let rows = users.iter().map(|user| user_row(user, acts)).collect::<Vec<_>>();
    view! {
        <section class="section" aria-labelledby="people">
            <div class="section-head"><h2 id="people">"People"</h2></div>
            <div class="tablewrap">
                <table class="table table--cards">
                    <thead>
                        <tr>
                            <th scope="col">"Name"</th>
                            <th scope="col">"Role"</th>
                            <th scope="col">"Last seen"</th>
                            <th scope="col" class="r">"Signed in"</th>
                            <th scope="col">"State"</th>
                            <th scope="col"><span class="vh">"Change"</span></th>
                        </tr>
                    </thead>
                    <tbody>{rows}</tbody>
                </table>
            </div>
        </section>
        <section class="section stack narrow" aria-labelledby="add">
            <h2 id="add">"Add a person"</h2>
            <p>"You get a link that works once. Give it to them; they set their own password with it."</p>
            {post(acts.add, "inline-form", Some("Add a person".to_owned()), view! {
                <div class="field">
                    <label for="user-name">"Name"</label>
                    <input class="input" id="user-name" name="name" required maxlength="64" autocomplete="off"/>
                </div>
                <div class="field">
                    <label for="user-role">"Role"</label>
                    <select class="select" id="user-role" name="role">{role_options(Role::Approver)}</select>
                </div>
                <button type="submit" class="btn">{icon(Icon::Plus, 14)}"Add person"</button>
            }.into_any())}
            <ul class="meta">
                {Role::ALL.iter().map(|r| view! { <li>{format!("{}: {}", r.label(), r.meaning())}</li> }).collect::<Vec<_>>()}
            </ul>
        </section>
        <p class="section meta">"Tokens of workers are on the page "<a href="/agents">"Agents & workers"</a>"."</p>
    }
    .into_any()
}

fn role_options(chosen: Role) -> Vec<AnyView> {
    Role::ALL
        .iter()
        .map(|role| {
            view! { <option value=role.as_str() selected=*role == chosen>{role.label()}</option> }.into_any()
        })
        .collect()
}

fn user_row(user: &UserRow, acts: Acts) -> AnyView {
    let id = user.id.to_string();
    let name = user.name.clone();
    let disabled = user.disabled_at.is_some();
    let state = if disabled {
        Status { icon: Icon::Off, tone: "off", word: "Disabled" }
    } else if user.has_password {
        Status { icon: Icon::Ok, tone: "ok", word: "Active" }
    } else {
        Status { icon: Icon::Todo, tone: "off", word: "Link not used yet" }
    };
    let seen = match user.last_seen_at {
        Some(at) => time(at, Shape::Full),
        None => "never".into_any(),
    };
    let logins = counted(u64::from(user.logins), "browser", "browsers");
    view! {
        <tr>
            <td class="lead"><span class="name">{name.clone()}</span></td>
            <td data-th="Role">
                {post(acts.role, "row-form", Some(format!("Role of {name}")), view! {
                    <input type="hidden" name="id" value=id.clone()/>
                    <select class="select select--sm" name="role" aria-label=format!("Role of {name}")>{role_options(user.role)}</select>
                    <button type="submit" class="btn btn--sm">"Set role"</button>
                }.into_any())}
            </td>
            <td data-th="Last seen">{seen}</td>
            <td class="r" data-th="Signed in">{logins}</td>
            <td data-th="State">{status(state)}</td>
            <td class="end">
                <div class="row-form">
                    {post(acts.reset, "as-one", None, view! {
                        <input type="hidden" name="id" value=id.clone()/>
                        <button type="submit" class="btn btn--sm" aria-label=format!("Reset link for {name}")>"Reset link"</button>
                    }.into_any())}
                    {post(acts.disable, "as-one", None, view! {
                        <input type="hidden" name="id" value=id/>
                        <input type="hidden" name="disabled" value=if disabled { "false" } else { "true" }/>
                        <button
                            type="submit"
                            class=if disabled { "btn btn--sm" } else { "btn btn--sm btn--danger" }
                            aria-label=format!("{} {name}", if disabled { "Enable" } else { "Disable" })
                        >
                            {if disabled { "Enable" } else { "Disable" }}
                        </button>
                    }.into_any())}
                </div>
            </td>
        </tr>
    }
    .into_any()
}
