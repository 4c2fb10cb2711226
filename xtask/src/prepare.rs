//! `cargo xtask prepare`: what the queries of `store` mean, asked of a real
//! database with the migrations and written to `.sqlx`, so that everybody else
//! compiles without one.
//!
//! The macros of sqlx write one file a query into `SQLX_OFFLINE_DIR` while they
//! are expanded against a live database; that is all `cargo sqlx prepare` does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use crate::scratch::Scratch;
use crate::{Failure, Places, run};

/// Renews `.sqlx`, or with `--check` fails when it is not up to date.
pub fn prepare(places: &Places, arguments: &[String]) -> Result<(), Failure> {
    let check = match arguments {
        [] => false,
        [only] if only == "--check" => true,
        _ => return Err("prepare takes no argument but --check.".to_owned()),
    };
    Scratch::build(places)?;
    let scratch = Scratch::start(places, Some(&places.root.join("migrations")))?;
    let url = scratch.migrated.as_deref().ok_or("The scratch cluster has no database.")?;
    let fresh = places.target.join("xtask/sqlx");
    let _ = fs::remove_dir_all(&fresh);
    fs::create_dir_all(&fresh).map_err(|cause| format!("{} can't be made: {cause}.", fresh.display()))?;
    // Cargo knows nothing of the database, so it must be told to compile again.
    let library = places.root.join("crates/store/src/lib.rs");
    fs::File::options()
        .append(true)
        .open(&library)
        .and_then(|file| file.set_modified(SystemTime::now()))
        .map_err(|cause| format!("{} can't be touched: {cause}.", library.display()))?;
    let mut cargo = run::cargo(places, &["check", "-p", "store", "--all-targets"]);
    cargo.env("DATABASE_URL", url).env("SQLX_OFFLINE", "false").env("SQLX_OFFLINE_DIR", &fresh);
    run::run(&mut cargo)?;
    let new = queries(&fresh)?;
    if new.is_empty() {
        return Err("No query was found, so .sqlx was left as it is.".to_owned());
    }
    let folder = places.root.join(".sqlx");
    let old = queries(&folder).unwrap_or_default();
    if new == old {
        println!(".sqlx is up to date: {} queries.", new.len());
        return Ok(());
    }
    if check {
        return Err(".sqlx is out of date. Renew it with: cargo xtask prepare".to_owned());
    }
    let io = |cause: std::io::Error| format!("{} can't be written: {cause}.", folder.display());
    fs::create_dir_all(&folder).map_err(io)?;
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        fs::remove_file(folder.join(name)).map_err(io)?;
    }
    for (name, text) in &new {
        fs::write(folder.join(name), text).map_err(io)?;
    }
    println!(".sqlx holds {} queries now.", new.len());
    Ok(())
}

fn queries(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let io = |cause: std::io::Error| format!("{} can't be read: {cause}.", folder.display());
    let mut queries = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with("query-") {
            queries.insert(name, fs::read(entry.path()).map_err(io)?);
        }
    }
    Ok(queries)
}
