//! Listening and serving.

use super::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, Routes, STREAM_WINDOW_BYTES};
use crate::tls::{Speaks, TlsListener};
use crate::{RuntimeError, Shutdown, Tls};
use std::io::ErrorKind;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
const STREAMS_MAX_PER_CONNECTION: u32 = 10_000;
/// How long calls that are under way may still take after the end has begun. Streams that live for
/// ever are cut then; a server that wants to drain them does so before it begins the end here.
const DRAIN: Duration = Duration::from_secs(1);

/// Listens on HOST:PORT; port 0 takes any free one. `what` names the setting in errors, for example
/// `--api` or `listen`.
pub async fn bind(address: &str, what: &str) -> Result<TcpListener, RuntimeError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => RuntimeError::PortInUse { what: what.into(), address: address.into() },
        _ => RuntimeError::Bind { what: what.into(), address: address.into(), source },
    })
}

/// Serves until the end begins; then takes no more calls, and returns when those under way are done
/// or a short time is over.
pub async fn serve(listener: TcpListener, routes: Routes, shutdown: Shutdown) -> Result<(), RuntimeError> {
    serve_over(listener, None, routes, shutdown).await
}

/// The same over TLS, if there is one: then only connections with it reach the services.
pub async fn serve_over(
    listener: TcpListener,
    tls: Option<Tls>,
    routes: Routes,
    shutdown: Shutdown,
) -> Result<(), RuntimeError> {
    let mut server = Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX_PER_CONNECTION)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT));
    let begun = shutdown.token().cancelled_owned();
    let server = server.add_routes(routes);
    let serving = async move {
        match tls {
            None => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                server.serve_with_incoming_shutdown(incoming, begun).await
            }
            Some(tls) => {
                let listener = TlsListener::new(listener, tls, Speaks::Rpc);
                let incoming = futures::stream::unfold(listener, |mut listener| async move {
                    let stream = listener.accept().await;
                    Some((Ok::<_, std::io::Error>(stream), listener))
                });
                server.serve_with_incoming_shutdown(incoming, begun).await
            }
        }
    };
    let drained = async {
        shutdown.begun().await;
        tokio::time::sleep(DRAIN.min(shutdown.remaining())).await;
    };
    tokio::select! {
        result = serving => result.map_err(|e| RuntimeError::Serve(e.to_string())),
        () = drained => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_taken_port_says_so_and_what_to_do() {
        let first = bind("127.0.0.1:0", "--api").await.expect("a free port");
        let address = first.local_addr().expect("bound").to_string();
        let error = bind(&address, "--api").await.expect_err("taken").to_string();
        assert!(
            error.contains("port is in use") && error.contains("--api") && error.contains(&address),
            "{error}"
        );
    }

    #[tokio::test]
    async fn an_address_that_is_none_is_refused() {
        let error = bind("nonsense", "--api").await.expect_err("no address").to_string();
        assert!(error.contains("--api must be HOST:PORT"), "{error}");
    }

    #[tokio::test]
    async fn serving_ends_when_the_end_begins() {
        let listener = bind("127.0.0.1:0", "listen").await.expect("a free port");
        let shutdown = Shutdown::new(Duration::from_secs(1));
        shutdown.begin();
        serve(listener, Routes::default(), shutdown).await.expect("ends well");
    }
}
