//! `countersign admin …`: for whoever owns the machine.

use store::{
    Store,
    cluster::{self, Cluster},
    data_folder::{DataFolder, DataFolderError},
};

use crate::{
    config::{DEFAULT_LISTEN, Place, Reach},
    serve::{self, Trouble},
};

/// Prints a new one-time link: for the first admin while there is none, else for an
/// admin's password. Works beside a running server and without one.
pub async fn reset(place: Place, name: Option<&str>) -> Result<(), Trouble> {
    let data = serve::data_path(&place)?;
    // A running server holds the folder and its cluster: then this only visits.
    let folder = match DataFolder::open(&data) {
        Ok(folder) => Some(folder),
        Err(DataFolderError::InUse { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let cluster = cluster::open(serve::source(&place, &data), &|line| eprintln!("{line}")).await?;
    let printed = print_link(&place, &cluster, name).await;
    if folder.is_some() {
        cluster.stop().await;
    } else {
        cluster.leave();
    }
    printed
}

async fn print_link(place: &Place, cluster: &Cluster, name: Option<&str>) -> Result<(), Trouble> {
    let reach = Reach::new(place.public_url.as_ref(), place.listen.unwrap_or(DEFAULT_LISTEN));
    let store = Store::connect(cluster.options(), 2, &reach.url, uuid::Uuid::now_v7).await?;
    store.migrate().await?;
    if store::user::has_admin(&store).await? || name.is_some() {
        let (name, token) = store::user::admin_reset(&store, name).await?;
        println!("{name} sets a new password at {}", store.link_url(&token));
    } else {
        let token = store::user::first_admin_link(&store).await?;
        println!("The first admin sets name and password at {}/setup/{}", reach.url, token.reveal());
    }
    println!("The link works once, for {} hours.", store::user::LINK_HOURS);
    Ok(())
}
