//! Sessions: list, read with the transcript, start, prompt.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use domain::{
    approval::ApprovalStatus,
    event::EventBody,
    failure::Failure,
    id::{AgentId, RunId, SessionId},
    run::{PROMPT_MAX, RunStatus, RunView},
    session::{Item, SessionDetail, SessionRow, Turn, title_of},
    time::Timestamp,
    user::{Caller, Role},
};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use crate::{
    Result, Store, Topic, agent, approval, audit,
    cursor::{Cursor, page},
    error::word,
    sees_all,
};

const ROWS: usize = 50;
/// Turns of a transcript read at once, and events of each.
const TURNS: usize = 20;
const EVENTS: i64 = 300;
/// Bytes of events read at once, newest first; a few of each turn are read all the same.
const EVENT_BYTES: i64 = 2 * 1024 * 1024;
const EVENTS_KEPT: i64 = 5;
/// Prompts that may wait in a session.
const QUEUE_MAX: i64 = 20;

struct Row {
    id: Uuid,
    title: String,
    agent: String,
    status: Option<String>,
    waiting: i64,
    private: bool,
    updated_at: DateTime<Utc>,
}

impl Row {
    fn view(self) -> Result<SessionRow> {
        Ok(SessionRow {
            id: SessionId(self.id),
            title: self.title,
            agent: self.agent,
            status: self.status.map(|s| word(&s, "status", self.id)).transpose()?,
            waiting: u32::try_from(self.waiting).unwrap_or(u32::MAX),
            private: self.private,
            updated_at: self.updated_at.into(),
        })
    }
}

/// Sessions the caller may read, newest first, fifty at a time.
pub async fn list(
    store: &Store,
    caller: &Caller,
    search: &str,
    after: Option<&str>,
) -> Result<(Vec<SessionRow>, Option<String>)> {
    let after = Cursor::read(after)?;
    let search = search.trim();
    let rows = sqlx::query_as!(
        Row,
        r#"select s.id, s.title, a.name as agent, s.private, s.updated_at,
                  (select r.status from runs r where r.session_id = s.id and r.started_at is not null
                   order by r.id desc limit 1) as status,
                  (select count(*) from approvals p where p.session_id = s.id and p.status = 'pending') as "waiting!"
           from sessions s join agents a on a.id = s.agent_id
           where (not s.private or s.owner_id = $1 or $2)
             and ($3 = '' or position(lower($3) in lower(s.title)) > 0)
             and ($4::timestamptz is null or (s.updated_at, s.id) < ($4, $5))
           order by s.updated_at desc, s.id desc limit 51"#,
        caller.id.0,
        sees_all(caller),
        search,
        after.map(|a| a.at),
        after.map_or(Uuid::nil(), |a| a.id),
    )
    .fetch_all(store.pool())
    .await?;
    let (rows, next) = page(rows, ROWS, |r| Cursor { at: r.updated_at, id: r.id });
    Ok((rows.into_iter().map(Row::view).collect::<Result<_>>()?, next))
}

