//! Signed-in browsers. A cookie holds a token; only its hash is stored.

use domain::{
    id::{LoginId, UserId},
    user::{Caller, Role},
};

use crate::{Result, Store, Token, Topic, error::word};

/// Days a sign-in lasts without being used.
pub const IDLE_DAYS: i32 = 14;

/// A sign-in that is good now.
#[derive(Clone, Debug)]
pub struct Login {
    pub id: LoginId,
    pub caller: Caller,
}

/// Who presents this token, if it is good: not expired, not signed out, the account
/// not disabled. Using it keeps it alive (written at most once a minute).
pub async fn find(store: &Store, token: &Token) -> Result<Option<Login>> {
    let Some(row) = sqlx::query!(
        r#"select l.id, l.user_id, u.name, u.role, l.seen_at < app_now() - interval '1 minute' as "stale!"
           from login_sessions l join users u on u.id = l.user_id
           where l.token_hash = $1 and l.expires_at > app_now() and u.disabled_at is null"#,
        token.hash(),
    )
    .fetch_optional(store.pool())
    .await?
    else {
        return Ok(None);
    };
    if row.stale {
        // People read on also where the database takes no changes for a while.
        let noted = sqlx::query!(
            "update login_sessions set seen_at = app_now(), expires_at = app_now() + make_interval(days => $2)
             where id = $1",
            row.id,
            IDLE_DAYS,
        )
        .execute(store.pool())
        .await;
        if let Err(error) = noted {
            tracing::debug!(%error, "a sign-in could not be noted as used");
        }
    }
    Ok(Some(Login {
        id: LoginId(row.id),
        caller: Caller {
            id: UserId(row.user_id),
            name: row.name,
            role: word(&row.role, "role", row.user_id)?,
        },
    }))
}

/// Signs a person in: a new id and token each time. Old expired sign-ins of theirs go.
pub async fn create(store: &Store, user: UserId) -> Result<(LoginId, Token)> {
    let token = Token::random("");
    let id = store.new_id();
    let mut tx = store.pool().begin().await?;
    sqlx::query!("delete from login_sessions where user_id = $1 and expires_at <= app_now()", user.0)
        .execute(&mut *tx)
        .await?;
    sqlx::query!(
        "insert into login_sessions (id, token_hash, user_id, expires_at)
         values ($1, $2, $3, app_now() + make_interval(days => $4))",
        id,
        token.hash(),
        user.0,
        IDLE_DAYS,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Users]);
    Ok((LoginId(id), token))
}

/// Whether a sign-in is still good: for sockets that stay open.
pub async fn is_good(store: &Store, login: LoginId) -> Result<Option<Role>> {
    let row = sqlx::query!(
        "select u.id, u.role from login_sessions l join users u on u.id = l.user_id
         where l.id = $1 and l.expires_at > app_now() and u.disabled_at is null",
        login.0,
    )
    .fetch_optional(store.pool())
    .await?;
    row.map(|r| word(&r.role, "role", r.id)).transpose()
}

/// Signs one browser out.
pub async fn end(store: &Store, login: LoginId) -> Result<()> {
    sqlx::query!("delete from login_sessions where id = $1", login.0).execute(store.pool()).await?;
    store.changes().bump(&[Topic::Access, Topic::Users]);
    Ok(())
}

/// Signs every browser of a person out.
pub async fn end_all(store: &Store, user: UserId) -> Result<()> {
    sqlx::query!("delete from login_sessions where user_id = $1", user.0).execute(store.pool()).await?;
    store.changes().bump(&[Topic::Access, Topic::Users]);
    Ok(())
}
