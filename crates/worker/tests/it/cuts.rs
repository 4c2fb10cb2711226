//! The link cut at any frame, in both directions. The worker and its harness live on.

use crate::{
    dialogue::{Agent, Course, Dialogue, until_over},
    server::Cut,
};

async fn cut(agent: Agent, course: Course, at: fn(u32) -> Cut) {
    if !agent.is_there() {
        return;
    }
    let cuts = until_over(async |n| {
        let label = format!("{agent:?}, {course:?}, cut {:?}", at(n));
        let mut dialogue = Dialogue::new(agent, course, label).await;
        dialogue.world.server.set(|seen| seen.cut = Some(at(n)));
        dialogue.world.spawn(&[]);
        dialogue.play().await;
        dialogue.holds();
        assert_eq!(dialogue.deaths, 0);
        dialogue.world.server.seen.lock().unwrap().cut.is_none()
    })
    .await;
    assert!(cuts >= 6, "{agent:?}, {course:?}: only {cuts} cuts");
}

macro_rules! cut {
    ($($name:ident: $agent:ident $course:ident $at:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            cut(Agent::$agent, Course::$course, Cut::$at).await;
        }
    )*};
}

cut! {
    an_approved_dialogue_stands_the_loss_of_each_frame_to_the_server: Shell Approve BeforeTaking;
    an_approved_dialogue_stands_a_cut_after_each_frame_to_the_server: Shell Approve AfterTaking;
    an_approved_dialogue_stands_the_loss_of_each_frame_to_the_worker: Shell Approve BeforeSending;
    an_approved_dialogue_stands_a_cut_after_each_frame_to_the_worker: Shell Approve AfterSending;
    a_rejected_dialogue_stands_the_loss_of_each_frame_to_the_server: Shell Reject BeforeTaking;
    a_rejected_dialogue_stands_a_cut_after_each_frame_to_the_server: Shell Reject AfterTaking;
    a_rejected_dialogue_stands_the_loss_of_each_frame_to_the_worker: Shell Reject BeforeSending;
    a_rejected_dialogue_stands_a_cut_after_each_frame_to_the_worker: Shell Reject AfterSending;
    a_cancelled_dialogue_stands_the_loss_of_each_frame_to_the_server: Shell Cancel BeforeTaking;
    a_cancelled_dialogue_stands_a_cut_after_each_frame_to_the_server: Shell Cancel AfterTaking;
    a_cancelled_dialogue_stands_the_loss_of_each_frame_to_the_worker: Shell Cancel BeforeSending;
    a_cancelled_dialogue_stands_a_cut_after_each_frame_to_the_worker: Shell Cancel AfterSending;
    a_stopped_dialogue_stands_the_loss_of_each_frame_to_the_server: Shell RejectAndStop BeforeTaking;
    a_stopped_dialogue_stands_a_cut_after_each_frame_to_the_server: Shell RejectAndStop AfterTaking;
    a_stopped_dialogue_stands_the_loss_of_each_frame_to_the_worker: Shell RejectAndStop BeforeSending;
    a_stopped_dialogue_stands_a_cut_after_each_frame_to_the_worker: Shell RejectAndStop AfterSending;
    claudes_approved_dialogue_stands_the_loss_of_each_frame_to_the_server: Claude Approve BeforeTaking;
    claudes_approved_dialogue_stands_a_cut_after_each_frame_to_the_server: Claude Approve AfterTaking;
    claudes_approved_dialogue_stands_the_loss_of_each_frame_to_the_worker: Claude Approve BeforeSending;
    claudes_approved_dialogue_stands_a_cut_after_each_frame_to_the_worker: Claude Approve AfterSending;
    claudes_rejected_dialogue_stands_the_loss_of_each_frame_to_the_server: Claude Reject BeforeTaking;
    claudes_rejected_dialogue_stands_a_cut_after_each_frame_to_the_server: Claude Reject AfterTaking;
    claudes_rejected_dialogue_stands_the_loss_of_each_frame_to_the_worker: Claude Reject BeforeSending;
    claudes_rejected_dialogue_stands_a_cut_after_each_frame_to_the_worker: Claude Reject AfterSending;
    claudes_cancelled_dialogue_stands_the_loss_of_each_frame_to_the_server: Claude Cancel BeforeTaking;
    claudes_cancelled_dialogue_stands_a_cut_after_each_frame_to_the_server: Claude Cancel AfterTaking;
    claudes_cancelled_dialogue_stands_the_loss_of_each_frame_to_the_worker: Claude Cancel BeforeSending;
    claudes_cancelled_dialogue_stands_a_cut_after_each_frame_to_the_worker: Claude Cancel AfterSending;
    claudes_stopped_dialogue_stands_the_loss_of_each_frame_to_the_server: Claude RejectAndStop BeforeTaking;
    claudes_stopped_dialogue_stands_a_cut_after_each_frame_to_the_server: Claude RejectAndStop AfterTaking;
    claudes_stopped_dialogue_stands_the_loss_of_each_frame_to_the_worker: Claude RejectAndStop BeforeSending;
    claudes_stopped_dialogue_stands_a_cut_after_each_frame_to_the_worker: Claude RejectAndStop AfterSending;
}
