//! Workers, their tokens and their links.

use domain::{
    failure::Failure,
    id::WorkerId,
    time::Timestamp,
    user::{Caller, Made},
    worker::{HarnessOffer, WorkerView},
};
use sqlx::types::Json;
use uuid::Uuid;

use crate::{Error, Result, Store, Token, Topic, agent, audit, run};

/// Seconds without a heartbeat after which another data folder may take over.
pub const LEASE_S: f64 = 45.0;

/// Every worker, by name; at most 200.
pub async fn list(store: &Store) -> Result<Vec<WorkerView>> {
    let rows = sqlx::query!(
        r#"select id, name, linked, link_changed_at, version, environment, created_at,
                  offers as "offers: Json<Vec<HarnessOffer>>", revoked_at is not null as "revoked!",
                  (extract(epoch from app_now() - heartbeat_at) * 1000)::bigint as heartbeat_ms,
                  (select count(*) from approvals p where p.worker_id = w.id and p.status = 'pending') as "waiting!"
           from workers w order by revoked_at is not null, lower(name) limit 200"#
    )
    .fetch_all(store.pool())
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| WorkerView {
            id: WorkerId(r.id),
            name: r.name,
            linked: r.linked,
            since: r.link_changed_at.map(Timestamp::from),
            heartbeat_ms: r.heartbeat_ms,
            version: r.version,
            environment: r.environment,
            offers: r.offers.0,
            waiting: u32::try_from(r.waiting).unwrap_or(u32::MAX),
            revoked: r.revoked,
            created_at: r.created_at.into(),
        })
        .collect())
}

fn name_taken(error: sqlx::Error) -> Error {
    let error = Error::from(error);
    if error.constraint() == Some("workers_name_key") {
        Failure::invalid("name", "Another worker has this name. Choose another.").into()
    } else {
        error
    }
}

/// Makes a worker; its token is kept for the admin to read for a minute.
pub async fn create(store: &Store, caller: &Caller, name: &str) -> Result<WorkerId> {
    let token = Token::random("csw_");
    let id = store.new_id();
    let mut tx = store.pool().begin().await?;
    sqlx::query!("insert into workers (id, name, token_hash) values ($1, $2, $3)", id, name, token.hash())
        .execute(&mut *tx)
        .await
        .map_err(name_taken)?;
    audit::add(&mut tx, store, Some(caller.id), "worker", id, "made its token", None).await?;
    tx.commit().await?;
    store.keep_made(
        caller.id,
        Made::Token { name: name.to_owned(), token: token.reveal(), server: store.public_url().to_owned() },
    );
    store.changes().bump(&[Topic::Workers]);
    Ok(WorkerId(id))
}

/// A new token for the worker the server starts itself, named `local`. The old one
/// stops working.
pub async fn local_token(store: &Store) -> Result<Token> {
    let token = Token::random("csw_");
    sqlx::query!(
        "insert into workers (id, name, token_hash) values ($1, 'local', $2)
         on conflict (lower(name)) do update set token_hash = excluded.token_hash, revoked_at = null",
        store.new_id(),
        token.hash(),
    )
    .execute(store.pool())
    .await?;
    store.changes().bump(&[Topic::Workers, Topic::Access]);
    Ok(token)
}

/// Revokes a worker's token. Its link closes.
pub async fn revoke(store: &Store, caller: &Caller, id: WorkerId) -> Result<()> {
    let mut tx = store.pool().begin().await?;
    let revoked = sqlx::query!(
        "update workers set revoked_at = coalesce(revoked_at, app_now()), linked = false,
             link_changed_at = case when linked then app_now() else link_changed_at end
         where id = $1",
        id.0
    )
    .execute(&mut *tx)
    .await?;
    if revoked.rows_affected() == 0 {
        return Err(Failure::not_found("worker").into());
    }
    audit::add(&mut tx, store, Some(caller.id), "worker", id.0, "revoked its token", None).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Workers, Topic::Agents, Topic::Access]);
    Ok(())
}

