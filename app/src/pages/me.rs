//! The caller's own page; on a phone also the way to what is not in the tab bar.

use domain::user::Role;
use leptos::prelude::*;
use leptos_meta::Title;

use crate::{
    VERSION,
    components::{
        empty::loading,
        frame::{Here, theme_choice},
        problem,
    },
};

/// `/me`
#[component]
pub fn MePage() -> impl IntoView {
    let place = Here::place();
    view! {
        <Title text="You"/>
        <div class="page">
            <header class="page-head"><h1>"You"</h1></header>
            <Transition fallback=loading>
                {move || Suspend::new(async move {
                    match place.await {
                        Ok(Some(place)) => {
                            let admin = place.caller.role.covers(Role::Admin);
                            view! {
                                <section class="section stack">
                                    <p>
                                        {format!("Signed in as {}. Role: {}. ", place.caller.name, place.caller.role.label())}
                                        {place.caller.role.meaning()}
                                    </p>
                                    {admin.then(|| view! { <p><a href="/users">"Users & tokens"</a></p> })}
                                </section>
                            }
                            .into_any()
                        }
                        Ok(None) => problem::instead(&domain::failure::Failure::Unauthenticated),
                        Err(failed) => problem::instead(&failed.0),
                    }
                })}
            </Transition>
            <section class="section stack">
                <h2>"Colours"</h2>
                {theme_choice()}
            </section>
            <section class="section stack">
                <h2>"Sign out"</h2>
                <div class="filters">
                    <form method="post" action="/signout">
                        <button type="submit" class="btn">"Sign out here"</button>
                    </form>
                    <form method="post" action="/signout-everywhere">
                        <button type="submit" class="btn btn--danger">"Sign out everywhere"</button>
                    </form>
                </div>
                <p class="meta">"Everywhere means every browser you are signed in with, this one too. Their open pages close at once."</p>
            </section>
            <p class="meta section">{format!("Countersign {VERSION}")}</p>
        </div>
    }
}
