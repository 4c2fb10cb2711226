//! The WASM entry: hydrate, nothing else.

use wasm_bindgen::prelude::wasm_bindgen;

/// Takes over the page that the server drew. Called by the script in the document.
#[wasm_bindgen]
pub fn hydrate() {
    // Without this a panic says no more than `unreachable`.
    std::panic::set_hook(Box::new(|panic| leptos::logging::error!("{panic}")));
    leptos::mount::hydrate_body(app::App);
}
