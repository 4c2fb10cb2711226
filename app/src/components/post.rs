//! Forms of server functions: a plain post without script, a fetch after hydration.
//!
//! The same as `<ActionForm>` does, for all functions at once: what is sent is the form
//! as the browser encodes it, and the answer is nothing or a failure. A typed action
//! and form for each function would make up a third of the WASM.

use leptos::{
    ev::SubmitEvent,
    prelude::*,
    server::ServerActionError,
    server_fn::{ServerFn, error::ServerFnUrlError},
};

use crate::{
    api::{Answer, Failed},
    live::Live,
};

/// One server function as a page uses it. Copies share their signals.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    path: &'static str,
    value: RwSignal<Option<Answer<()>>>,
    version: RwSignal<usize>,
    busy: RwSignal<bool>,
}

impl Sending {
    /// A page's use of the server function `S`. The failure of a plain form is in the
    /// address it came back to; it is shown by that page only, not by those the reader
    /// goes on to.
    pub fn to<S: ServerFn<Error = Failed>>() -> Self {
        let failed = use_context::<ServerActionError>()
            .filter(|error| error.path() == S::PATH && !Live::here().hydrated.get_untracked())
            .map(|error| Err(ServerFnUrlError::<Failed>::decode_err(error.err())));
        Self {
            path: S::PATH,
            value: RwSignal::new(failed),
            version: RwSignal::new(0),
            busy: RwSignal::new(false),
        }
    }

    /// The last answer.
    pub fn value(self) -> RwSignal<Option<Answer<()>>> {
        self.value
    }

    /// How many answers there were.
    pub fn version(self) -> RwSignal<usize> {
        self.version
    }

    /// Sends the form of `event`, unless the last one is still on its way: a double
    /// click is one click.
    fn submit(self, event: &SubmitEvent) {
        event.prevent_default();
        let free = !self.busy.get_untracked();
        // Without a browser nothing is ever sent from here.
        #[cfg(not(feature = "hydrate"))]
        let _ = free;
        #[cfg(feature = "hydrate")]
        if free && let Some(fields) = browser::encoded(event) {
            self.busy.set(true);
            leptos::task::spawn_local(async move {
                let answer = browser::send(self.path, fields).await;
                let redirect = answer.as_ref().ok().cloned().flatten();
                // The page may be gone by now.
                let _ = self.busy.try_set(false);
                let _ = self.value.try_set(Some(answer.map(|_| ())));
                let _ = self.version.try_update(|n| *n += 1);
                if let Some(place) = redirect {
                    leptos::server_fn::redirect::call_redirect_hook(&place);
                }
            });
        }
    }
}

#[cfg(feature = "hydrate")]
mod browser {
    use http::Method;
    use leptos::{
        ev::SubmitEvent,
        form::form_data_from_event,
        server_fn::{
            client::{Client, browser::BrowserClient},
            error::FromServerFnError,
            request::{ClientReq, browser::BrowserRequest},
            response::ClientRes,
        },
        web_sys::UrlSearchParams,
    };

    use crate::api::{Answer, Failed};

    /// The fields of the form, with the button that was pressed.
    pub fn encoded(event: &SubmitEvent) -> Option<String> {
        let fields = form_data_from_event(event).ok()?;
        let fields = UrlSearchParams::new_with_str_sequence_sequence(&fields).ok()?;
        fields.to_string().as_string()
    }

    /// Posts the fields. Answers where to go on, if the server says so.
    pub async fn send(path: &str, fields: String) -> Answer<Option<String>> {
        let request = <BrowserRequest as ClientReq<Failed>>::try_new_req_text(
            path,
            "application/x-www-form-urlencoded",
            "application/json",
            fields,
            Method::POST,
        )?;
        let response = <BrowserClient as Client<Failed>>::send(request).await?;
        let status = ClientRes::<Failed>::status(&response);
        if status >= 400 {
            let body = ClientRes::<Failed>::try_into_bytes(response).await?;
            return Err(Failed::de(body));
        }
        let redirected = ClientRes::<Failed>::has_redirect(&response) || (300..400).contains(&status);
        Ok(redirected.then(|| ClientRes::<Failed>::location(&response)))
    }
}

/// A form that sends `to` the fields `inside` it. `label` names it for screen readers,
/// where its button alone does not.
pub fn post(to: Sending, class: &'static str, label: Option<String>, inside: AnyView) -> AnyView {
    post_from(to, None, class, label, inside)
}

/// The same with an id, for a button that stands outside the form.
pub fn post_from(
    to: Sending,
    id: Option<String>,
    class: &'static str,
    label: Option<String>,
    inside: AnyView,
) -> AnyView {
    view! {
        <form
            id=id
            action=to.path
            method="post"
            class=(!class.is_empty()).then_some(class)
            aria-label=label
            on:submit=move |event| to.submit(&event)
        >
            {inside}
        </form>
    }
    .into_any()
}
