//! A secret that was just made, shown once.

use domain::user::Made;
use leptos::prelude::*;

use super::{
    action::copy_button,
    icon::{Icon, icon},
    plain::counted,
};

/// The block under the button that made it.
pub fn made(made: Made) -> AnyView {
    match made {
        Made::Token { name, token, server } => {
            let command = format!("countersign-worker run --server {server} --token-file token.txt");
            view! {
                <section class="stack made" id="made" aria-label="New worker token">
                    <h2>{format!("Token of {name}")}</h2>
                    <p>"It is shown for a minute, to you only, and then never again. It can link a worker and nothing else."</p>
                    {secret("Token", "put this into a file named token.txt", token)}
                    <p class="meta">
                        "Make the file on the other machine so that only its owner reads it: "
                        <code>"install -m 600 /dev/stdin token.txt"</code>
                        ", paste the token, press Enter, then Ctrl D."
                    </p>
                    {secret("Shell", "then run this on the other machine", command)}
                </section>
            }
            .into_any()
        }
        Made::Link { name, url, hours } => {
            let hours = counted(u64::try_from(hours).unwrap_or(0), "hour", "hours");
            view! {
                <section class="stack made" id="made" aria-label="New link">
                    <h2>{format!("Link for {name}")}</h2>
                    <p>{format!("Give it to {name} yourself. It works once, for {hours}, and is shown here for a minute.")}</p>
                    {secret("Link", "sets the password", url)}
                </section>
            }
            .into_any()
        }
    }
}

fn secret(what: &'static str, say: &'static str, text: String) -> impl IntoView {
    view! {
        <div class="action">
            <div class="action-head">
                {icon(Icon::Lock, 14)}<b>{what}</b><span>{say}</span>
                <span class="acts">{copy_button(text.clone())}</span>
            </div>
            <pre class="code"><span><span>{text}</span></span></pre>
        </div>
    }
}
