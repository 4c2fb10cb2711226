//! Work without a caller: expiry and silent workers. Each is a reconciler: no input,
//! idempotent, woken by a change and by a timer, safe on several servers at once.

use std::time::Duration;

use store::{Store, Topic};
use tokio::sync::watch;

/// The longest pause between two looks for expired approvals.
const LOOK: Duration = Duration::from_secs(2);

/// Expires approvals when they are due.
pub async fn expire(store: Store, mut ending: watch::Receiver<bool>) {
    let mut changes = store.changes().subscribe();
    loop {
        let wait = match round(&store).await {
            Ok(Some(ms)) => Duration::from_millis(u64::try_from(ms).unwrap_or(0).max(20)).min(LOOK),
            Ok(None) => LOOK,
            Err(error) => {
                tracing::warn!(%error, "expiry could not be checked; trying again");
                LOOK
            }
        };
        let seen = changes.borrow_and_update()[Topic::Approvals as usize];
        let changed = async {
            while changes.changed().await.is_ok() {
                if changes.borrow_and_update()[Topic::Approvals as usize] != seen {
                    return;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            // A new approval may be due before the one waited for.
            () = changed => tokio::time::sleep(Duration::from_millis(20)).await,
            _ = ending.changed() => return,
        }
    }
}

async fn round(store: &Store) -> store::Result<Option<i64>> {
    // A full batch means there may be more.
    while store::approval::expire_due(store).await? == 100 {}
    store::approval::next_expiry_ms(store).await
}

/// Marks workers not linked whose server went away without saying so.
pub async fn unlink_silent(store: Store, mut ending: watch::Receiver<bool>) {
    loop {
        if let Err(error) = store::worker::unlink_silent(&store).await {
            tracing::debug!(%error, "silent workers could not be checked; trying again");
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(15)) => {}
            _ = ending.changed() => return,
        }
    }
}
