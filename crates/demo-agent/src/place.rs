//! Where the agent may write: its own folder, and nothing a name or a link leads out to.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Component, Path, PathBuf},
};

/// A file inside the agent's folder, checked when it was named and again when written.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
    file: PathBuf,
}

impl Place {
    /// The file `name` in `folder`. The error is a sentence for people.
    pub fn of(folder: &Path, name: &str) -> Result<Self, String> {
        let outside = || format!("I do not write to \"{name}\": it is not inside my folder.");
        let path = Path::new(name);
        let mut parts = path.components().peekable();
        if parts.peek().is_none() || !parts.all(|c| matches!(c, Component::Normal(_))) {
            return Err(outside());
        }
        let folder = folder.canonicalize().map_err(|e| format!("My folder cannot be opened: {e}."))?;
        let place = Self { file: folder.join(path), folder };
        place.check().map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => outside(),
            _ => format!("I do not write to \"{name}\": {e}."),
        })?;
        Ok(place)
    }

    pub fn path(&self) -> &Path {
        &self.file
    }

    /// The folder of the file must be inside, and the file itself no link.
    fn check(&self) -> io::Result<()> {
        let parent = self.file.parent().unwrap_or(&self.folder).canonicalize()?;
        let is_link = self.file.symlink_metadata().is_ok_and(|m| m.is_symlink());
        if !parent.starts_with(&self.folder) || is_link {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        Ok(())
    }

    /// Appends `content` with one write.
    pub fn append(&self, content: &str) -> io::Result<()> {
        self.check()?;
        self.open()?.write_all(content.as_bytes())
    }

    fn open(&self) -> io::Result<File> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        OpenOptions::new().append(true).create(true).custom_flags(no_follow).open(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> PathBuf {
        let path = std::env::temp_dir().join(format!("demo-place-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        let f = folder();
        for name in ["", "/etc/passwd", "../x", "a/../../x", ".", "./../x"] {
            assert!(Place::of(&f, name).is_err(), "{name}");
        }
        std::fs::remove_dir_all(f).unwrap();
    }

    #[test]
    fn links_that_lead_out_are_refused_also_when_made_after_asking() {
        let (f, other) = (folder(), folder());
        std::os::unix::fs::symlink(&other, f.join("out")).unwrap();
        std::os::unix::fs::symlink(other.join("x"), f.join("link")).unwrap();
        assert!(Place::of(&f, "out/x").is_err());
        assert!(Place::of(&f, "link").is_err());
        let place = Place::of(&f, "later").unwrap();
        std::os::unix::fs::symlink(other.join("x"), f.join("later")).unwrap();
        assert!(place.append("no").is_err());
        assert!(!other.join("x").exists());
        std::fs::remove_dir_all(f).unwrap();
        std::fs::remove_dir_all(other).unwrap();
    }

    #[test]
    fn appending_adds_to_what_is_there() {
        let f = folder();
        let place = Place::of(&f, "a.txt").unwrap();
        place.append("1\n").unwrap();
        place.append("2\n").unwrap();
        assert_eq!(std::fs::read_to_string(place.path()).unwrap(), "1\n2\n");
        std::fs::remove_dir_all(f).unwrap();
    }
}
