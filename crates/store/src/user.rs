//! People and their one-time links.

use domain::{
    failure::Failure,
    id::UserId,
    time::Timestamp,
    user::{Caller, Made, Role, UserRow},
};
use sqlx::PgConnection;

use crate::{Error, Result, Store, Token, Topic, audit, error::word};

/// Hours a link works.
pub const LINK_HOURS: i64 = 72;

/// What signing in needs of an account.
#[derive(Debug)]
pub struct Account {
    pub id: UserId,
    /// argon2 string; absent until the first link is used.
    pub password_hash: Option<String>,
    pub disabled: bool,
}

/// The account of that name, compared without case.
pub async fn account(store: &Store, name: &str) -> Result<Option<Account>> {
    let row = sqlx::query!(
        "select id, password_hash, disabled_at from users where lower(name) = lower($1)",
        name.trim(),
    )
    .fetch_optional(store.pool())
    .await?;
    Ok(row.map(|r| Account {
        id: UserId(r.id),
        password_hash: r.password_hash,
        disabled: r.disabled_at.is_some(),
    }))
}

/// Whether an admin exists who can sign in.
pub async fn has_admin(store: &Store) -> Result<bool> {
    Ok(sqlx::query_scalar!(
        r#"select exists (select from users
           where role = 'admin' and disabled_at is null and password_hash is not null) as "has!""#
    )
    .fetch_one(store.pool())
    .await?)
}

/// Everybody, by name; at most 500.
pub async fn list(store: &Store) -> Result<Vec<UserRow>> {
    let rows = sqlx::query!(
        r#"select u.id, u.name, u.role, u.disabled_at, u.password_hash is not null as "has_password!",
                  max(l.seen_at) as last_seen_at, u.created_at,
                  count(l.id) filter (where l.expires_at > app_now()) as "logins!"
           from users u left join login_sessions l on l.user_id = u.id
           group by u.id order by lower(u.name) limit 500"#
    )
    .fetch_all(store.pool())
    .await?;
    rows.into_iter()
        .map(|r| {
            Ok(UserRow {
                id: UserId(r.id),
                role: word(&r.role, "role", r.id)?,
                name: r.name,
                disabled_at: r.disabled_at.map(Timestamp::from),
                has_password: r.has_password,
                last_seen_at: r.last_seen_at.map(Timestamp::from),
                created_at: r.created_at.into(),
                logins: u32::try_from(r.logins).unwrap_or(u32::MAX),
            })
        })
        .collect()
}

fn name_taken(error: Error) -> Error {
    if error.constraint() == Some("users_name_key") {
        Failure::invalid("name", "Somebody has this name already. Choose another.").into()
    } else {
        error
    }
}

/// Adds a person. The link with which they set their password is kept for the admin
/// to read for a minute.
pub async fn add(store: &Store, caller: &Caller, name: &str, role: Role) -> Result<UserId> {
    let id = store.new_id();
    let mut tx = store.pool().begin().await?;
    sqlx::query!("insert into users (id, name, role) values ($1, $2, $3)", id, name, role.as_str())
        .execute(&mut *tx)
        .await
        .map_err(|e| name_taken(e.into()))?;
    let token = new_link(&mut tx, Some(UserId(id)), "password").await?;
    let what = format!("added {name} as {role}");
    audit::add(&mut tx, store, Some(caller.id), "user", id, &what, None).await?;
    tx.commit().await?;
    store.keep_made(
        caller.id,
        Made::Link { name: name.to_owned(), url: store.link_url(&token), hours: LINK_HOURS },
    );
    store.changes().bump(&[Topic::Users]);
    Ok(UserId(id))
}

/// Makes a new link for a person; older unused ones stop working.
pub async fn reset(store: &Store, caller: &Caller, id: UserId) -> Result<()> {
    let mut tx = store.pool().begin().await?;
    let name = sqlx::query_scalar!("select name from users where id = $1 for update", id.0)
        .fetch_optional(&mut *tx)
        .await?
        .ok_or_else(|| Failure::not_found("person"))?;
    let token = new_link(&mut tx, Some(id), "password").await?;
    audit::add(&mut tx, store, Some(caller.id), "user", id.0, "made a password link", None).await?;
    tx.commit().await?;
    store.keep_made(caller.id, Made::Link { name, url: store.link_url(&token), hours: LINK_HOURS });
    Ok(())
}