/// One session with its newest turns, or those before `before` (a run's cursor).
pub async fn read(
    store: &Store,
    caller: &Caller,
    id: SessionId,
    before: Option<&str>,
) -> Result<SessionDetail> {
    let before = Cursor::read(before)?;
    let mut tx = store.pool().begin().await?;
    // One snapshot, so that a run, its events and its approvals fit together.
    sqlx::query("set transaction isolation level repeatable read, read only").execute(&mut *tx).await?;
    let row = sqlx::query!(
        r#"select s.id, s.title, a.name as agent, s.private, s.updated_at, s.agent_id, s.owner_id, u.name as owner,
                  (select r.status from runs r where r.session_id = s.id and r.started_at is not null
                   order by r.id desc limit 1) as status,
                  (select count(*) from approvals p where p.session_id = s.id and p.status = 'pending') as "waiting!"
           from sessions s join agents a on a.id = s.agent_id join users u on u.id = s.owner_id
           where s.id = $1 and (not s.private or s.owner_id = $2 or $3)"#,
        id.0,
        caller.id.0,
        sees_all(caller),
    )
    .fetch_optional(&mut *tx)
    .await?
    .ok_or_else(|| Failure::not_found("session"))?;
    let agent = agent::read(&mut tx, AgentId(row.agent_id)).await?;
    let runs = sqlx::query!(
        r#"select r.id, r.status, r.prompt, u.name as by, r.created_at, r.ended_at, r.detail, r.open_approvals,
                  r.cancel_asked_at is not null and r.cancel_settled_at is null as "stop_unconfirmed!",
                  (select count(*) from decisions d join approvals p on p.id = d.approval_id
                   where p.run_id = r.id and d.delivery = 'queued' and d.continued_at is null) as "held!"
           from runs r join users u on u.id = r.user_id
           where r.session_id = $1 and ($2::uuid is null or r.id < $2)
           order by r.id desc limit 21"#,
        id.0,
        before.map(|b| b.id),
    )
    .fetch_all(&mut *tx)
    .await?;
    let (runs, earlier) = page(runs, TURNS, |r| Cursor { at: r.created_at, id: r.id });
    let ids: Vec<Uuid> = runs.iter().map(|r| r.id).collect();
    let mut items = read_items(&mut tx, caller, &ids).await?;
    tx.commit().await?;
    let mut turns = Vec::with_capacity(runs.len());
    for r in runs.into_iter().rev() {
        let (items, left_out) = items.remove(&r.id).unwrap_or_default();
        turns.push(Turn {
            run: RunView {
                id: RunId(r.id),
                status: word(&r.status, "status", r.id)?,
                prompt: r.prompt,
                by: r.by,
                created_at: r.created_at.into(),
                ended_at: r.ended_at.map(Timestamp::from),
                detail: r.detail,
                stop_unconfirmed: r.stop_unconfirmed,
                open_approvals: u32::try_from(r.open_approvals).unwrap_or(0),
                held_decisions: u32::try_from(r.held).unwrap_or(u32::MAX),
            },
            items,
            left_out,
        });
    }
    Ok(SessionDetail {
        row: Row {
            id: row.id,
            title: row.title,
            agent: row.agent,
            status: row.status,
            waiting: row.waiting,
            private: row.private,
            updated_at: row.updated_at,
        }
        .view()?,
        owner: row.owner,
        agent,
        turns,
        earlier,
        may_prompt: caller.role.covers(Role::Approver),
    })
}

type Items = HashMap<Uuid, (Vec<Item>, u64)>;

