//! `countersign serve`: from nothing to listening, and back in order.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::serve::ListenerExt as _;
use leptos::config::LeptosOptions;
use store::{
    Store,
    cluster::{self, Source},
    data_folder::DataFolder,
};
use tokio::{net::TcpListener, signal::unix::SignalKind, sync::watch};

use crate::{
    auth::limit::Limiter,
    background,
    config::{DEFAULT_LISTEN, PORTS_TRIED, Place, Reach, Settings},
    gateway::Links,
    local_worker, routes, site,
    state::AppState,
};

/// Why the server does not start, in words for the terminal.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("{0}")]
    InUse(#[from] store::data_folder::DataFolderError),
    #[error("There is no home folder to keep the data in. Choose one with --data.")]
    NoHome,
    #[error("{0}")]
    Cluster(#[from] cluster::ClusterError),
    #[error("{}", store_trouble(.0))]
    Store(#[from] store::Error),
    #[error("The address {at} cannot be listened on: {why}. Choose another with --listen.")]
    Listen { at: SocketAddr, why: std::io::Error },
    #[error("The server stopped: {0}.")]
    Serve(#[from] std::io::Error),
}

fn store_trouble(error: &store::Error) -> String {
    match error {
        store::Error::Database(sqlx) => format!(
            "The database cannot be used: {sqlx}. Check DATABASE_URL, or leave it out to use a private database."
        ),
        other => format!("The database cannot be used: {other}."),
    }
}

pub fn data_path(place: &Place) -> Result<PathBuf, Trouble> {
    place.data.clone().or_else(DataFolder::default_path).ok_or(Trouble::NoHome)
}

pub fn source(place: &Place, data: &std::path::Path) -> Source {
    match &place.database_url {
        Some(url) => Source::Url(url.clone()),
        None => Source::Private { data: data.to_owned() },
    }
}

pub async fn serve(settings: Settings) -> Result<(), Trouble> {
    let began = std::time::Instant::now();
    let data = data_path(&settings.place)?;
    let folder = DataFolder::open(&data)?;
    let (end, ending) = watch::channel(false);
    // Signals count from here on: a Ctrl-C during the start must end Postgres too.
    let stop = stop_signal();
    let cluster = cluster::open(source(&settings.place, &data), &|line| eprintln!("{line}")).await?;
    let served = with_cluster(&settings, &data, cluster.options(), end, ending, stop, began).await;
    // In this order: sessions, links, pages, then the database.
    cluster.stop().await;
    drop(folder);
    served
}

async fn with_cluster(
    settings: &Settings,
    data: &std::path::Path,
    options: store::PgConnectOptions,
    end: watch::Sender<bool>,
    ending: watch::Receiver<bool>,
    stop: impl Future<Output = ()> + Send + 'static,
    began: std::time::Instant,
) -> Result<(), Trouble> {
    let (listener, at) = listen(settings.place.listen).await?;
    let reach = Reach::new(settings.place.public_url.as_ref(), at);
    let store = Store::connect(options, settings.db_connections, &reach.url, uuid::Uuid::now_v7).await?;
    store.migrate().await?;
    let site = site::folder(settings.site.as_deref());
    let state = AppState {
        store: store.clone(),
        site: site::read(site.as_deref()),
        links: Arc::new(Links::default()),
        limiter: Arc::new(Limiter::default()),
        ending: ending.clone(),
        leptos: LeptosOptions::builder().output_name("countersign").build(),
        reach: Arc::new(reach.clone()),
    };
    let changes = tokio::spawn(store.changes().clone().run(store.pool().clone()));
    tokio::spawn(background::expire(store.clone(), ending.clone()));
    tokio::spawn(background::unlink_silent(store.clone(), ending.clone()));
    // Workers are ended before pages and links close, so that they can report.
    let (end_worker, worker_ending) = watch::channel(false);
    let worker = match (settings.no_worker, local_worker::program()) {
        (true, _) => None,
        (false, None) => {
            tracing::warn!("countersign-worker is not beside this program: no local worker is started");
            None
        }
        (false, Some(program)) => {
            let server = format!("http://{}:{}", loopback(at), at.port());
            Some(tokio::spawn(local_worker::keep(
                store.clone(),
                program,
                data.to_owned(),
                server,
                worker_ending,
            )))
        }
    };
    announce(&store, &reach, at).await?;
    tracing::info!("started in {} ms", began.elapsed().as_millis());

    let router = routes::router(state, site.as_deref());
    let finish = async move {
        stop.await;
        eprintln!("Ending. Sessions are closed first.");
        let _ = end_worker.send(true);
        if let Some(worker) = worker {
            let _ = worker.await;
        }
        let _ = end.send(true);
    };
    let mut closed = ending.clone();
    let served = axum::serve(
        // Nagle's algorithm would hold streamed pages back for 40 ms.
        listener.tap_io(|socket| {
            let _ = socket.set_nodelay(true);
        }),
        router.into_make_service_with_connect_info::<SocketAddr>(),
    )
    .with_graceful_shutdown(finish);
    let mut served = std::pin::pin!(served.into_future());
    let result = tokio::select! {
        served = &mut served => served,
        _ = closed.changed() => {
            // Open sockets are told; whoever stays longer is cut off.
            match tokio::time::timeout(Duration::from_secs(5), &mut served).await {
                Ok(served) => served,
                Err(_) => Ok(()),
            }
        }
    };
    changes.abort();
    store.pool().close().await;
    result.map_err(Trouble::from)
}

fn loopback(at: SocketAddr) -> String {
    if at.ip().is_unspecified() || at.ip().is_loopback() && at.is_ipv4() {
        "127.0.0.1".to_owned()
    } else if at.is_ipv6() {
        format!("[{}]", at.ip())
    } else {
        at.ip().to_string()
    }
}

/// The address asked for, or the default one and the next free port after it.
async fn listen(asked: Option<SocketAddr>) -> Result<(TcpListener, SocketAddr), Trouble> {
    let first = asked.unwrap_or(DEFAULT_LISTEN);
    let tries = if asked.is_some() { 1 } else { PORTS_TRIED };
    let mut last = None;
    for step in 0..tries {
        let at = SocketAddr::new(first.ip(), first.port() + step);
        match TcpListener::bind(at).await {
            Ok(listener) => {
                if step > 0 {
                    eprintln!("Port {} is taken; using {}.", first.port(), at.port());
                }
                let at = listener.local_addr().unwrap_or(at);
                return Ok((listener, at));
            }
            Err(why) if asked.is_none() && why.kind() == std::io::ErrorKind::AddrInUse => last = Some(why),
            Err(why) => return Err(Trouble::Listen { at, why }),
        }
    }
    Err(Trouble::Listen { at: first, why: last.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()) })
}

/// Says where the server is. While no admin exists, a new link for the first one is
/// printed at every start, here and nowhere else.
async fn announce(store: &Store, reach: &Reach, at: SocketAddr) -> Result<(), Trouble> {
    if !reach.url.ends_with(&at.to_string()) {
        println!("Listening on {at}");
    }
    println!("Countersign is at {}", reach.url);
    if !store::user::has_admin(store).await? {
        let token = store::user::first_admin_link(store).await?;
        println!("The first admin sets name and password at {}/setup/{}", reach.url, token.reveal());
        println!("The link works once, for {} hours.", store::user::LINK_HOURS);
    }
    Ok(())
}

/// Resolves at SIGINT or SIGTERM. A second one ends the process at once.
fn stop_signal() -> impl Future<Output = ()> + Send + 'static {
    let signals = (
        tokio::signal::unix::signal(SignalKind::interrupt()),
        tokio::signal::unix::signal(SignalKind::terminate()),
    );
    async move {
        let (Ok(mut interrupt), Ok(mut terminate)) = signals else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tokio::spawn(async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            eprintln!(
                "Ended at once. Sessions and the private database may still run; the next start finds them."
            );
            std::process::exit(130);
        });
    }
}
