//! Starting and ending.

use std::time::Duration;

use crate::product::{Product, command, folder};

async fn refused(env: &[(&str, &str)], args: &[&str]) -> String {
    let data = folder();
    let mut command = command(&data.join("data"));
    command.args(args);
    for (name, value) in env {
        command.env(name, value);
    }
    let ended =
        tokio::time::timeout(Duration::from_mins(1), command.output()).await.expect("in time").expect("ran");
    let _ = std::fs::remove_dir_all(data);
    assert!(!ended.status.success());
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

#[tokio::test]
async fn a_wrong_database_url_is_said_without_the_password() {
    let said =
        refused(&[("DATABASE_URL", "postgres://me:geheim@127.0.0.1:9/none")], &["--listen", "127.0.0.1:0"])
            .await;
    assert!(said.contains("127.0.0.1:9") && said.contains("DATABASE_URL"), "{said}");
    assert!(!said.contains("geheim"), "{said}");
    let said = refused(&[("DATABASE_URL", "mysql://x")], &["--listen", "127.0.0.1:0"]).await;
    assert!(said.contains("DATABASE_URL"), "{said}");
}

#[tokio::test]
async fn a_newer_schema_than_the_program_ends_the_start() {
    let database = cluster::scratch::database(&store::MIGRATOR).await;
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time)
         values (9999, 'later', true, '\\x00', 0)",
    )
    .execute(&database.pool)
    .await
    .expect("a later migration");
    let said = refused(&[("DATABASE_URL", &database.url())], &["--listen", "127.0.0.1:0"]).await;
    assert!(said.contains("Run a newer Countersign"), "{said}");
}

#[tokio::test]
async fn a_taken_address_that_was_asked_for_is_said() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = holder.local_addr().expect("an address").to_string();
    let database = cluster::scratch::database(&store::MIGRATOR).await;
    let said = refused(&[("DATABASE_URL", &database.url())], &["--listen", &at]).await;
    assert!(said.contains(&at) && said.contains("--listen"), "{said}");
}

#[tokio::test]
async fn the_first_admin_link_works_once_and_is_printed_until_then() {
    let product = Product::with_admin().await;
    let again = product.set_up("Eve").await;
    assert_eq!(again.status, 303);
    assert!(again.header("location").expect("a place").ends_with("?problem=used"), "{again:?}");
    let looked = product.get("", &product.setup_path).await;
    assert!(looked.header("location").expect("a place").ends_with("?problem=used"), "{looked:?}");
    let page = product.get("", &format!("{}?problem=used", product.setup_path)).await;
    assert_eq!(page.status, 410);
    assert!(page.body.contains("was used"), "{}", page.body);
    let unknown = product.get("", "/setup/none").await;
    assert!(unknown.header("location").expect("a place").ends_with("?problem=unknown"), "{unknown:?}");
    // A GET never uses a link.
    let fresh = Product::start().await;
    for _ in 0..3 {
        assert_eq!(fresh.get("", &fresh.setup_path).await.status, 200);
    }
    assert_eq!(fresh.set_up("Ana").await.status, 303);
}

#[tokio::test]
async fn sigterm_ends_the_server_in_order() {
    let mut product = Product::start().await;
    let pid = product.child.id().and_then(|p| i32::try_from(p).ok()).and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(pid.expect("a pid"), rustix::process::Signal::TERM).expect("signalled");
    let status = tokio::time::timeout(Duration::from_secs(30), product.child.wait()).await.expect("in time");
    assert!(status.expect("ended").success(), "{}", product.said());
}
