//! What was read last. While the server cannot be reached a page keeps showing it:
//! the side bar says since when the page is not live.

use domain::failure::Failure;
use leptos::prelude::*;

use crate::api::Answer;

/// The last good answer to one of a page's reads.
#[derive(Debug)]
pub struct Last<T: 'static>(StoredValue<Option<T>>);

impl<T> Clone for Last<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Last<T> {}

impl<T: Clone + Send + Sync + 'static> Last<T> {
    pub fn new() -> Self {
        Self(StoredValue::new(None))
    }

    /// `answer`, or what was read last where the server could not answer.
    pub fn or_last(self, answer: Answer<T>) -> Answer<T> {
        match answer {
            Ok(answer) => {
                let _ = self.0.try_set_value(Some(answer.clone()));
                Ok(answer)
            }
            Err(failed) if matches!(failed.0, Failure::Unavailable { .. }) => {
                self.0.try_get_value().flatten().ok_or(failed)
            }
            Err(failed) => Err(failed),
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Default for Last<T> {
    fn default() -> Self {
        Self::new()
    }
}
