//! Accepts Redis connections and moves bytes between them and their sessions.

use crate::Failure;
use crate::cursors::Cursors;
use crate::keyspace::Keyspace;
use crate::resp::{Protocol, Reply, parse};
use crate::session::{Session, Step};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesOrdered;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use undb_runtime::tls::TlsListener;
use undb_runtime::{Clock, Shutdown, TokenCheck};

const IN_FLIGHT_MAX: usize = 256;
const READ_BYTES: usize = 64 * 1024;
const OUT_BYTES_MAX: usize = 256 * 1024;
/// First byte of a client that tries TLS; no command begins with it.
const TLS_HANDSHAKE: u8 = 0x16;
const NO_TLS: &[u8] =
    b"-ERR this port speaks no TLS: connect with redis://, or set resp_tls in the proxy's configuration\r\n";

/// Finds a table by its name.
pub type Opener = Box<dyn Fn(String) -> BoxFuture<'static, Result<Arc<dyn Keyspace>, Failure>> + Send + Sync>;

/// What all connections share.
pub struct Shared {
    /// What clients must know.
    pub token: TokenCheck,
    /// SELECT numbers.
    pub tables: Vec<String>,
    /// SCANs under way.
    pub cursors: Arc<Cursors>,
    /// Time.
    pub clock: Clock,
    /// When this process began.
    pub started_ms: u64,
    /// Most connections at one time.
    pub connections_max: usize,
    open: Opener,
    connections: AtomicUsize,
    next_id: AtomicU64,
}

impl Shared {
    /// For tables that `open` finds.
    pub fn new(token: TokenCheck, tables: Vec<String>, connections_max: usize, open: Opener) -> Self {
        let clock = Clock::real();
        let tables = if tables.is_empty() { vec!["default".to_owned()] } else { tables };
        Self {
            token,
            tables,
            cursors: Arc::default(),
            started_ms: clock.now_ms(),
            clock,
            connections_max,
            open,
            connections: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
        }
    }

    /// Connections now.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// A table.
    pub async fn open(&self, name: &str) -> Result<Arc<dyn Keyspace>, Failure> {
        (self.open)(name.to_owned()).await
    }
}

/// Where Redis clients come in over TLS. Ends as `serve` does.
pub async fn serve_tls(mut listener: TlsListener, shared: Arc<Shared>, shutdown: Shutdown) {
    loop {
        tokio::select! {
            stream = listener.accept() => admit(stream, shared.clone(), shutdown.clone()),
            () = shutdown.begun() => return,
        }
    }
}

/// Serves until the end begins; commands under way are answered first.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>, shutdown: Shutdown) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.begun() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let _ = stream.set_nodelay(true);
                admit(stream, shared.clone(), shutdown.clone());
            }
            Err(error) => {
                // Out of descriptors, most likely: let some close.
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

/// A connection's two ways.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

fn admit(mut stream: impl Stream, shared: Arc<Shared>, shutdown: Shutdown) {
    let now = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
    let refused = now > shared.connections_max;
    tokio::spawn(async move {
        metrics::gauge!("undb_proxy_connections").increment(1.0);
        let ended = if refused {
            stream.write_all(b"-ERR max number of clients reached\r\n").await
        } else {
            let id = shared.next_id.fetch_add(1, Ordering::Relaxed);
            Connection::new(stream, Session::new(shared.clone(), id)).run(shutdown).await
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "connection ended");
        }
        metrics::gauge!("undb_proxy_connections").decrement(1.0);
        shared.connections.fetch_sub(1, Ordering::Relaxed);
    });
}

struct Connection<S> {
    stream: S,
    session: Session,
    input: BytesMut,
    output: BytesMut,
    running: FuturesOrdered<BoxFuture<'static, (Protocol, Reply)>>,
    // Keys of commands in flight; true: one of them writes.
    touched: HashMap<Bytes, bool>,
}

impl<S: Stream> Connection<S> {
    fn new(stream: S, session: Session) -> Self {
        Self {
            stream,
            session,
            input: BytesMut::with_capacity(READ_BYTES),
            output: BytesMut::new(),
            running: FuturesOrdered::new(),
            touched: HashMap::new(),
        }
    }

    async fn run(mut self, shutdown: Shutdown) -> io::Result<()> {
        loop {
            let open = self.take_commands().await?;
            self.drain().await?;
            self.flush().await?;
            if !open || shutdown.is_begun() {
                return Ok(());
            }
            let read = tokio::select! {
                read = self.stream.read_buf(&mut self.input) => read?,
                () = shutdown.begun() => return Ok(()),
            };
            if read == 0 {
                return Ok(());
            }
            if self.input.first() == Some(&TLS_HANDSHAKE) {
                return self.stream.write_all(NO_TLS).await;
            }
        }
    }

    /// Starts every whole command that has come in. False: the connection ends.
    async fn take_commands(&mut self) -> io::Result<bool> {
        loop {
            let args = match parse(&mut self.input) {
                Ok(Some(args)) if args.is_empty() => continue,
                Ok(Some(args)) => args,
                Ok(None) => return Ok(true),
                Err(error) => {
                    self.answer(Reply::error(format!("ERR {error}"))).await?;
                    return Ok(false);
                }
            };
            match self.session.step(args) {
                Step::Answer(reply) => self.answer(reply).await?,
                Step::Run { future, keys, write } => self.start(future, keys, write).await?,
                Step::Alone(future) => {
                    self.drain().await?;
                    let reply = self.session.selected(future.await);
                    self.answer(reply).await?;
                }
                Step::Close(reply) => {
                    self.answer(reply).await?;
                    return Ok(false);
                }
            }
        }
    }

    async fn answer(&mut self, reply: Reply) -> io::Result<()> {
        if self.running.is_empty() {
            reply.write(self.session.protocol, &mut self.output);
            return Ok(());
        }
        let protocol = self.session.protocol;
        self.push(Box::pin(async move { (protocol, reply) })).await
    }

    async fn start(
        &mut self,
        future: BoxFuture<'static, Reply>,
        keys: Vec<Bytes>,
        write: bool,
    ) -> io::Result<()> {
        let conflict = |key: &Bytes| self.touched.get(key).is_some_and(|writes| write || *writes);
        if keys.iter().any(conflict) {
            self.drain().await?;
        }
        for key in keys {
            *self.touched.entry(key).or_default() |= write;
        }
        let protocol = self.session.protocol;
        self.push(Box::pin(async move { (protocol, future.await) })).await
    }

    async fn push(&mut self, future: BoxFuture<'static, (Protocol, Reply)>) -> io::Result<()> {
        self.running.push_back(future);
        if self.running.len() >= IN_FLIGHT_MAX { self.drain().await } else { Ok(()) }
    }

    /// Waits for what is in flight and writes the answers.
    async fn drain(&mut self) -> io::Result<()> {
        while let Some((protocol, reply)) = self.running.next().await {
            reply.write(protocol, &mut self.output);
            if self.output.len() >= OUT_BYTES_MAX {
                self.flush().await?;
            }
        }
        self.touched.clear();
        Ok(())
    }

    async fn flush(&mut self) -> io::Result<()> {
        if !self.output.is_empty() {
            self.stream.write_all(&self.output).await?;
            self.output.clear();
        }
        Ok(())
    }
}
