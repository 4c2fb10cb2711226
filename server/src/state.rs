//! What every route shares.

use std::sync::Arc;

use app::Site;
use axum::extract::FromRef;
use leptos::config::LeptosOptions;
use store::Store;
use tokio::sync::watch;

use crate::{auth::limit::Limiter, config::Reach, gateway::Links};

#[derive(Clone)]
pub struct AppState {
    pub store: Store,
    pub reach: Arc<Reach>,
    pub site: Site,
    pub links: Arc<Links>,
    pub limiter: Arc<Limiter>,
    /// Turns true when the server ends.
    pub ending: watch::Receiver<bool>,
    pub leptos: LeptosOptions,
}

impl FromRef<AppState> for LeptosOptions {
    fn from_ref(state: &AppState) -> Self {
        state.leptos.clone()
    }
}
