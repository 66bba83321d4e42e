//! Client connections.

use super::{CONNECTION_WINDOW_BYTES, Channel, STREAM_WINDOW_BYTES};
use crate::tls::Dialer;
use crate::{Bearer, Credentials, RuntimeError, Tls};
use std::time::Duration;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Endpoint;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
// IMPORTANT: without these a channel whose peer vanished behind a partition never recovers, because
// nothing ever tells it that the connection is dead.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);

/// A channel whose calls carry a token.
pub type AuthChannel = InterceptedService<Channel, Bearer>;

/// A channel to HOST:PORT. It connects with the first call and again after every loss, so this
/// never blocks and fails only for text that is no address. Needs a running tokio runtime.
pub fn channel(address: &str) -> Result<Channel, RuntimeError> {
    channel_over(address, None)
}

/// The same over TLS, if there is one: then the server must show a certificate of the CA for this host.
pub fn channel_over(address: &str, tls: Option<&Tls>) -> Result<Channel, RuntimeError> {
    let refuse = |reason: &str| RuntimeError::Address { address: address.into(), reason: reason.into() };
    let (host, port) = address.rsplit_once(':').ok_or_else(|| refuse("it has no port"))?;
    if host.is_empty() || host.contains(['/', '@', '?', '#']) {
        return Err(refuse("its host is not a name or a number"));
    }
    port.parse::<u16>().map_err(|_| refuse("its port is not a number up to 65535"))?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let endpoint =
        Endpoint::from_shared(format!("{scheme}://{address}")).map_err(|e| refuse(&e.to_string()))?;
    let endpoint = endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    let Some(tls) = tls else { return Ok(endpoint.connect_lazy()) };
    let dialer = Dialer::new(address, host, tls.clone());
    let dialer = dialer.ok_or_else(|| refuse("its host cannot stand in a certificate"))?;
    Ok(endpoint.connect_with_connector_lazy(dialer))
}

/// The same, with what the process shows: a token in every call, and TLS, if there are any.
pub fn auth_channel(address: &str, credentials: impl Into<Credentials>) -> Result<AuthChannel, RuntimeError> {
    let Credentials { bearer, tls } = credentials.into();
    Ok(InterceptedService::new(channel_over(address, tls.as_ref())?, bearer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_host_and_port_make_a_channel() {
        for good in ["127.0.0.1:7380", "store-1.undb:7400", "[::1]:7380"] {
            assert!(channel(good).is_ok(), "{good}");
        }
        for bad in ["", "localhost", ":7380", "localhost:http", "a:99999", "http://a:1", "a b:1"] {
            let error = channel(bad).expect_err(bad).to_string();
            assert!(error.contains("write HOST:PORT"), "{error}");
        }
    }
}
