//! Who sees and may what; links and the last admin.

use domain::{
    decision::Outcome,
    failure::Failure,
    user::{Made, Role},
};
use store::{Token, user::LinkState};

use crate::place::{Place, conflict};

#[tokio::test]
async fn private_sessions_are_for_their_owner_and_admins() {
    let p = Place::new().await;
    let owner = p.person("Owner", Role::Approver).await;
    let other = p.person("Other", Role::Approver).await;
    let (session, run) = p.running_as(&owner, true).await;
    let id = p.pending(session, run, "1").await;
    for caller in [&owner, &p.admin] {
        store::session::read(&p.store, caller, session, None).await.expect("theirs");
        assert_eq!(store::approval::counts(&p.store, caller).await.expect("counts").pending, 1);
    }
    let hidden = store::session::read(&p.store, &other, session, None).await.map(drop);
    assert_eq!(hidden.expect_err("hidden").into_failure(), Failure::not_found("session"));
    assert!(store::session::list(&p.store, &other, "", None).await.expect("a list").0.is_empty());
    assert_eq!(store::approval::counts(&p.store, &other).await.expect("counts").pending, 0);
    let all = [domain::approval::ApprovalStatus::Pending];
    assert!(store::approval::list(&p.store, &other, &all, None).await.expect("a list").0.is_empty());
    // Not by guessing the id either.
    let digest = store::approval::read(&p.store, &owner, id).await.expect("read").digest;
    let forged = store::approval::Resolve {
        approval: id,
        action_digest: digest,
        given: domain::approval::Given::plain(Outcome::Approve),
    };
    let refused = store::approval::resolve(&p.store, &other, forged).await.map(drop);
    assert_eq!(refused.expect_err("refused").into_failure(), Failure::not_found("request"));
    assert!(store::approval::extend(&p.store, &other, id).await.is_err());
    assert!(store::run::cancel(&p.store, &other, run).await.is_err());
    assert_eq!(p.approval_status(id).await, "pending");
}

#[tokio::test]
async fn a_decision_on_another_action_is_refused() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    let forged = store::approval::Resolve {
        approval: id,
        action_digest: domain::digest::ActionDigest([7; 32]),
        given: domain::approval::Given::plain(Outcome::Approve),
    };
    let refused = store::approval::resolve(&p.store, &p.admin, forged).await.map(drop);
    assert!(conflict(refused).1.contains("not the one that was shown"));
    assert_eq!(p.approval_status(id).await, "pending");
}

#[tokio::test]
async fn an_answer_the_agent_did_not_offer_is_refused() {
    let p = Place::new().await;
    let (session, run) = p.running().await;
    let id = p.pending(session, run, "1").await;
    let digest = store::approval::read(&p.store, &p.admin, id).await.expect("read").digest;
    let forged = store::approval::Resolve {
        approval: id,
        action_digest: digest,
        given: domain::approval::Given {
            option: Some("allow-always".into()),
            ..domain::approval::Given::plain(Outcome::Approve)
        },
    };
    let refused = store::approval::resolve(&p.store, &p.admin, forged).await.map(drop);
    assert!(
        matches!(refused.expect_err("refused").into_failure(), Failure::Invalid { field, .. } if field == "option")
    );
}

#[tokio::test]
async fn a_link_works_once_and_only_the_newest() {
    let p = Place::new().await;
    let id = store::user::add(&p.store, &p.admin, "Vic", Role::Viewer).await.expect("added");
    let first = made_link(&p);
    store::user::reset(&p.store, &p.admin, id).await.expect("reset");
    let second = made_link(&p);
    assert_eq!(store::user::link_state(&p.store, &first).await.expect("looked"), LinkState::Unknown);
    assert_eq!(
        store::user::link_state(&p.store, &second).await.expect("looked"),
        LinkState::Password { name: "Vic".into() }
    );
    store::user::set_password(&p.store, &second, "hash").await.expect("set");
    assert_eq!(store::user::link_state(&p.store, &second).await.expect("looked"), LinkState::Used);
    let again = store::user::set_password(&p.store, &second, "other").await.map(drop);
    assert_eq!(conflict(again).1, "This link was used or has expired. Ask for a new one.");
}

fn made_link(p: &Place) -> Token {
    match p.store.made(p.admin.id) {
        Some(Made::Link { url, .. }) => Token::presented(url.rsplit('/').next().unwrap_or_default()),
        other => panic!("no link: {other:?}"),
    }
}

#[tokio::test]
async fn there_is_one_first_admin() {
    let p = Place::new().await;
    let link = store::user::first_admin_link(&p.store).await.expect("a link");
    let second = store::user::become_first_admin(&p.store, &link, "Eve", "hash").await.map(drop);
    assert!(conflict(second).1.starts_with("The first admin exists already."));
}

#[tokio::test]
async fn the_last_admin_stays() {
    let p = Place::new().await;
    let demoted = store::user::set_role(&p.store, &p.admin, p.admin.id, Role::Viewer).await;
    assert!(conflict(demoted).1.starts_with("This is the last admin"));
    let disabled = store::user::set_disabled(&p.store, &p.admin, p.admin.id, true).await;
    assert!(conflict(disabled).1.starts_with("This is the last admin"));
    p.person("Second", Role::Admin).await;
    store::user::set_role(&p.store, &p.admin, p.admin.id, Role::Viewer).await.expect("two are enough");
}

#[tokio::test]
async fn disabling_and_a_new_role_end_every_sign_in() {
    let p = Place::new().await;
    let vic = p.person("Vic", Role::Viewer).await;
    let (login, token) = store::login::create(&p.store, vic.id).await.expect("signed in");
    assert_eq!(store::login::find(&p.store, &token).await.expect("looked").expect("good").caller, vic);
    store::user::set_role(&p.store, &p.admin, vic.id, Role::Approver).await.expect("a role");
    assert!(store::login::find(&p.store, &token).await.expect("looked").is_none());
    let (_, token) = store::login::create(&p.store, vic.id).await.expect("signed in");
    store::user::set_disabled(&p.store, &p.admin, vic.id, true).await.expect("disabled");
    assert!(store::login::find(&p.store, &token).await.expect("looked").is_none());
    assert_eq!(store::login::is_good(&p.store, login).await.expect("looked"), None);
}

#[tokio::test]
async fn a_sign_in_unused_for_a_fortnight_is_over() {
    let p = Place::new().await;
    let (_, token) = store::login::create(&p.store, p.admin.id).await.expect("signed in");
    p.later(14 * 86_400 + 1).await;
    assert!(store::login::find(&p.store, &token).await.expect("looked").is_none());
}
