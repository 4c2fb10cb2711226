//! Signing in, and the one-time links with which people set their password. Plain
//! forms that the server answers: nothing here needs WASM.

use domain::user::{PASSWORD_MAX, PASSWORD_MIN};
use leptos::prelude::*;
use leptos_meta::Title;
use leptos_router::hooks::{use_params_map, use_query_map};

use crate::{
    VERSION,
    components::icon::{Icon, icon},
};

/// The page around a form, without navigation.
fn page(heading: &'static str, lead: AnyView, rest: AnyView) -> impl IntoView {
    view! {
        <Title text=heading/>
        <div class="sign">
            <main>
                <p class="brand">{icon(Icon::Approvals, 16)}<span>"Countersign"</span></p>
                <div class="stack"><h1>{heading}</h1>{lead}</div>
                {rest}
            </main>
            <footer class="meta">{format!("Countersign {VERSION}")}</footer>
        </div>
    }
}

fn field_error(id: &'static str, text: String) -> impl IntoView {
    view! { <p class="field-error" id=id>{icon(Icon::Fail, 14)}<span>{text}</span></p> }
}

fn query(name: &'static str) -> Option<String> {
    use_query_map().with_untracked(|query| query.get(name))
}

/// `/signin`
#[component]
pub fn SignInPage() -> impl IntoView {
    let problem = query("problem").unwrap_or_default();
    let number = |name| query(name).and_then(|n| n.parse::<u32>().ok());
    let wrong = match problem.as_str() {
        "wrong" => Some(match number("left") {
            Some(1) => "Name or password is wrong. 1 try left before a wait of 15 min.".to_owned(),
            Some(left) => format!("Name or password is wrong. {left} tries left before a wait of 15 min."),
            None => "Name or password is wrong.".to_owned(),
        }),
        "wait" => {
            Some(format!("Too many tries. Wait {} min, then try again.", number("minutes").unwrap_or(15)))
        }
        "disabled" => Some("This account is switched off. An admin can switch it on again.".to_owned()),
        _ => None,
    };
    let insecure = (problem == "insecure").then(|| {
        view! {
            <div class="note note--danger" role="alert">
                {icon(Icon::Lock, 16)}
                <p>
                    <b>"Signing in cannot work at this address."</b>
                    " The page came over plain http from another machine, and a browser keeps the sign-in for https or this machine only. Put a TLS proxy in front, set "
                    <code>"PUBLIC_URL"</code>
                    " to its https address and start Countersign again."
                </p>
            </div>
        }
    });
    let bad = wrong.is_some();
    let next = query("next").filter(|next| next.starts_with('/') && !next.starts_with("//"));
    let form = view! {
        {insecure}
        <form class="form" method="post" action="/signin" aria-label="Sign in">
            {next.map(|next| view! { <input type="hidden" name="next" value=next/> })}
            <div class="field">
                <label for="name">"Name"</label>
                <input class="input" id="name" name="name" required autocomplete="username" autocapitalize="none" spellcheck="false"/>
            </div>
            <div class="field">
                <label for="password">"Password"</label>
                <input
                    class="input"
                    id="password"
                    name="password"
                    type="password"
                    required
                    maxlength=PASSWORD_MAX.to_string()
                    autocomplete="current-password"
                    aria-invalid=bad.then_some("true")
                    aria-describedby=bad.then_some("problem")
                />
                {wrong.map(|text| field_error("problem", text))}
            </div>
            <button type="submit" class="btn btn--primary btn--wide">"Sign in"</button>
        </form>
        <p class="meta">
            "First start? Open the one-time link that "<code>"cargo xtask serve"</code>
            " printed. It makes the first admin and works once."
        </p>
    };
    page("Sign in", ().into_any(), form.into_any())
}

/// What was wrong with a password that was set, by the field it belongs to.
fn problem_of(problem: &str) -> Option<(&'static str, String)> {
    Some(match problem {
        "name" => (
            "name",
            "Use 1 to 64 letters, digits, spaces and . - _ @ ' for the name. It may be taken.".into(),
        ),
        "password" => ("password", format!("Use {PASSWORD_MIN} to {PASSWORD_MAX} characters.")),
        "repeat" => ("repeat", "The two passwords differ.".into()),
        "used" => ("link", "This link was used. Each link works once.".into()),
        "expired" => ("link", "This link has expired.".into()),
        "unknown" => ("link", "This link is not known. It may be cut off, or a newer one was made since.".into()),
        "insecure" => (
            "link",
            "A password cannot be set over plain http from another machine. Start Countersign with PUBLIC_URL set to an https address.".into(),
        ),
        "server" => ("password", "The password could not be stored. Try again.".into()),
        _ => return None,
    })
}

