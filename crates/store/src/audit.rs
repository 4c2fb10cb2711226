//! The audit: who did what to which thing. Rows are plain inserts inside the
//! transaction of the act; most acts write theirs in the same statement.

use domain::{id::UserId, time::Timestamp};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::{Result, Store};

/// Adds an entry. `what` is a phrase that follows a name.
pub(crate) async fn add(
    tx: &mut PgConnection,
    store: &Store,
    by: Option<UserId>,
    noun: &str,
    noun_id: Uuid,
    what: &str,
    words: Option<&str>,
) -> Result<()> {
    sqlx::query!(
        "insert into audit (id, user_id, noun, noun_id, what, words) values ($1, $2, $3, $4, $5, $6)",
        store.new_id(),
        by.map(|u| u.0),
        noun,
        noun_id,
        what,
        words,
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The history of one thing, oldest first, at most a hundred lines.
pub(crate) async fn history(
    tx: &mut PgConnection,
    noun: &str,
    noun_id: Uuid,
) -> Result<Vec<domain::approval::HistoryLine>> {
    let rows = sqlx::query!(
        r#"select a.at, u.name as "by?", a.what, a.words
           from audit a left join users u on u.id = a.user_id
           where a.noun = $1 and a.noun_id = $2 order by a.id limit 100"#,
        noun,
        noun_id,
    )
    .fetch_all(tx)
    .await?;
    Ok(rows
        .into_iter()
        .map(|r| domain::approval::HistoryLine {
            at: Timestamp::from(r.at),
            by: r.by,
            what: r.what,
            // What stands in for words is not the person's.
            words: r.words.filter(|words| words != domain::decision::REJECTED_WITHOUT_WORDS),
        })
        .collect())
}
