//! argon2id passwords, hashed off the async threads and at most two at a time: each
//! takes 19 MiB and some 20 ms on purpose.

use std::sync::LazyLock;

use argon2::{Argon2, PasswordHasher as _, PasswordVerifier as _, password_hash::phc::PasswordHash};
use tokio::sync::Semaphore;

static AT_ONCE: Semaphore = Semaphore::const_new(2);

/// Compared when there is no such account, so that the time tells nothing.
static NOBODY: LazyLock<Option<String>> = LazyLock::new(|| hash_now("nobody has this password"));

fn hash_now(password: &str) -> Option<String> {
    Argon2::default().hash_password(password.as_bytes()).ok().map(|h| h.to_string())
}

/// The argon2 string of a password; `None` where the machine fails to make one.
pub async fn hash(password: String) -> Option<String> {
    let _one = AT_ONCE.acquire().await.ok()?;
    tokio::task::spawn_blocking(move || hash_now(&password)).await.ok().flatten()
}

/// Whether the password fits. Without a stored hash it takes as long and does not.
pub async fn fits(password: String, stored: Option<String>) -> bool {
    let Ok(_one) = AT_ONCE.acquire().await else { return false };
    let checked = tokio::task::spawn_blocking(move || {
        let known = stored.is_some();
        let Some(text) = stored.or_else(|| NOBODY.clone()) else { return false };
        let Ok(hash) = PasswordHash::new(&text) else { return false };
        Argon2::default().verify_password(password.as_bytes(), &hash).is_ok() && known
    });
    checked.await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_fits_and_nobody_never_does() {
        let stored = hash("correct horse".into()).await;
        assert!(fits("correct horse".into(), stored.clone()).await);
        assert!(!fits("wrong horse".into(), stored).await);
        assert!(!fits("nobody has this password".into(), None).await);
    }
}
