//! A link cut, and a server killed, at every frame of a whole dialogue: the decision is
//! applied once, its effect is known, and nothing that was acknowledged is lost.

use domain::decision::Outcome;

use crate::{
    product::Product,
    worker::{Dialogue, Fault, Over, person},
};

/// What happens at the fault.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blow {
    Cut,
    Kill,
}

/// Plays a dialogue for each frame, with the blow there; until a dialogue has no such frame.
async fn at_each_frame(blow: Blow, fault: fn(u32) -> Fault, outcome: Outcome) {
    let mut p = Product::with_admin().await;
    let token = p.worker_token("studio").await;
    // The worker's first link makes its agent.
    drop(crate::worker::Worker::link(&p, &token, uuid::Uuid::nil()).await);
    for n in 1_u32.. {
        let what = format!("{:?}", fault(n));
        let session = p.start_session(&p.admin, "").await;
        let mut dialogue = Dialogue::new(&token, session);
        let decides = tokio::spawn(person(p.address.clone(), p.admin.clone(), session, outcome));
        let (over, _) = dialogue.link(&p.address, Some(fault(n))).await;
        let struck = match over {
            Over::Fault(worker) => {
                if blow == Blow::Kill {
                    p.kill().await;
                }
                drop(worker);
                if blow == Blow::Kill {
                    p.revive().await;
                }
                true
            }
            Over::Done => false,
            Over::Lost => panic!("{what}: lost before\n{}", p.said()),
        };
        dialogue.finish(&p).await;
        decides.await.expect("decided");
        dialogue.holds(&p, &what).await;
        assert_eq!(dialogue.outcome, Some(outcome), "{what}");
        if !struck {
            assert!(n > 12, "the dialogue was over after {n} frames");
            return;
        }
    }
}

#[tokio::test]
async fn a_link_cut_before_any_frame_loses_and_doubles_nothing() {
    at_each_frame(Blow::Cut, Fault::Before, Outcome::Approve).await;
}

#[tokio::test]
async fn a_link_cut_after_any_frame_loses_and_doubles_nothing() {
    at_each_frame(Blow::Cut, Fault::After, Outcome::Approve).await;
}

#[tokio::test]
async fn a_refusal_over_a_cut_link_stays_a_refusal() {
    at_each_frame(Blow::Cut, Fault::After, Outcome::Reject).await;
}

#[tokio::test]
async fn a_server_killed_before_any_frame_loses_and_doubles_nothing() {
    at_each_frame(Blow::Kill, Fault::Before, Outcome::Approve).await;
}

#[tokio::test]
async fn a_server_killed_after_any_frame_loses_and_doubles_nothing() {
    at_each_frame(Blow::Kill, Fault::After, Outcome::Reject).await;
}
