//! Processes, as the kernel has them.

use std::{path::Path, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

/// Whether a process runs; one that only waits to be reaped does not.
pub fn lives(raw: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{raw}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

/// Waits until it no longer runs.
pub async fn ends(raw: u32) {
    for _ in 0..1200 {
        if !lives(raw) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("the process {raw} does not end");
}

pub fn parent(raw: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{raw}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

pub fn pid(raw: u32) -> Pid {
    Pid::from_raw(raw.cast_signed()).unwrap()
}

pub fn kill(raw: u32) {
    kill_process(pid(raw), Signal::KILL).unwrap();
}

/// Whether it is the holder that writes its log into this folder: the number a
/// `holder.json` names may be another process's by now.
pub fn is_holder_of(raw: u32, folder: &Path) -> bool {
    let log = folder.join("holder.log").canonicalize();
    std::fs::read_link(format!("/proc/{raw}/fd/2")).is_ok_and(|told| log.is_ok_and(|log| log == told))
}
