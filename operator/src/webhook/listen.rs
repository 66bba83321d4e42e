//! HTTPS for the API server: a handshake with whatever certificate is served now.

use super::identity::Identity;
use crate::error::{Error, Result};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use undb_runtime::Shutdown;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Answers under way when the end begins.
const DRAIN: Duration = Duration::from_secs(5);

fn acceptor(identity: Identity) -> Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Fatal(format!("TLS: {e}")))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(identity));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Serves until the end begins; answers under way have a moment more.
pub async fn serve(
    listener: TcpListener,
    identity: Identity,
    router: axum::Router,
    shutdown: Shutdown,
) -> Result<()> {
    let acceptor = acceptor(identity)?;
    let connections = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = shutdown.begun() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _peer)) => {
                connections.spawn(connection(acceptor.clone(), stream, router.clone(), shutdown.clone()));
            }
            Err(error) => {
                // Out of file descriptors, most likely: it passes.
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    connections.close();
    let _late_ones_are_cut = tokio::time::timeout(DRAIN.min(shutdown.remaining()), connections.wait()).await;
    Ok(())
}

async fn connection(acceptor: TlsAcceptor, stream: TcpStream, router: axum::Router, shutdown: Shutdown) {
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake took too long"),
    };
    let builder = Builder::new(TokioExecutor::new());
    let service = TowerToHyperService::new(router.into_service());
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = shutdown.begun() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended with an error");
    }
}