/// The worker of a token that is not revoked.
pub async fn find(store: &Store, token: &Token) -> Result<Option<WorkerId>> {
    Ok(sqlx::query_scalar!(
        "select id from workers where token_hash = $1 and revoked_at is null",
        token.hash()
    )
    .fetch_optional(store.pool())
    .await?
    .map(WorkerId))
}

/// What a link says of itself at hello.
#[derive(Debug)]
pub struct Hello<'a> {
    pub data_folder_id: Uuid,
    pub instance: Uuid,
    pub host: &'a str,
    pub version: &'a str,
    pub environment: &'a str,
    pub offers: &'a [HarnessOffer],
}

/// How a hello ended.
#[derive(Debug)]
pub enum Linked {
    Yes {
        epoch: i64,
        name: String,
    },
    /// Another data folder holds the lease.
    Leased {
        host: String,
    },
    /// The token was revoked meanwhile.
    Revoked,
}

/// Takes the link: issues the next epoch. The same data folder takes over at once;
/// another only when the lease is over.
pub async fn link(store: &Store, id: WorkerId, hello: Hello<'_>) -> Result<Linked> {
    let mut tx = store.pool().begin().await?;
    let row = sqlx::query!(
        r#"select name, host, revoked_at is not null as "revoked!",
                  linked and data_folder_id <> $2 and heartbeat_at > app_now() - make_interval(secs => $3)
                      as "leased?"
           from workers where id = $1 for update"#,
        id.0,
        hello.data_folder_id,
        LEASE_S,
    )
    .fetch_one(&mut *tx)
    .await?;
    if row.revoked {
        return Ok(Linked::Revoked);
    }
    if row.leased == Some(true) {
        return Ok(Linked::Leased { host: row.host.unwrap_or_default() });
    }
    let epoch = sqlx::query_scalar!(
        "update workers set epoch = epoch + 1, data_folder_id = $2, instance = $3, host = $4, version = $5,
             environment = $6, offers = $7, linked = true, link_changed_at = app_now(), heartbeat_at = app_now()
         where id = $1 returning epoch",
        id.0,
        hello.data_folder_id,
        hello.instance,
        hello.host,
        hello.version,
        hello.environment,
        Json(hello.offers) as _,
    )
    .fetch_one(&mut *tx)
    .await?;
    agent::adopt_offers(&mut tx, store, id, &row.name, hello.offers).await?;
    // Whatever was sent on an older link and not settled is sent again. That it was sent
    // stays known: the worker may have applied it before the link broke.
    sqlx::query!(
        "update decisions d set delivery = 'queued'
         from approvals a where a.id = d.approval_id and a.worker_id = $1 and d.delivery = 'sent'",
        id.0,
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    // An older link, perhaps on another server, looks whether it is still the current one.
    store.changes().bump(&[Topic::Workers, Topic::Agents, Topic::Sessions, Topic::Outbox, Topic::Access]);
    Ok(Linked::Yes { epoch, name: row.name })
}

/// Notes a sign of life. False: the epoch is not current any more, or revoked.
pub async fn heartbeat(store: &Store, id: WorkerId, epoch: i64) -> Result<bool> {
    let beat = sqlx::query!(
        "update workers set heartbeat_at = app_now(),
             linked = true, link_changed_at = case when linked then link_changed_at else app_now() end
         where id = $1 and epoch = $2 and revoked_at is null",
        id.0,
        epoch
    )
    .execute(store.pool())
    .await?;
    Ok(beat.rows_affected() == 1)
}

/// Whether the link's epoch is current and the token good.
pub async fn is_current(store: &Store, id: WorkerId, epoch: i64) -> Result<bool> {
    Ok(sqlx::query_scalar!(
        r#"select exists (select from workers where id = $1 and epoch = $2 and revoked_at is null) as "is!""#,
        id.0,
        epoch
    )
    .fetch_one(store.pool())
    .await?)
}

/// The link is over, if it is still this one.
pub async fn unlink(store: &Store, id: WorkerId, epoch: i64) -> Result<()> {
    let unlinked = sqlx::query!(
        "update workers set linked = false, link_changed_at = app_now()
         where id = $1 and epoch = $2 and linked",
        id.0,
        epoch
    )
    .execute(store.pool())
    .await?;
    if unlinked.rows_affected() == 1 {
        store.changes().bump(&[Topic::Workers, Topic::Agents, Topic::Sessions]);
    }
    Ok(())
}

/// Marks workers whose server went away without unlinking them.
pub async fn unlink_silent(store: &Store) -> Result<()> {
    let silent = sqlx::query!(
        "update workers set linked = false, link_changed_at = heartbeat_at
         where linked and heartbeat_at < app_now() - make_interval(secs => $1)",
        LEASE_S,
    )
    .execute(store.pool())
    .await?;
    if silent.rows_affected() > 0 {
        store.changes().bump(&[Topic::Workers, Topic::Agents, Topic::Sessions]);
    }
    Ok(())
}

/// A session as a worker announces it.
#[derive(Clone, Debug)]
pub struct Announced {
    pub session: domain::id::SessionId,
    /// Request keys that still wait natively.
    pub pending: Vec<String>,
}

/// What the server holds of an announced session.
#[derive(Clone, Debug)]
pub struct Known {
    pub session: domain::id::SessionId,
    /// False where it belongs to another worker; sessions that are absent, or of a worker
    /// that was revoked, are not returned.
    pub ours: bool,
    pub stored_seq: i64,
}

/// Compares what a worker announces with what is stored. Runs of sessions it does not
/// know any more end with an error: their process is gone, and nothing is sent to
/// another one (rule 5). Returns what is known of each announced session.
pub async fn reconcile(store: &Store, id: WorkerId, announced: &[Announced]) -> Result<Vec<Known>> {
    let ids: Vec<Uuid> = announced.iter().map(|a| a.session.0).collect();
    let mut tx = store.pool().begin().await?;
    let rows = sqlx::query!(
        r#"select s.id, s.stored_seq, a.worker_id, w.revoked_at is not null as "is_revoked!"
           from sessions s join agents a on a.id = s.agent_id join workers w on w.id = a.worker_id
           where s.id = any($1)"#,
        &ids,
    )
    .fetch_all(&mut *tx)
    .await?;
    // A run whose prompt was accepted, in a session the worker has forgotten.
    let lost = sqlx::query_scalar!(
        "select r.id from runs r join sessions s on s.id = r.session_id join agents a on a.id = s.agent_id
         where a.worker_id = $1 and r.status in ('running', 'paused') and r.prompted_at is not null
           and not (s.id = any($2)) order by r.id",
        id.0,
        &ids,
    )
    .fetch_all(&mut *tx)
    .await?;
    crate::approval::lock_of_runs(&mut tx, &lost).await?;
    for lost in &lost {
        run::end_in(
            &mut tx,
            store,
            domain::id::RunId(*lost),
            domain::run::RunStatus::Error,
            Some("The worker came back without this session: its execution is gone."),
            run::Gone::Execution,
        )
        .await?;
    }
    // A request shown as pending that its session does not list any more.
    let keys: Vec<String> = announced.iter().flat_map(|a| a.pending.iter().cloned()).collect();
    let unlisted = sqlx::query!(
        "update approvals set status = 'cancelled', closed_at = app_now(),
             closed_reason = 'The agent no longer waits for it.'
         where worker_id = $1 and status = 'pending' and session_id = any($2) and not (request_key = any($3))
         returning id, run_id",
        id.0,
        &ids,
        &keys,
    )
    .fetch_all(&mut *tx)
    .await?;
    for gone in &unlisted {
        crate::approval::close_one(&mut tx, gone.run_id).await?;
        audit::add(&mut tx, store, None, "approval", gone.id, "was withdrawn", None).await?;
    }
    tx.commit().await?;
    if !lost.is_empty() || !unlisted.is_empty() {
        store.changes().bump(&[Topic::Approvals, Topic::Sessions]);
    }
    Ok(rows
        .into_iter()
        // What belonged to a worker whose token is void belongs to nobody.
        .filter(|r| r.worker_id == id.0 || !r.is_revoked)
        .map(|r| Known {
            session: domain::id::SessionId(r.id),
            ours: r.worker_id == id.0,
            stored_seq: r.stored_seq,
        })
        .collect())
}
