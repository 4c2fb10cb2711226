//! Agents. A worker's offer makes one for each harness; admins edit it.

use domain::{
    agent::{AgentEdit, AgentView, Mode},
    failure::Failure,
    id::{AgentId, WorkerId},
    user::Caller,
    worker::HarnessOffer,
};
use sqlx::{PgConnection, types::Json};

use crate::{Error, Result, Store, Topic, audit};

struct Row {
    id: uuid::Uuid,
    worker_id: uuid::Uuid,
    worker_name: String,
    linked: bool,
    revoked: bool,
    offers: Json<Vec<HarnessOffer>>,
    name: String,
    harness: String,
    folder: String,
    mode: String,
    hitl_timeout_s: i64,
    waits_for_continue: bool,
    asks_everything: bool,
    waiting: i64,
}

impl From<Row> for AgentView {
    fn from(r: Row) -> Self {
        let offer = r.offers.0.iter().find(|o| o.id == r.harness);
        let modes: Vec<Mode> = offer.map(|o| o.modes.clone()).unwrap_or_default();
        let problem = if r.revoked {
            Some(format!("The token of the worker {} is revoked.", r.worker_name))
        } else if !r.linked {
            Some(format!("The worker {} is not linked. Messages wait until it is.", r.worker_name))
        } else {
            match offer {
                None => Some(format!("The worker {} does not offer this harness now.", r.worker_name)),
                Some(o) => o.problem.clone().or_else(|| o.cannot_ask(&r.mode)),
            }
        };
        let permissions = offer.and_then(|o| o.capabilities.permissions.as_ref());
        let can_ask_everything = permissions.is_some_and(|p| p.everything);
        let harness_title = match offer {
            Some(o) if o.version.is_empty() => o.title.clone(),
            Some(o) => format!("{} {}", o.title, o.version),
            None => r.harness.clone(),
        };
        Self {
            id: AgentId(r.id),
            worker: WorkerId(r.worker_id),
            worker_name: r.worker_name,
            worker_linked: r.linked && !r.revoked,
            name: r.name,
            harness: r.harness,
            harness_title,
            folder: r.folder,
            mode: r.mode,
            modes,
            can_ask_everything,
            asks_everything: r.asks_everything,
            hitl_timeout_s: r.hitl_timeout_s,
            waits_for_continue: r.waits_for_continue,
            problem,
            waiting: u32::try_from(r.waiting).unwrap_or(u32::MAX),
        }
    }
}

async fn read_where(tx: &mut PgConnection, id: Option<AgentId>) -> Result<Vec<AgentView>> {
    let rows = sqlx::query_as!(
        Row,
        r#"select a.id, a.worker_id, w.name as worker_name, w.linked, w.revoked_at is not null as "revoked!",
                  w.offers as "offers: Json<Vec<HarnessOffer>>", a.name, a.harness, a.folder, a.mode,
                  a.hitl_timeout_s, a.waits_for_continue, a.asks_everything,
                  (select count(*) from approvals p where p.agent_id = a.id and p.status = 'pending') as "waiting!"
           from agents a join workers w on w.id = a.worker_id
           where $1::uuid is null or a.id = $1
           order by lower(a.name) limit 500"#,
        id.map(|i| i.0),
    )
    .fetch_all(tx)
    .await?;
    Ok(rows.into_iter().map(AgentView::from).collect())
}

/// Every agent, by name; at most 500.
pub async fn list(store: &Store) -> Result<Vec<AgentView>> {
    let mut conn = store.pool().acquire().await?;
    read_where(&mut conn, None).await
}

pub(crate) async fn read(tx: &mut PgConnection, id: AgentId) -> Result<AgentView> {
    read_where(tx, Some(id)).await?.pop().ok_or_else(|| Failure::not_found("agent").into())
}

/// Refuses an agent whose policy is to ask and whose harness has no way to.
pub(crate) async fn check_can_ask(tx: &mut PgConnection, id: AgentId, field: &str) -> Result<()> {
    let row = sqlx::query!(
        r#"select a.harness, a.mode, w.offers as "offers: Json<Vec<HarnessOffer>>"
           from agents a join workers w on w.id = a.worker_id where a.id = $1"#,
        id.0
    )
    .fetch_optional(tx)
    .await?;
    let why = row.and_then(|r| r.offers.0.iter().find(|o| o.id == r.harness)?.cannot_ask(&r.mode));
    why.map_or(Ok(()), |why| Err(Failure::invalid(field, &why).into()))
}

/// Changes an agent; takes effect with its next prompt.
pub async fn edit(store: &Store, caller: &Caller, id: AgentId, edit: &AgentEdit) -> Result<()> {
    let mut tx = store.pool().begin().await?;
    sqlx::query!("select id from agents where id = $1 for update", id.0).fetch_optional(&mut *tx).await?;
    let before = read(&mut tx, id).await?;
    edit.check(&before.modes, &before.mode, before.can_ask_everything)?;
    sqlx::query!(
        "update agents set name = $2, folder = $3, mode = $4, hitl_timeout_s = $5, waits_for_continue = $6,
             asks_everything = $7
         where id = $1",
        id.0,
        edit.name,
        edit.folder,
        edit.mode,
        edit.hitl_timeout_s,
        edit.waits_for_continue,
        edit.asks_everything,
    )
    .execute(&mut *tx)
    .await
    .map_err(|e| {
        let e = Error::from(e);
        if e.constraint() == Some("agents_name_key") {
            Failure::invalid("name", "Another agent has this name. Choose another.").into()
        } else {
            e
        }
    })?;
    let words = format!(
        "folder {}, mode {}, {} s to answer{}{}",
        edit.folder,
        edit.mode,
        edit.hitl_timeout_s,
        if edit.asks_everything { ", asks for everything" } else { "" },
        if edit.waits_for_continue { ", waits for Continue run" } else { "" }
    );
    audit::add(&mut tx, store, Some(caller.id), "agent", id.0, "changed it", Some(&words)).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Agents, Topic::Sessions]);
    Ok(())
}

/// Makes an agent for each harness offered that has none yet on this worker.
pub(crate) async fn adopt_offers(
    tx: &mut PgConnection,
    store: &Store,
    worker: WorkerId,
    worker_name: &str,
    offers: &[HarnessOffer],
) -> Result<()> {
    for offer in offers {
        for name in [offer.title.clone(), format!("{} on {worker_name}", offer.title)] {
            let made = sqlx::query!(
                "insert into agents (id, worker_id, name, harness, folder, mode)
                 select $1, $2, $3, $4, $5, $6
                 where not exists (select from agents where worker_id = $2 and harness = $4)
                 on conflict (lower(name)) do nothing",
                store.new_id(),
                worker.0,
                name,
                offer.id,
                offer.default_folder,
                offer.default_mode,
            )
            .execute(&mut *tx)
            .await?;
            if made.rows_affected() == 1 {
                break;
            }
        }
    }
    Ok(())
}
