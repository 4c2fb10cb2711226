//! What stands between a worker and the server: passes bytes on until it is told to
//! hold them, to let only some through, or to cut.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use crate::Result;

/// What becomes of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    /// Held back, in both directions.
    held: bool,
    /// Every connection of an older number is cut.
    cuts: u64,
}

/// One listening address in front of one server.
#[derive(Debug)]
pub struct Proxy {
    pub address: String,
    flow: watch::Sender<Flow>,
    /// Bytes that still pass before the cut; below 0: no end is set.
    left: Arc<AtomicI64>,
}

impl Proxy {
    pub async fn start(server: String) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let (flow, flows) = watch::channel(Flow { held: false, cuts: 0 });
        let left = Arc::new(AtomicI64::new(-1));
        let budget = Arc::clone(&left);
        tokio::spawn(async move {
            while let Ok((worker, _)) = listener.accept().await {
                let (server, flows, budget) = (server.clone(), flows.clone(), Arc::clone(&budget));
                tokio::spawn(async move {
                    // However it ends, both sides are closed.
                    let _ = pass(worker, &server, flows, budget).await;
                });
            }
        });
        Ok(Self { address, flow, left })
    }

    /// Cuts every connection now.
    pub fn cut(&self) {
        self.left.store(-1, Ordering::Relaxed);
        self.flow.send_modify(|flow| {
            flow.cuts += 1;
            flow.held = false;
        });
    }

    /// Holds everything back for a while, then cuts or lets go.
    pub async fn hold(&self, time: Duration, then_cut: bool) {
        self.flow.send_modify(|flow| flow.held = true);
        tokio::time::sleep(time).await;
        if then_cut {
            self.cut();
        } else {
            self.flow.send_modify(|flow| flow.held = false);
        }
    }

    /// Cuts after so many more bytes: in the middle of a frame as a rule.
    pub fn cut_after(&self, bytes: i64) {
        self.left.store(bytes, Ordering::Relaxed);
    }
}

async fn pass(
    mut worker: TcpStream,
    server: &str,
    flows: watch::Receiver<Flow>,
    left: Arc<AtomicI64>,
) -> Result<()> {
    let born = flows.borrow().cuts;
    // The server takes only its own name: the head of the request gets it.
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if worker.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let asked = worker.local_addr()?.to_string();
    let text = String::from_utf8_lossy(&head).replacen(&asked, server, 1);
    let mut server = TcpStream::connect(server).await?;
    server.set_nodelay(true)?;
    worker.set_nodelay(true)?;
    server.write_all(text.as_bytes()).await?;
    let (mut from_worker, mut to_worker) = worker.split();
    let (mut from_server, mut to_server) = server.split();
    tokio::select! {
        () = copy(&mut from_worker, &mut to_server, flows.clone(), born, &left) => {}
        () = copy(&mut from_server, &mut to_worker, flows, born, &left) => {}
    }
    Ok(())
}

async fn copy(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    mut flows: watch::Receiver<Flow>,
    born: u64,
    left: &AtomicI64,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            _ = flows.wait_for(|flow| flow.cuts != born) => return,
        };
        let Ok(read @ 1..) = read else { return };
        let Ok(flow) = flows.wait_for(|flow| !flow.held || flow.cuts != born).await.map(|flow| *flow) else {
            return;
        };
        if flow.cuts != born {
            return;
        }
        let budget = left.load(Ordering::Relaxed);
        if budget >= 0 {
            let read = i64::try_from(read).unwrap_or(i64::MAX);
            if budget < read {
                left.store(-1, Ordering::Relaxed);
                let some = usize::try_from(budget).unwrap_or(0);
                let _ = to.write_all(&buffer[..some]).await;
                return;
            }
            left.store(budget - read, Ordering::Relaxed);
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
