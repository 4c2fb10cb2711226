//! The folder of the unix socket. Being able to enter it is the authentication
//! of a private cluster, so a folder somebody else made is refused, never mended.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::ClusterError;
use crate::account::Account;

/// Only part of the socket's name; nothing listens on TCP.
pub(crate) const PORT: u16 = 5432;
/// What Postgres puts into the folder; the lock file has the longest name.
const LONGEST_NAME: &str = "/.s.PGSQL.5432.lock";
/// `sun_path` holds 104 bytes on macOS and 108 on Linux.
const LONGEST_PATH: usize = 100;

/// Where the socket of the cluster in `data` goes: a short path that two data
/// folders never share.
pub(crate) fn folder_for(data: &Path, runtime: Option<&Path>, uid: u32) -> PathBuf {
    let digest = hex::encode(&Sha256::digest(data.as_os_str().as_bytes())[..4]);
    runtime
        .filter(|runtime| runtime.is_absolute() && runtime.is_dir())
        .map(|runtime| runtime.join(format!("cs-{digest}")))
        .filter(|folder| folder.as_os_str().len() + LONGEST_NAME.len() <= LONGEST_PATH)
        // Postgres reads the setting as a list with quotes.
        .filter(|folder| {
            folder.as_os_str().as_bytes().iter().all(|&b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))
        })
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/cs-pg-{uid}-{digest}")))
}

/// [`folder_for`] this process.
pub(crate) fn folder(data: &Path, account: Option<Account>) -> PathBuf {
    let Some(account) = account else {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        return folder_for(data, runtime.as_deref(), rustix::process::geteuid().as_raw());
    };
    // Root's runtime folder cannot be entered by the account.
    folder_for(data, None, account.uid)
}

/// Makes the folder, or checks the one that is there.
pub(crate) fn make(folder: &Path, account: Option<Account>) -> Result<(), ClusterError> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => {}
        Err(cause) if cause.kind() == ErrorKind::AlreadyExists => {}
        Err(source) => {
            return Err(ClusterError::Io {
                doing: format!("making the folder {}", folder.display()),
                source,
            });
        }
    }
    if let Some(account) = account {
        // A folder of root itself: just made, or left by a start that was killed here.
        let metadata = folder.symlink_metadata().map_err(ClusterError::io("reading the socket folder"))?;
        if metadata.is_dir() && metadata.uid() == 0 {
            std::os::unix::fs::lchown(folder, Some(account.uid), Some(account.gid))
                .map_err(ClusterError::io("giving the socket folder to countersign"))?;
        }
    }
    check(folder, account)
}

/// Removes the socket of a cluster that is known to be gone. Postgres would do it,
/// unless the number in the socket's lock file is somebody's again.
pub(crate) fn clear(folder: &Path) -> Result<(), ClusterError> {
    for name in [".s.PGSQL.5432", ".s.PGSQL.5432.lock"] {
        match std::fs::remove_file(folder.join(name)) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => {
                return Err(ClusterError::Io { doing: "removing an old socket".to_owned(), source: cause });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether nobody else can have put a socket into the folder.
pub(crate) fn check(folder: &Path, account: Option<Account>) -> Result<(), ClusterError> {
    let refuse = |why: String| ClusterError::SocketFolder { folder: folder.to_owned(), why };
    let owner = account.map_or_else(|| rustix::process::geteuid().as_raw(), |account| account.uid);
    let metadata = folder.symlink_metadata().map_err(|cause| refuse(cause.to_string()))?;
    if !metadata.is_dir() {
        return Err(refuse("it is not a folder".into()));
    }
    if metadata.uid() != owner {
        return Err(refuse(format!("it belongs to the user with the id {}, not {owner}", metadata.uid())));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(refuse(format!("others may enter it (mode {:03o})", metadata.mode() & 0o777)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_short_whatever_the_data_folder() {
        let long = PathBuf::from(format!("/{}", "x".repeat(300)));
        let folder = folder_for(&long, Some(Path::new("/nowhere")), u32::MAX);
        assert!(folder.as_os_str().len() + LONGEST_NAME.len() <= LONGEST_PATH);
        assert!(folder.starts_with("/tmp"));
        assert_ne!(folder, folder_for(Path::new("/other"), None, u32::MAX));
    }

    #[test]
    fn the_runtime_folder_is_used_where_it_is_short_and_there() {
        assert!(folder_for(Path::new("/data"), Some(Path::new("/usr")), 1).starts_with("/usr"));
    }

    #[test]
    fn a_folder_others_may_enter_is_refused() {
        assert!(matches!(check(Path::new("/tmp"), None), Err(ClusterError::SocketFolder { .. })));
        assert!(matches!(check(Path::new("/etc/hosts"), None), Err(ClusterError::SocketFolder { .. })));
    }
}