/// Events and approvals of each run, in their order; of long runs the newest, and what
/// still waits. However long a run was, what is read has an end.
async fn read_items(tx: &mut PgConnection, caller: &Caller, runs: &[Uuid]) -> Result<Items> {
    let events = sqlx::query!(
        r#"select e.run_id as "run_id!", e.seq as "seq!", e.at as "at!", e.body as "body!: Json<EventBody>",
                  e.total as "total!"
           from (select c.*, sum(octet_length(c.body::text)) over (order by c.run_id desc, c.seq desc) as so_far
                 from unnest($1::uuid[]) run(id)
                 cross join lateral (
                     select v.*, count(*) over () as total, row_number() over (order by v.seq desc) as place
                     from run_events v where v.run_id = run.id) c
                 where c.place <= $2) e
           where e.so_far <= $3 or e.place <= $4
           order by e.run_id, e.seq"#,
        runs,
        EVENTS,
        EVENT_BYTES,
        EVENTS_KEPT,
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut items: Items = HashMap::new();
    for e in events {
        let (list, left_out) = items.entry(e.run_id).or_default();
        list.push(Item::Event { seq: e.seq, at: e.at.into(), body: e.body.0 });
        *left_out = u64::try_from(e.total).unwrap_or(0).saturating_sub(list.len() as u64);
    }
    let mut approvals = approval::count_of_runs(tx, runs).await?;
    for (after_seq, run, detail) in approval::read_of_runs(tx, caller, runs).await? {
        let (list, left_out) = items.entry(run).or_default();
        // What was decided before the first event shown is left out with what was around it.
        let first = list.iter().find_map(|i| if let Item::Event { seq, .. } = i { Some(*seq) } else { None });
        let is_before = *left_out > 0 && first.is_some_and(|seq| after_seq < seq);
        if is_before && detail.row.status != ApprovalStatus::Pending {
            continue;
        }
        if let Some(all) = approvals.get_mut(&run) {
            *all = all.saturating_sub(1);
        }
        let place = list
            .iter()
            .position(|i| matches!(i, Item::Event { seq, .. } if *seq > after_seq))
            .unwrap_or(list.len());
        list.insert(place, Item::Approval { approval: Box::new(detail) });
    }
    for (run, more) in approvals {
        items.entry(run).or_default().1 += more;
    }
    Ok(items)
}

fn check_prompt(prompt: &str) -> Result<&str, Failure> {
    if prompt.trim().is_empty() {
        Err(Failure::invalid("prompt", "Write a message first."))
    } else if prompt.len() > PROMPT_MAX {
        Err(Failure::invalid("prompt", "The message is longer than 256 KiB."))
    } else if prompt.contains('\0') {
        Err(Failure::invalid("prompt", "The message holds a null character, which cannot be stored."))
    } else {
        Ok(prompt)
    }
}

/// Starts a session with its first prompt.
pub async fn start(
    store: &Store,
    caller: &Caller,
    agent: AgentId,
    prompt: &str,
    private: bool,
) -> Result<SessionId> {
    let prompt = check_prompt(prompt)?;
    let id = store.new_id();
    let mut tx = store.pool().begin().await?;
    agent::check_can_ask(&mut tx, agent, "agent").await?;
    let made = sqlx::query!(
        "insert into sessions (id, agent_id, owner_id, title, private)
         select $1, a.id, $3, $4, $5 from agents a where a.id = $2",
        id,
        agent.0,
        caller.id.0,
        title_of(prompt),
        private,
    )
    .execute(&mut *tx)
    .await?;
    if made.rows_affected() == 0 {
        return Err(Failure::invalid("agent", "This agent does not exist any more. Choose another.").into());
    }
    add_run(&mut tx, store, caller, SessionId(id), prompt).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Sessions, Topic::Outbox]);
    Ok(SessionId(id))
}

/// Adds a prompt; it waits while a run is live.
pub async fn prompt(store: &Store, caller: &Caller, id: SessionId, prompt: &str) -> Result<RunId> {
    let prompt = check_prompt(prompt)?;
    let mut tx = store.pool().begin().await?;
    let agent = sqlx::query_scalar!(
        "select agent_id from sessions where id = $1 and (not private or owner_id = $2 or $3) for no key update",
        id.0,
        caller.id.0,
        sees_all(caller),
    )
    .fetch_optional(&mut *tx)
    .await?
    .ok_or_else(|| Failure::not_found("session"))?;
    agent::check_can_ask(&mut tx, AgentId(agent), "prompt").await?;
    let queued = sqlx::query_scalar!(
        r#"select count(*) as "queued!" from runs where session_id = $1 and status = 'pending'"#,
        id.0
    )
    .fetch_one(&mut *tx)
    .await?;
    if queued >= QUEUE_MAX {
        return Err(Failure::Conflict {
            who: None,
            what: "20 messages wait in this session already. Wait for one to be taken.".into(),
        }
        .into());
    }
    let run = add_run(&mut tx, store, caller, id, prompt).await?;
    sqlx::query!("update sessions set updated_at = app_now() where id = $1", id.0).execute(&mut *tx).await?;
    tx.commit().await?;
    store.changes().bump(&[Topic::Sessions, Topic::Outbox]);
    Ok(run)
}

async fn add_run(
    tx: &mut PgConnection,
    store: &Store,
    caller: &Caller,
    session: SessionId,
    prompt: &str,
) -> Result<RunId> {
    let id = store.new_id();
    sqlx::query!(
        "insert into runs (id, session_id, user_id, prompt, status) values ($1, $2, $3, $4, $5)",
        id,
        session.0,
        caller.id.0,
        prompt,
        RunStatus::Pending.as_str(),
    )
    .execute(&mut *tx)
    .await?;
    audit::add(tx, store, Some(caller.id), "run", id, "sent a message", None).await?;
    Ok(RunId(id))
}
