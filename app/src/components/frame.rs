//! The frame of every signed-in page: side bar, tab bar, the live mark, announcements.

use domain::{approval::ApprovalCounts, id::ApprovalId, user::Role};
use leptos::prelude::*;
use leptos_router::{components::Outlet, hooks::use_location};

use super::{
    icon::{Icon, icon},
    last::Last,
    read::{Read, read},
};
use crate::{
    api::{
        Answer,
        place::{Place, read_place},
    },
    browser,
    components::time::{Shape, time},
    live::{Link, Live},
};

/// Who is signed in and what waits, for every page.
#[derive(Clone, Copy)]
pub struct Here(pub Read<Option<Place>>);

impl Here {
    /// The resource the frame provides.
    pub fn place() -> Read<Option<Place>> {
        let make = || Self(read(|| (), |()| read_place()));
        use_context::<Self>().unwrap_or_else(make).0
    }

    /// Whether the caller's role covers `role`, as far as is known.
    pub async fn may(place: Read<Option<Place>>, role: Role) -> bool {
        matches!(place.await, Ok(Some(place)) if place.caller.role.covers(role))
    }
}

/// The colours a person chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    Auto,
    Light,
    Dark,
}

impl Theme {
    const ALL: [Self; 3] = [Self::Auto, Self::Light, Self::Dark];

    const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Auto => "As the system",
            Self::Light => "Light",
            Self::Dark => "Dark",
        }
    }

    const fn icon(self) -> Icon {
        match self {
            Self::Auto => Icon::Auto,
            Self::Light => Icon::Sun,
            Self::Dark => Icon::Moon,
        }
    }

    fn of(word: &str) -> Self {
        match word {
            "light" => Self::Light,
            "dark" => Self::Dark,
            _ => Self::Auto,
        }
    }

    /// The value of `data-theme`; none follows the system.
    pub fn attribute(self) -> Option<&'static str> {
        (self != Self::Auto).then(|| self.word())
    }

    /// From the cookie `theme` on the server, from the document in the browser: the
    /// server wrote the one from the other.
    pub fn of_request() -> Self {
        #[cfg(feature = "ssr")]
        let word = use_context::<http::request::Parts>().and_then(|parts| {
            parts
                .headers
                .get_all(http::header::COOKIE)
                .iter()
                .filter_map(|line| line.to_str().ok())
                .flat_map(|line| line.split(';'))
                .find_map(|pair| pair.trim().strip_prefix("theme=").map(str::to_owned))
        });
        #[cfg(not(feature = "ssr"))]
        let word = browser::theme();
        Self::of(&word.unwrap_or_default())
    }
}

