//! One live run a session; the next message waits.

use store::worker::Linked;
use uuid::Uuid;

use crate::place::{Place, relink};

#[tokio::test]
async fn the_next_message_waits_for_the_live_run() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let next = store::session::prompt(&p.store, &p.admin, session, "and then").await.expect("queued");
    assert!(store::run::due_prompts(&p.store, p.worker).await.expect("due").is_empty());
    store::run::refused(&p.store, run, "No.").await.expect("ended");
    let due = store::run::due_prompts(&p.store, p.worker).await.expect("due");
    assert_eq!(due.iter().map(|d| d.run).collect::<Vec<_>>(), [next]);
}

#[tokio::test]
async fn a_prompt_not_heard_of_is_offered_again() {
    let p = Place::new().await;
    let session = store::session::start(&p.store, &p.admin, p.agent, "x", false).await.expect("a session");
    let first = store::run::due_prompts(&p.store, p.worker).await.expect("due");
    let again = store::run::due_prompts(&p.store, p.worker).await.expect("due");
    assert_eq!((first[0].run, first[0].session), (again[0].run, session));
    store::run::prompted(&p.store, first[0].run).await.expect("heard");
    assert!(store::run::due_prompts(&p.store, p.worker).await.expect("due").is_empty());
}

#[tokio::test]
async fn a_queue_has_an_end_and_a_message_has_bounds() {
    let p = Place::new().await;
    let (session, _) = p.running().await;
    for _ in 0..20 {
        store::session::prompt(&p.store, &p.admin, session, "x").await.expect("queued");
    }
    let full = store::session::prompt(&p.store, &p.admin, session, "x").await.map(drop);
    assert!(crate::place::conflict(full).1.starts_with("20 messages wait"));
    for bad in ["", "  \n", "a\0b"] {
        let refused = store::session::prompt(&p.store, &p.admin, session, bad).await;
        let failure = refused.expect_err("refused").into_failure();
        assert!(matches!(failure, domain::failure::Failure::Invalid { ref field, .. } if field == "prompt"));
    }
}

#[tokio::test]
async fn the_same_data_folder_takes_over_and_another_waits_for_the_lease() {
    let p = Place::new().await;
    assert_eq!(relink(&p.store, p.worker, Uuid::nil()).await, Some(p.epoch + 1));
    let other = Uuid::now_v7();
    assert_eq!(relink(&p.store, p.worker, other).await, None);
    p.later(60).await;
    assert_eq!(relink(&p.store, p.worker, other).await, Some(p.epoch + 2));
    let heard = store::worker::heartbeat(&p.store, p.worker, p.epoch).await.expect("asked");
    assert!(!heard, "an old epoch is not current");
}

#[tokio::test]
async fn a_revoked_worker_does_not_link() {
    let p = Place::new().await;
    store::worker::revoke(&p.store, &p.admin, p.worker).await.expect("revoked");
    let hello = store::worker::Hello {
        data_folder_id: Uuid::nil(),
        instance: Uuid::nil(),
        host: "",
        version: "",
        environment: "local",
        offers: &[],
    };
    let linked = store::worker::link(&p.store, p.worker, hello).await.expect("asked");
    assert!(matches!(linked, Linked::Revoked));
    assert!(!store::worker::is_current(&p.store, p.worker, p.epoch).await.expect("asked"));
}
