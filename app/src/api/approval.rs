//! Approvals: the inbox, one in full, deciding.

#![expect(clippy::too_many_arguments, reason = "an argument is a field of a form")]

use std::collections::BTreeMap;

use domain::{
    approval::{ApprovalCounts, ApprovalDetail, ApprovalRow},
    decision::Outcome,
    digest::ActionDigest,
    id::ApprovalId,
    text_enum::UnknownWord,
};
use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use super::Answer;

/// The tabs of the inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tab {
    #[default]
    Waiting,
    Decided,
    Expired,
    Cancelled,
    All,
}

impl Tab {
    pub const ALL: [Self; 5] = [Self::Waiting, Self::Decided, Self::Expired, Self::Cancelled, Self::All];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Decided => "decided",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::All => "all",
        }
    }

    pub const fn label(self) -> &'static str {
        match self {
            Self::Waiting => "Waiting",
            Self::Decided => "Decided",
            Self::Expired => "Expired",
            Self::Cancelled => "Cancelled",
            Self::All => "All",
        }
    }
}

impl std::str::FromStr for Tab {
    type Err = UnknownWord;
    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        Self::ALL
            .into_iter()
            .find(|tab| tab.as_str() == text)
            .ok_or_else(|| UnknownWord { word: text.to_owned(), of: "Tab" })
    }
}

/// A page of the inbox. Waiting ones come oldest first, all others newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalPage {
    pub rows: Vec<ApprovalRow>,
    pub counts: ApprovalCounts,
    /// Where the next page starts, if there is one.
    pub next: Option<String>,
}

/// Approvals the caller may read, 25 at a time.
#[server(endpoint = "approval/list", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn list_approvals(tab: Tab, after: Option<String>) -> Answer<ApprovalPage> {
    use super::desk;
    use domain::approval::ApprovalStatus::{Approved, Cancelled, Expired, Pending, Rejected};
    let caller = desk::caller(domain::user::Role::Viewer)?;
    let store = desk::store()?;
    let statuses: &[_] = match tab {
        Tab::Waiting => &[Pending],
        Tab::Decided => &[Approved, Rejected],
        Tab::Expired => &[Expired],
        Tab::Cancelled => &[Cancelled],
        Tab::All => &[Pending, Approved, Rejected, Expired, Cancelled],
    };
    let (rows, next) =
        store::approval::list(&store, &caller, statuses, after.as_deref()).await.map_err(desk::shown)?;
    let counts = store::approval::counts(&store, &caller).await.map_err(desk::shown)?;
    Ok(ApprovalPage { rows, counts, next })
}

/// One approval in full.
#[server(endpoint = "approval/read", input = leptos::server_fn::codec::GetUrl, output = super::Text)]
pub async fn read_approval(id: ApprovalId) -> Answer<ApprovalDetail> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Viewer)?;
    store::approval::read(&desk::store()?, &caller, id).await.map_err(desk::shown)
}

/// Decides an approval. `digest` is that of the action that was shown: any other is
/// refused. `stop` is `on` or absent. `edit` holds texts typed over the request's own,
/// by field; `picks` and `own` answer questions ([`domain::question::Filled`]); `grants`
/// are the suggestions ticked. `back` is where a plain form returns to: the approval's
/// own page, or its session where it was decided in Chat.
#[server(endpoint = "approval/resolve", output = super::Text)]
pub async fn resolve_approval(
    id: ApprovalId,
    digest: ActionDigest,
    outcome: Outcome,
    option: Option<String>,
    message: Option<String>,
    stop: Option<String>,
    #[server(default)] edit: BTreeMap<String, String>,
    #[server(default)] picks: BTreeMap<String, String>,
    #[server(default)] own: BTreeMap<String, String>,
    #[server(default)] grants: BTreeMap<String, String>,
    back: Option<String>,
) -> Answer<()> {
    use super::{desk, form};
    let caller = desk::caller(domain::user::Role::Approver)?;
    let own_page = format!("/approvals/{id}");
    let mut typed = vec![("id".to_owned(), id.to_string())];
    typed.extend(message.clone().map(|words| ("message".to_owned(), words)));
    typed.extend(stop.clone().map(|on| ("stop".to_owned(), on)));
    for (of, fields) in [("edit", &edit), ("picks", &picks), ("own", &own), ("grants", &grants)] {
        typed.extend(fields.iter().map(|(name, text)| (format!("{of}[{name}]"), text.clone())));
    }
    store::approval::resolve(
        &desk::store()?,
        &caller,
        store::approval::Resolve {
            approval: id,
            action_digest: digest,
            given: domain::approval::Given {
                outcome,
                option: option.filter(|o| !o.is_empty()),
                message: message.map(|m| m.trim().to_owned()).filter(|m| !m.is_empty()),
                stop: stop.is_some(),
                edit,
                picks,
                own,
                grants,
            },
        },
    )
    .await
    .map_err(|error| {
        form::keep(caller.id, typed);
        desk::shown(error)
    })?;
    // A refused plain form goes back to its page with the reason.
    leptos_axum::redirect(back.as_deref().filter(|b| b.starts_with("/chat/")).unwrap_or(&own_page));
    Ok(())
}

/// Gives an open approval 15 minutes more.
#[server(endpoint = "approval/extend", output = super::Text)]
pub async fn extend_approval(id: ApprovalId) -> Answer<()> {
    use super::desk;
    let caller = desk::caller(domain::user::Role::Approver)?;
    store::approval::extend(&desk::store()?, &caller, id).await.map_err(desk::shown)?;
    leptos_axum::redirect(&format!("/approvals/{id}"));
    Ok(())
}