async fn new_link(tx: &mut PgConnection, user: Option<UserId>, purpose: &str) -> Result<Token> {
    let token = Token::random("");
    // An older link of the same purpose stops working, so only the newest is about.
    sqlx::query!(
        "delete from links where purpose = $2 and user_id is not distinct from $1 and used_at is null",
        user.map(|u| u.0),
        purpose,
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        "insert into links (token_hash, user_id, purpose, expires_at)
         values ($1, $2, $3, app_now() + make_interval(hours => $4))",
        token.hash(),
        user.map(|u| u.0),
        purpose,
        i32::try_from(LINK_HOURS).unwrap_or(72),
    )
    .execute(tx)
    .await?;
    Ok(token)
}

/// A new link for the first admin, printed in the terminal only. Older ones stop working.
pub async fn first_admin_link(store: &Store) -> Result<Token> {
    let mut tx = store.pool().begin().await?;
    let token = new_link(&mut tx, None, "first_admin").await?;
    tx.commit().await?;
    Ok(token)
}

/// A new password link for the only, or the named, admin: `countersign admin reset`.
pub async fn admin_reset(store: &Store, name: Option<&str>) -> Result<(String, Token)> {
    let mut tx = store.pool().begin().await?;
    let row = sqlx::query!(
        "select id, name from users where role = 'admin' and ($1::text is null or lower(name) = lower($1))
         order by created_at limit 1 for update",
        name,
    )
    .fetch_optional(&mut *tx)
    .await?
    .ok_or_else(|| Failure::not_found("admin"))?;
    sqlx::query!("update users set disabled_at = null where id = $1", row.id).execute(&mut *tx).await?;
    let token = new_link(&mut tx, Some(UserId(row.id)), "password").await?;
    audit::add(&mut tx, store, None, "user", row.id, "got a password link from the terminal", None).await?;
    tx.commit().await?;
    Ok((row.name, token))
}

/// Whether a one-time link works, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// For the first admin.
    FirstAdmin,
    /// For this person.
    Password {
        name: String,
    },
    Used,
    Expired,
    Unknown,
}

/// Looks at a link without using it.
pub async fn link_state(store: &Store, token: &Token) -> Result<LinkState> {
    let row = sqlx::query!(
        r#"select k.purpose, k.used_at, k.expires_at <= app_now() as "expired!", u.name as "name?"
           from links k left join users u on u.id = k.user_id where k.token_hash = $1"#,
        token.hash(),
    )
    .fetch_optional(store.pool())
    .await?;
    Ok(match row {
        None => LinkState::Unknown,
        Some(r) if r.used_at.is_some() => LinkState::Used,
        Some(r) if r.expired => LinkState::Expired,
        Some(r) => match r.name {
            Some(name) => LinkState::Password { name },
            None if r.purpose == "first_admin" => LinkState::FirstAdmin,
            None => LinkState::Unknown,
        },
    })
}

async fn take_link(tx: &mut PgConnection, token: &Token, purpose: &str) -> Result<Option<UserId>> {
    let row = sqlx::query!(
        "update links set used_at = app_now()
         where token_hash = $1 and purpose = $2 and used_at is null and expires_at > app_now()
         returning user_id",
        token.hash(),
        purpose,
    )
    .fetch_optional(tx)
    .await?
    .ok_or_else(|| Failure::Conflict {
        who: None,
        what: "This link was used or has expired. Ask for a new one.".into(),
    })?;
    Ok(row.user_id.map(UserId))
}

/// Uses the first admin's link: makes the account. Fails if an admin exists by now.
pub async fn become_first_admin(store: &Store, token: &Token, name: &str, hash: &str) -> Result<UserId> {
    let id = store.new_id();
    let mut tx = store.pool().begin().await?;
    // Two links used at the same moment must not make two first admins.
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('countersign.first_admin', 0))")
        .execute(&mut *tx)
        .await?;
    take_link(&mut tx, token, "first_admin").await?;
    let taken = sqlx::query_scalar!(
        r#"select exists (select from users where role = 'admin' and password_hash is not null) as "taken!""#
    )
    .fetch_one(&mut *tx)
    .await?;
    if taken {
        return Err(Failure::Conflict {
            who: None,
            what: "The first admin exists already. Sign in, or ask an admin for a link.".into(),
        }
        .into());
    }
    sqlx::query!(
        "insert into users (id, name, role, password_hash) values ($1, $2, 'admin', $3)",
        id,
        name,
        hash,
    )
    .execute(&mut *tx)
    .await
    .map_err(|e| name_taken(e.into()))?;
    audit::add(&mut tx, store, Some(UserId(id)), "user", id, "became the first admin", None).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Users]);
    Ok(UserId(id))
}