/// Buttons of one form: each posts its theme without script and switches at once with.
pub fn theme_choice() -> impl IntoView {
    let chosen = RwSignal::new(Theme::of_request());
    let buttons = Theme::ALL
        .map(|theme| {
            view! {
                <button
                    type="submit"
                    name="theme"
                    value=theme.word()
                    title=theme.label()
                    aria-pressed=move || if chosen.get() == theme { "true" } else { "false" }
                    on:click=move |ev| {
                        ev.prevent_default();
                        browser::set_theme(theme.word());
                        chosen.set(theme);
                    }
                >
                    {icon(theme.icon(), 14)}
                    <span class="vh">{theme.label()}</span>
                </button>
            }
        })
        .into_iter()
        .collect::<Vec<_>>();
    view! {
        <form class="theme" method="post" action="/theme">
            <div class="seg" role="group" aria-label="Colours">{buttons}</div>
        </form>
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Spot {
    Chat,
    Approvals,
    Agents,
    Users,
    Me,
}

impl Spot {
    const fn href(self) -> &'static str {
        match self {
            Self::Chat => "/chat",
            Self::Approvals => "/approvals",
            Self::Agents => "/agents",
            Self::Users => "/users",
            Self::Me => "/me",
        }
    }

    fn holds(self, path: &str) -> bool {
        path.strip_prefix(self.href()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// A link of the navigation. `holds` are the places it stands for.
fn place_link(
    path: Memo<String>,
    to: Spot,
    holds: &'static [Spot],
    shape: Icon,
    label: &'static str,
    waiting: u64,
) -> AnyView {
    view! {
        <a
            href=to.href()
            aria-current=move || path.with(|p| holds.iter().any(|s| s.holds(p))).then_some("page")
        >
            {icon(shape, 16)}
            <span>{label}</span>
            {(waiting > 0)
                .then(|| view! { <span class="count count--wait">{waiting}<span class="vh">" waiting"</span></span> })}
        </a>
    }
    .into_any()
}

/// The side bar, rail and tab bar around a page.
#[component]
pub fn Frame() -> impl IntoView {
    let live = Live::here();
    let last = Last::new();
    let place = read(move || live.approvals.get(), move |_| async move { last.or_last(read_place().await) });
    provide_context(Here(place));
    let location = use_location();
    let path = Memo::new(move |_| location.pathname.get());
    Effect::new(move |_| {
        if let Some(Ok(Some(_))) = place.get() {
            live.connect();
        }
    });
    announce_new(live);

    // Pages that are one task have no tab bar on a phone; lists and tasks scroll inside.
    let class = move || {
        path.with(|p| {
            let task = |of: &str| p.strip_prefix(of).is_some_and(|rest| rest.len() > 1);
            if task("/chat") || task("/approvals") {
                "app app--fixed app--task"
            } else if Spot::Chat.holds(p) || Spot::Approvals.holds(p) {
                "app app--fixed"
            } else {
                "app"
            }
        })
    };
    let read = move |place: Answer<Option<Place>>| {
        let place = place.ok().flatten();
        live.waiting.set(place.as_ref().map_or(0, |p| p.counts.pending));
        place
    };

    view! {
        <a class="skip" href="#main" rel="external">"Skip to content"</a>
        <div class=class>
            <header class="side">
                <a class="brand" href="/chat">{icon(Icon::Approvals, 16)}<span>"Countersign"</span></a>
                <Transition>
                    {move || Suspend::new(async move { side_links(read(place.await), path) })}
                </Transition>
                <div class="side-foot">
                    {live_mark(live)}
                    {theme_choice()}
                    <Transition>
                        {move || Suspend::new(async move { me(place.await.ok().flatten()) })}
                    </Transition>
                </div>
            </header>
            <main class="main" id="main" tabindex="-1">
                <Outlet/>
            </main>
            <Transition>
                {move || Suspend::new(async move { tab_bar(place.await.ok().flatten(), path) })}
            </Transition>
        </div>
        <p class="vh" role="status" aria-live="polite">{move || live.news.get()}</p>
    }
}

fn side_links(place: Option<Place>, path: Memo<String>) -> AnyView {
    let counts = place.as_ref().map_or_else(ApprovalCounts::default, |p| p.counts);
    let admin = place.as_ref().is_some_and(|p| p.caller.role.covers(Role::Admin));
    view! {
        <nav class="nav" aria-label="Main">
            {place_link(path, Spot::Chat, &[Spot::Chat], Icon::Chat, "Chat", 0)}
            {place_link(path, Spot::Approvals, &[Spot::Approvals], Icon::Approvals, "Approvals", counts.pending)}
        </nav>
        <nav class="nav" aria-label="Administration">
            {place_link(path, Spot::Agents, &[Spot::Agents], Icon::Agents, "Agents & workers", 0)}
            {admin.then(|| place_link(path, Spot::Users, &[Spot::Users], Icon::Users, "Users & tokens", 0))}
        </nav>
    }
    .into_any()
}

fn tab_bar(place: Option<Place>, path: Memo<String>) -> AnyView {
    let counts = place.map_or_else(ApprovalCounts::default, |p| p.counts);
    view! {
        <nav class="tabbar" aria-label="Places">
            {place_link(path, Spot::Chat, &[Spot::Chat], Icon::Chat, "Chat", 0)}
            {place_link(path, Spot::Approvals, &[Spot::Approvals], Icon::Approvals, "Approvals", counts.pending)}
            {place_link(path, Spot::Agents, &[Spot::Agents], Icon::Agents, "Agents", 0)}
            {place_link(path, Spot::Me, &[Spot::Me, Spot::Users], Icon::More, "More", 0)}
        </nav>
    }
    .into_any()
}

fn me(place: Option<Place>) -> AnyView {
    match place {
        Some(place) => view! {
            <div class="me">
                <a href="/me" title="You">
                    {icon(Icon::Users, 16)}
                    <span><b>{place.caller.name.clone()}</b>{place.caller.role.label()}</span>
                </a>
                {sign_out()}
            </div>
        }
        .into_any(),
        None => view! { <div class="me"><a href="/signin" rel="external">"Sign in"</a></div> }.into_any(),
    }
}

fn sign_out() -> impl IntoView {
    view! {
        <form method="post" action="/signout">
            <button type="submit" class="btn btn--quiet btn--icon btn--sm" aria-label="Sign out" title="Sign out">
                {icon(Icon::Out, 16)}
            </button>
        </form>
    }
}

fn live_mark(live: Live) -> impl IntoView {
    let shape = move || icon(if live.link.get() == Link::Live { Icon::Linked } else { Icon::Offline }, 14);
    view! {
        <p class="live">
            {shape}
            <span>
                {move || match live.link.get() {
                    Link::Drawn => "Not live".into_any(),
                    Link::Live => "Live".into_any(),
                    Link::Lost(since) => {
                        view! { "Not live since "{time(since, Shape::Short)}". Reconnecting." }.into_any()
                    }
                }}
            </span>
        </p>
    }
}

/// Says once, politely, that a request has come, with its tool and first words. It
/// takes no focus and moves nothing.
fn announce_new(live: Live) {
    let known: StoredValue<Option<Vec<ApprovalId>>> = StoredValue::new(None);
    Effect::new(move |_| {
        live.approvals.track();
        leptos::task::spawn_local(async move {
            let Ok(page) =
                crate::api::approval::list_approvals(crate::api::approval::Tab::Waiting, None).await
            else {
                return;
            };
            let news = known.try_with_value(|known| {
                let known = known.as_ref()?;
                let new = page.rows.iter().filter(|row| !known.contains(&row.id)).collect::<Vec<_>>();
                Some(match new.as_slice() {
                    [] => return None,
                    [row] => format!("New request: {}, {}. From {}.", row.tool, row.title, row.agent),
                    many => format!("{} new requests. {} wait in all.", many.len(), page.counts.pending),
                })
            });
            known.try_update_value(|known| *known = Some(page.rows.iter().map(|row| row.id).collect()));
            if let Some(Some(news)) = news {
                live.news.set(news);
            }
        });
    });
}
