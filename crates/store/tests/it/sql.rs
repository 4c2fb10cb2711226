//! Rules about the SQL itself.

use std::path::Path;

/// `app_now()` is the only clock of a rule (a bare `now()` is also frozen at the start
/// of its transaction).
#[test]
fn no_query_reads_another_clock() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut looked = 0;
    for folder in [root.join("src"), root.join("../../migrations")] {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            looked += 1;
            for (number, line) in text.lines().enumerate() {
                let code = line.split("//").next().unwrap_or(line).split("--").next().unwrap_or(line);
                let rest = code.replace("app_now()", "").replace("Instant::now()", "");
                let bare = rest.contains("now()") || rest.contains("current_timestamp");
                assert!(!bare, "{}:{}: {line}", path.display(), number + 1);
            }
        }
    }
    assert!(looked > 10, "the sources were not found");
}

#[tokio::test]
async fn a_newer_schema_than_the_program_is_refused_in_words() {
    let database = cluster::scratch::database(&store::MIGRATOR).await;
    let store =
        store::Store::connect(database.options(), 2, "http://x", uuid::Uuid::now_v7).await.expect("a store");
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
         values (9999, 'later', true, '\\x00', 0)",
    )
    .execute(store.pool())
    .await
    .expect("a later migration");
    let refused = store.migrate().await.expect_err("refused");
    assert!(refused.to_string().contains("version 9999, which this program does not know"), "{refused}");
}