fn password_fields(problem: Option<(&'static str, String)>) -> impl IntoView {
    let of = move |field: &str| problem.as_ref().filter(|(at, _)| *at == field).map(|(_, text)| text.clone());
    let one = |name: &'static str, label: &'static str, error: Option<String>, help: Option<String>| {
        let error_id = if name == "password" { "password-problem" } else { "repeat-problem" };
        view! {
            <div class="field">
                <label for=name>{label}</label>
                <input
                    class="input"
                    id=name
                    name=name
                    type="password"
                    required
                    minlength=PASSWORD_MIN.to_string()
                    maxlength=PASSWORD_MAX.to_string()
                    autocomplete="new-password"
                    aria-invalid=error.is_some().then_some("true")
                    aria-describedby=error.is_some().then_some(error_id)
                />
                {help.map(|help| view! { <p class="help">{help}</p> })}
                {error.map(|text| field_error(error_id, text))}
            </div>
        }
    };
    let password = of("password");
    let repeat = of("repeat");
    view! {
        {one("password", "Password", password, Some(format!("At least {PASSWORD_MIN} characters. A few words are fine.")))}
        {one("repeat", "Password again", repeat, None)}
    }
}

fn link_over(text: String, what_now: &'static str) -> AnyView {
    view! {
        <div class="note" role="alert">{icon(Icon::Expired, 16)}<p><b>{text}</b>" "{what_now}</p></div>
        <p><a class="btn" href="/signin" rel="external">"Sign in"</a></p>
    }
    .into_any()
}

/// `/setup/:token`: the first admin.
#[component]
pub fn SetupPage() -> impl IntoView {
    let token = use_params_map().with_untracked(|params| params.get("token")).unwrap_or_default();
    let problem = problem_of(&query("problem").unwrap_or_default());
    if let Some(("link", text)) = problem {
        let again =
            "Start Countersign again while there is no admin, or run countersign admin reset, for a new one.";
        return page("Set up Countersign", ().into_any(), link_over(text, again)).into_any();
    }
    let name_error = problem.as_ref().filter(|(at, _)| *at == "name").map(|(_, text)| text.clone());
    let bad = name_error.is_some();
    let lead =
        view! { <p>"You are the first admin. Choose a name and a password. This link works once."</p> };
    let form = view! {
        <form class="form" method="post" action=format!("/setup/{token}") aria-label="Set up">
            <div class="field">
                <label for="name">"Name"</label>
                <input
                    class="input"
                    id="name"
                    name="name"
                    required
                    maxlength="64"
                    autocomplete="username"
                    autocapitalize="none"
                    spellcheck="false"
                    aria-invalid=bad.then_some("true")
                    aria-describedby=bad.then_some("name-problem")
                />
                {name_error.map(|text| field_error("name-problem", text))}
            </div>
            {password_fields(problem)}
            <button type="submit" class="btn btn--primary btn--wide">"Create admin"</button>
        </form>
    };
    page("Set up Countersign", lead.into_any(), form.into_any()).into_any()
}

/// `/link/:token`: a person sets their password.
#[component]
pub fn LinkPage() -> impl IntoView {
    let token = use_params_map().with_untracked(|params| params.get("token")).unwrap_or_default();
    let problem = problem_of(&query("problem").unwrap_or_default());
    if let Some(("link", text)) = problem {
        return page("Set your password", ().into_any(), link_over(text, "Ask an admin for a new one."))
            .into_any();
    }
    let lead = view! { <p>"This link works once. Your old password ends when you set the new one."</p> };
    let form = view! {
        <form class="form" method="post" action=format!("/link/{token}") aria-label="Set your password">
            {password_fields(problem)}
            <button type="submit" class="btn btn--primary btn--wide">"Set password"</button>
        </form>
    };
    page("Set your password", lead.into_any(), form.into_any()).into_any()
}
