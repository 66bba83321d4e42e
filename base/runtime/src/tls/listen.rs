//! Accepting: TCP connections are taken at once, and their handshakes run beside one another, each with
//! its own time limit, so that a slow peer holds up nobody.

use super::{Tls, plain};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tonic::transport::server::Connected;

const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);
/// Handshakes under way at once; more wait in the kernel's queue.
const HANDSHAKES_MAX: usize = 2048;
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
/// First byte of every TLS connection: the record type of a handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// What is spoken inside: how a peer without TLS is told what is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// gRPC; client certificates are asked for.
    Rpc,
    /// HTTP.
    Http,
    /// The Redis protocol.
    Resp,
}

/// Who is at the other end of a connection; in the extensions of each of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Where it comes from.
    pub address: SocketAddr,
    /// It has shown a certificate of our CA.
    pub has_certificate: bool,
}

/// A server's end of a connection, after its handshake.
#[derive(Debug)]
pub struct TlsStream {
    inner: tokio_rustls::server::TlsStream<TcpStream>,
    peer: Peer,
}

/// Accepts connections and hands them on after their handshakes.
#[derive(Debug)]
pub struct TlsListener {
    listener: TcpListener,
    tls: Tls,
    speaks: Speaks,
    handshakes: JoinSet<Option<TlsStream>>,
}

impl TlsListener {
    /// Listens with the newest certificates of `tls`.
    pub fn new(listener: TcpListener, tls: Tls, speaks: Speaks) -> Self {
        Self { listener, tls, speaks, handshakes: JoinSet::new() }
    }

    /// The next connection whose handshake is done. Safe to cancel.
    pub async fn accept(&mut self) -> TlsStream {
        loop {
            let room = self.handshakes.len() < HANDSHAKES_MAX;
            let busy = !self.handshakes.is_empty();
            tokio::select! {
                done = self.handshakes.join_next(), if busy => {
                    if let Some(Ok(Some(stream))) = done {
                        return stream;
                    }
                }
                accepted = self.listener.accept(), if room => match accepted {
                    Ok((stream, from)) => self.begin(stream, from),
                    Err(error) => {
                        // Out of descriptors, most likely: let some close.
                        tracing::warn!(%error, "connection not accepted");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                },
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, from: SocketAddr) {
        let (tls, speaks) = (self.tls.clone(), self.speaks);
        self.handshakes.spawn(async move {
            let shaken = timeout(HANDSHAKE_WITHIN, handshake(stream, from, &tls, speaks)).await;
            let (reason, problem) = match shaken {
                Ok(Ok(stream)) => return Some(stream),
                Ok(Err(Failed::Plain)) => ("plain", "it does not speak TLS".to_owned()),
                Ok(Err(Failed::Tls(error))) => ("tls", error.to_string()),
                Err(_) => ("timeout", "it did not finish in time".to_owned()),
            };
            metrics::counter!("undb_tls_handshake_failures_total", "reason" => reason).increment(1);
            tracing::debug!(%from, reason, problem, "tls handshake failed");
            None
        });
    }
}

enum Failed {
    Plain,
    Tls(io::Error),
}

async fn handshake(
    stream: TcpStream,
    from: SocketAddr,
    tls: &Tls,
    speaks: Speaks,
) -> Result<TlsStream, Failed> {
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    let seen = stream.peek(&mut first).await.map_err(Failed::Tls)?;
    if seen == 1 && first[0] != HANDSHAKE_RECORD {
        plain::answer(stream, speaks).await;
        return Err(Failed::Plain);
    }
    let now = tls.now();
    let Some(servers) = &now.server else {
        return Err(Failed::Tls(io::Error::other("there is no certificate to show")));
    };
    let config = if speaks == Speaks::Rpc { &servers.rpc } else { &servers.public };
    let inner = TlsAcceptor::from(config.clone()).accept(stream).await.map_err(Failed::Tls)?;
    // The verifier has checked what was shown, else the handshake had failed.
    let has_certificate = inner.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
    Ok(TlsStream { inner, peer: Peer { address: from, has_certificate } })
}

impl Connected for TlsStream {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl axum::serve::Listener for TlsListener {
    type Io = TlsStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (TlsStream, SocketAddr) {
        let stream = TlsListener::accept(self).await;
        let address = stream.peer.address;
        (stream, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}
