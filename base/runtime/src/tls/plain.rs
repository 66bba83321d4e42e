//! What a peer is told that speaks without TLS to a listener that has it. Nothing that it sends reaches
//! a service.

use super::Speaks;
use axum::Router;
use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const RPC: &str = "this port speaks TLS and the call came without; give --ca-file FILE (undb), Options.tls (SDK), or [tls] in the configuration (a role)";
const HTTP: &str = "this port speaks TLS: use https:// and the CA of this proxy\n";
const RESP: &[u8] =
    b"-ERR this port speaks TLS: connect with rediss:// or `redis-cli --tls --cacert FILE`\r\n";

/// Answers one peer, in its own language. The caller limits the time.
pub(super) async fn answer(mut stream: TcpStream, speaks: Speaks) {
    if speaks == Speaks::Resp {
        let _gone = stream.write_all(RESP).await;
        let _gone = stream.shutdown().await;
        return;
    }
    let refusing = Router::new().fallback(move || async move { refusal(speaks) });
    let service = TowerToHyperService::new(refusing);
    let served =
        auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = served {
        tracing::debug!(error, "a peer without TLS was not told so");
    }
}

fn refusal(speaks: Speaks) -> Response<Body> {
    let response = match speaks {
        Speaks::Rpc => return tonic::Status::unauthenticated(RPC).into_http::<Body>(),
        _ => Response::builder().status(StatusCode::BAD_REQUEST).header(header::CONNECTION, "close"),
    };
    response.body(Body::from(HTTP)).unwrap_or_default()
}
