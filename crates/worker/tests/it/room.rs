//! A full disk, as a small file system in memory. Needs root; says loudly where it
//! cannot be had. What was promised is kept: nothing is handed over that is not
//! journalled, nothing that a harness said is lost, and all goes on when there is room.

use std::{io::Write as _, path::PathBuf, process::Command, time::Duration};

use domain::{event::EventBody, run::RunStatus};
use link::message::{EffectKind, ResolveOutcome};
use uuid::Uuid;

use crate::{
    lines,
    process::lives,
    world::{World, reject},
};

/// A small disk. Taken away with everything on it.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn new() -> Option<Self> {
        let path = std::env::temp_dir().join(format!("cs-disk-{}", Uuid::new_v4().simple()));
        std::fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs"]).arg(&path);
        let disk = Self { path };
        if mount.output().is_ok_and(|o| o.status.success()) {
            return Some(disk);
        }
        crate::skipped("no small disk can be mounted without root, so a full one was not tested here");
        None
    }

    /// Leaves no room at all.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.path.join("fill")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.path.join("fill")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_ends_the_worker_and_the_agent_waits_for_the_next() {
    let Some(disk) = Disk::new() else { return };
    let mut world =
        lines::claude_without_worker("can_use r 5; take; refused tr; idle; while take; do :; done").await;
    world.data.clone_from(&disk.path);
    world.spawn_logged();
    world.linked(1).await;
    let run = world.begin("go").await;
    let asked = world.request(0).await;
    let process = world.pid(run).await;
    disk.fill();
    // Longer than what may be left of a page.
    let decision = world.decision(&asked, reject(None, Some(&"no ".repeat(4000))));
    let answer = world.server.try_call(&decision).await;
    assert!(!matches!(answer, Some(Ok(_))), "{answer:?}");
    assert_eq!(world.exit_code().await, Some(5));
    let said = std::fs::read_to_string(world.folder.join("stderr")).unwrap();
    assert!(said.contains("cannot be written") && said.contains("Make room"), "{said}");
    assert!(lives(process));
    assert_eq!(world.file("answers"), None, "it was handed over without being journalled");
    disk.make_room();
    world.start().await;
    let mut again = decision;
    again.epoch = world.server.epoch();
    assert_eq!(world.server.call(&again).await.unwrap().outcome, ResolveOutcome::Applied);
    assert_eq!(world.effect(&asked.0.request_key).await, EffectKind::Refused);
    assert_eq!(world.ended(run).await.0, RunStatus::Completed);
    assert_eq!(world.file("answers").unwrap().lines().count(), 1);
    assert_eq!(world.pid(run).await, process);
    world.no_gap();
}

/// How many lines of a kilobyte an agent writes into a full disk.
const LINES: usize = 300;

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_says_while_the_disk_is_full_is_not_lost() {
    let Some(disk) = Disk::new() else { return };
    let body = format!(
        r#"text=$(head -c 1000 /dev/zero | tr '\0' x)
while [ ! -e begin ]; do sleep 0.05; done
i=0; while [ $i -lt {LINES} ]; do
  echo '{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"tool_call_update","toolCallId":"c'$i'","status":"completed","content":[{{"type":"content","content":{{"type":"text","text":"'$text'"}}}}]}}}}}}'
  i=$((i+1))
done
over
touch written; exit 0"#
    );
    let mut world = World::scripted_without_worker(&body).await;
    world.data.clone_from(&disk.path);
    world.start().await;
    let run = world.begin("go").await;
    let process = world.pid(run).await;
    disk.fill();
    std::fs::write(world.folder.join("work/begin"), "").unwrap();
    assert_eq!(world.exit_code().await, Some(5));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(lives(process) && world.file("written").is_none(), "the agent did not wait");
    disk.make_room();
    // It goes on with nobody there, and ends: what it said last waits in its holder.
    world.appears("written").await;
    world.start().await;
    assert_eq!(world.ended(run).await, (RunStatus::Completed, None));
    let seen = world.server.seen.lock().unwrap();
    let results: Vec<String> = seen
        .events
        .iter()
        .filter_map(|e| match &e.body {
            EventBody::Returned { call_id, .. } => Some(call_id.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(results, (0..LINES).map(|i| format!("c{i}")).collect::<Vec<_>>());
    drop(seen);
    world.no_gap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_be_noted_down_is_not_started() {
    let Some(disk) = Disk::new() else { return };
    let mut world = World::scripted_without_worker("over; cat").await;
    world.data.clone_from(&disk.path);
    world.start().await;
    let first = world.begin("go").await;
    assert_eq!(world.ended(first).await.0, RunStatus::Completed);
    disk.fill();
    let run = domain::id::RunId(Uuid::now_v7());
    // The prompt itself finds no room: it is never answered for, so the server asks again.
    let prompt = world.prompting(run, &"go ".repeat(4000));
    let reply = world.server.try_call(&prompt).await;
    assert!(!matches!(reply, Some(Ok(_))), "{reply:?}");
    assert_eq!(world.exit_code().await, Some(5));
    disk.make_room();
    world.start().await;
    let reply = world.prompt(run, "go").await;
    assert_eq!(reply.why, None);
}