/// Uses a person's link: sets the password and ends every older sign-in.
pub async fn set_password(store: &Store, token: &Token, hash: &str) -> Result<UserId> {
    let mut tx = store.pool().begin().await?;
    let id = take_link(&mut tx, token, "password").await?.ok_or_else(|| Failure::not_found("person"))?;
    let set = sqlx::query!(
        "update users set password_hash = $2 where id = $1 and disabled_at is null",
        id.0,
        hash,
    )
    .execute(&mut *tx)
    .await?;
    if set.rows_affected() == 0 {
        return Err(Failure::Conflict {
            who: None,
            what: "This account is disabled. Ask an admin to enable it.".into(),
        }
        .into());
    }
    sqlx::query!("delete from login_sessions where user_id = $1", id.0).execute(&mut *tx).await?;
    audit::add(&mut tx, store, Some(id), "user", id.0, "set a password", None).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Users, Topic::Access]);
    Ok(id)
}

/// Refuses to leave the place without an admin who can sign in.
async fn keep_an_admin(tx: &mut PgConnection) -> Result<()> {
    let left = sqlx::query_scalar!(
        r#"select count(*) as "left!" from (select from users
           where role = 'admin' and disabled_at is null and password_hash is not null for update) a"#
    )
    .fetch_one(tx)
    .await?;
    if left == 0 {
        return Err(Failure::Conflict {
            who: None,
            what: "This is the last admin who can sign in. Make somebody else an admin first.".into(),
        }
        .into());
    }
    Ok(())
}

/// Gives a person another role. Their sign-ins end, so that the next one has a new id.
pub async fn set_role(store: &Store, caller: &Caller, id: UserId, role: Role) -> Result<()> {
    let mut tx = store.pool().begin().await?;
    // All admins are locked first, so that two demotions cannot pass each other.
    sqlx::query!("select from users where role = 'admin' order by id for update").execute(&mut *tx).await?;
    let changed = sqlx::query!(
        "update users set role = $2 where id = $1 and role <> $2 returning name",
        id.0,
        role.as_str(),
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(changed) = changed else {
        let exists =
            sqlx::query!("select id from users where id = $1", id.0).fetch_optional(&mut *tx).await?;
        return if exists.is_some() { Ok(()) } else { Err(Failure::not_found("person").into()) };
    };
    keep_an_admin(&mut tx).await?;
    sqlx::query!("delete from login_sessions where user_id = $1", id.0).execute(&mut *tx).await?;
    let what = format!("made {} {role}", changed.name);
    audit::add(&mut tx, store, Some(caller.id), "user", id.0, &what, None).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Users, Topic::Access]);
    Ok(())
}

/// Disables or enables an account.
pub async fn set_disabled(store: &Store, caller: &Caller, id: UserId, disabled: bool) -> Result<()> {
    let mut tx = store.pool().begin().await?;
    sqlx::query!("select from users where role = 'admin' order by id for update").execute(&mut *tx).await?;
    let name = sqlx::query_scalar!(
        "update users set disabled_at = case when $2 then coalesce(disabled_at, app_now()) end
         where id = $1 returning name",
        id.0,
        disabled,
    )
    .fetch_optional(&mut *tx)
    .await?
    .ok_or_else(|| Failure::not_found("person"))?;
    if disabled {
        keep_an_admin(&mut tx).await?;
        sqlx::query!("delete from login_sessions where user_id = $1", id.0).execute(&mut *tx).await?;
    }
    let what = format!("{} {name}", if disabled { "disabled" } else { "enabled" });
    audit::add(&mut tx, store, Some(caller.id), "user", id.0, &what, None).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Users, Topic::Access]);
    Ok(())
}
