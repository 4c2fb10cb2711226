//! A scratch cluster for a run of tests or of `cargo xtask prepare`.
//!
//! Prints the URL of its database `postgres` (for `COUNTERSIGN_SCRATCH`) on the
//! first line. With a folder of migrations as its argument it prints the URL of a
//! database that has them on the second. Holds until its input is closed.

use std::error::Error;
use std::path::Path;

use cluster::scratch::{self, Scratch};
use sqlx::migrate::Migrator;
use tokio::io::AsyncReadExt as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let scratch = Scratch::start().await?;
    println!("{}", scratch.url("postgres"));
    let _database = match std::env::args_os().nth(1) {
        Some(folder) => {
            let migrator = Migrator::new(Path::new(&folder)).await?;
            let database = scratch::in_cluster(&scratch, &migrator).await?;
            println!("{}", database.url());
            Some(database)
        }
        None => None,
    };
    let mut rest = Vec::new();
    tokio::io::stdin().read_to_end(&mut rest).await?;
    Ok(())
}
