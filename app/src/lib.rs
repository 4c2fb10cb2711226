//! The Leptos app: the document, its routes, pages, components and live client.
//!
//! Every page is drawn whole on the server first ([`SsrMode::Async`]): it works
//! without WASM and has the right status. After hydration the same views follow
//! [`live`]: a topic changes, the resources that name it are read again, and the
//! views are rebuilt in place, so what a person typed stays.
//!
//! What must hold for hydration: the first render depends only on the address, the
//! request's data and resources. Clocks, zones and storage come after it, through
//! [`live::Live::hydrated`].

// Views are nested types; the layout of the deepest pages goes beyond the default of 128.
#![recursion_limit = "512"]
pub mod api;
pub mod browser;
pub mod components;
pub mod live;
pub mod pages;

use leptos::{nonce::use_nonce, prelude::*, server::ServerActionError};
use leptos_meta::{MetaTags, Title, provide_meta_context};
use leptos_router::{
    SsrMode,
    components::{ParentRoute, Route, Router, Routes},
    path,
};

use components::frame::{Frame, Theme};
use pages::{
    agent::AgentsPage,
    approval::{ApprovalPage, InboxPage},
    chat::{ChatFrame, NewSession, SessionPage},
    lost::NotFound,
    me::MePage,
    sign::{LinkPage, SetupPage, SignInPage},
    user::UsersPage,
};

/// What the server tells the document: addresses of the built files, with hashes of
/// their content in the name, and the version. `js` without a value: no hydration.
#[derive(Clone, Debug, Default)]
pub struct Site {
    pub css: String,
    pub js: Option<String>,
    pub wasm: Option<String>,
    pub version: String,
}

/// The version, for pages: the same on both sides, since both are built together.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The whole document.
pub fn shell(site: Site) -> impl IntoView {
    let nonce = use_nonce();
    let theme = Theme::of_request().attribute();
    let hydration = site.js.zip(site.wasm).map(|(js, wasm)| {
        let script = format!(
            "import init, {{ hydrate }} from {js:?}; init({{ module_or_path: {wasm:?} }}).then(() => hydrate());"
        );
        view! {
            <link rel="modulepreload" href=js nonce=nonce.clone()/>
            <link rel="preload" href=wasm r#as="fetch" r#type="application/wasm" crossorigin="anonymous"/>
            <script type="module" nonce=nonce>{script}</script>
        }
    });
    view! {
        <!DOCTYPE html>
        <html lang="en" data-theme=theme>
            <head>
                <meta charset="utf-8"/>
                <meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover"/>
                <meta name="color-scheme" content="light dark"/>
                <link rel="icon" href="data:,"/>
                <link rel="stylesheet" href=site.css/>
                {hydration}
                <MetaTags/>
            </head>
            <body>
                <App/>
            </body>
        </html>
    }
}

/// The app: contexts, routes. `/` is the server's: it sends people to Chat.
#[component]
pub fn App() -> impl IntoView {
    provide_meta_context();
    provide_form_error();
    // The server writes the title after the page's owner may be gone: what it reads
    // must not live in the owner's arena.
    let waiting = ArcRwSignal::new(0);
    let live = live::Live::counting(&waiting);
    provide_context(live);
    live.start();

    let formatter = move |text: String| match waiting.get() {
        0 => format!("{text} · Countersign"),
        n => format!("({n}) {text} · Countersign"),
    };

    view! {
        <Title formatter/>
        <Router>
            <Routes fallback=NotFound>
                <Route path=path!("/signin") view=SignInPage ssr=SsrMode::Async/>
                <Route path=path!("/setup/:token") view=SetupPage ssr=SsrMode::Async/>
                <Route path=path!("/link/:token") view=LinkPage ssr=SsrMode::Async/>
                <ParentRoute path=path!("") view=Frame ssr=SsrMode::Async>
                    <ParentRoute path=path!("/chat") view=ChatFrame ssr=SsrMode::Async>
                        <Route path=path!("") view=NewSession ssr=SsrMode::Async/>
                        <Route path=path!(":id") view=SessionPage ssr=SsrMode::Async/>
                    </ParentRoute>
                    <Route path=path!("/approvals") view=InboxPage ssr=SsrMode::Async/>
                    <Route path=path!("/approvals/:id") view=ApprovalPage ssr=SsrMode::Async/>
                    <Route path=path!("/agents") view=AgentsPage ssr=SsrMode::Async/>
                    <Route path=path!("/users") view=UsersPage ssr=SsrMode::Async/>
                    <Route path=path!("/me") view=MePage ssr=SsrMode::Async/>
                </ParentRoute>
            </Routes>
        </Router>
    }
}

/// A plain form's failure comes back in the query; server actions find it in the
/// context. Both sides read the same address, so both draw the same first page.
fn provide_form_error() {
    #[cfg(feature = "ssr")]
    let url = use_context::<leptos_router::location::RequestUrl>().and_then(|url| url.parse().ok());
    #[cfg(not(feature = "ssr"))]
    let url = {
        use leptos_router::location::{BrowserUrl, LocationProvider};
        BrowserUrl::current().ok()
    };
    if let Some(url) = url {
        let query = url.search_params();
        if let (Some(path), Some(error)) = (query.get_str("__path"), query.get_str("__err")) {
            provide_context(ServerActionError::new(path, error));
        }
    }
}
