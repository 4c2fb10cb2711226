//! `countersign-worker tether`: ties a harness to its holder, then becomes the harness.
//!
//! When a holder dies, the harness's standard input ends. Claude Code does not stop
//! then: it refuses the open call, asks the model again and goes on with nobody
//! watching. So the kernel is told to kill it together with its holder.

use std::{ffi::OsString, io, os::unix::process::CommandExt as _, path::PathBuf, process::Command};

/// This program, as it runs. Its file may be replaced or gone by now, after an update: a
/// holder must be the same program as its worker, or there is none at all.
pub fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        // Read by the new process, before it becomes another.
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe()
}

/// Sets the parent-death signal and executes `program`. Returns only on failure.
pub fn tether(parent: u32, program: &OsString, args: &[OsString]) -> io::Error {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, getppid, set_parent_process_death_signal};
        if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
            return error.into();
        }
        // The holder may have died before the signal was set; then nobody will send it.
        let now = getppid().map(|p| p.as_raw_nonzero().get().unsigned_abs());
        if now != Some(parent) {
            return io::Error::other("the holder is gone");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = parent;
    Command::new(program).args(args).exec()
}
