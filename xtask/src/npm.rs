//! Packages of npm that are only used while building, at exact versions, in
//! `target/tools/<name>`. Their scripts are not run.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::{Places, run};

/// `wasm-opt`, as a program for Node.
pub const BINARYEN: Package = Package { name: "binaryen", version: "132.0.0" };
/// The typeface.
pub const INTER: Package = Package { name: "@fontsource-variable/inter", version: "5.3.0" };

/// One package at one version.
pub struct Package {
    name: &'static str,
    version: &'static str,
}

impl Package {
    /// Its folder, fetched when it is not there yet. The error is a clause.
    pub fn folder(&self, places: &Places) -> Result<PathBuf, String> {
        let tools = places.target.join("tools");
        let short = self.name.rsplit('/').next().unwrap_or(self.name);
        let prefix = tools.join(format!("{short}-{}", self.version));
        let package = prefix.join("node_modules").join(self.name);
        if package.exists() {
            return Ok(package);
        }
        if !run::works("node") || !run::works("npm") {
            return Err("Node is not installed".to_owned());
        }
        // Named last, so that an interrupted download is not taken for the package.
        let fresh = tools.join(format!("{short}.new"));
        let _ = fs::remove_dir_all(&fresh);
        fs::create_dir_all(&fresh).map_err(|cause| cause.to_string())?;
        println!("    fetching {} {} with npm", self.name, self.version);
        let told = Command::new("npm")
            .args([
                "install",
                "--ignore-scripts",
                "--no-save",
                "--no-audit",
                "--no-fund",
                "--loglevel=error",
                "--prefix",
            ])
            .arg(&fresh)
            .arg(format!("{}@{}", self.name, self.version))
            .current_dir(&fresh)
            .stdin(Stdio::null())
            .output()
            .map_err(|cause| cause.to_string())?;
        if !told.status.success() {
            let words = String::from_utf8_lossy(&told.stderr);
            let line = words.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason");
            return Err(format!("npm said: {}", line.trim().trim_end_matches('.')));
        }
        let _ = fs::remove_dir_all(&prefix);
        fs::rename(&fresh, &prefix).map_err(|cause| cause.to_string())?;
        Ok(package)
    }
}
