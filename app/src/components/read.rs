//! What a page reads: a resource that is drawn by the server, handed over with the
//! page, and read again when a topic changes.

use leptos::prelude::*;
use serde::{Serialize, de::DeserializeOwned};

use crate::api::Answer;

/// The answer to a read.
pub type Read<T> = Resource<Answer<T>>;

/// Reads with `fetch` whenever what `source` names changes.
pub fn read<T, S, F>(
    source: impl Fn() -> S + Send + Sync + 'static,
    fetch: impl Fn(S) -> F + Send + Sync + 'static,
) -> Read<T>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    S: PartialEq + Clone + Send + Sync + 'static,
    F: Future<Output = Answer<T>> + Send + 'static,
{
    Resource::new(source, fetch)
}
