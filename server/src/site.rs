//! The built pages: WASM, script, style, fonts. Made by `cargo xtask build`.

use std::path::{Path, PathBuf};

use app::Site;
use serde::Deserialize;

/// `pkg/manifest.json`: the names with their content hashes.
#[derive(Debug, Deserialize)]
struct Manifest {
    #[serde(default)]
    js: Option<String>,
    #[serde(default)]
    wasm: Option<String>,
    css: String,
}

/// The folder given, or the one beside the program, or the one of a checkout.
pub fn folder(given: Option<&Path>) -> Option<PathBuf> {
    let beside = || {
        let program = std::env::current_exe().ok()?;
        let folder = program.parent()?;
        [folder.join("site"), folder.join("../site")].into_iter().find(|p| p.join("pkg").is_dir())
    };
    given.map(Path::to_path_buf).or_else(beside)
}

/// Reads the names. Without a built site the pages still work, plain and unstyled.
pub fn read(folder: Option<&Path>) -> Site {
    let manifest: Option<Manifest> = folder
        .and_then(|f| std::fs::read_to_string(f.join("pkg/manifest.json")).ok())
        .and_then(|text| serde_json::from_str(&text).ok());
    if manifest.is_none() {
        tracing::warn!("no built pages were found: run cargo xtask build, or set COUNTERSIGN_SITE");
    }
    let name = |n: String| format!("/pkg/{n}");
    Site {
        css: manifest.as_ref().map_or_else(|| "/pkg/countersign.css".to_owned(), |m| name(m.css.clone())),
        js: manifest.as_ref().and_then(|m| m.js.clone()).map(name),
        wasm: manifest.and_then(|m| m.wasm).map(name),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
