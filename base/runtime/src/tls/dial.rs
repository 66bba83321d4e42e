//! Dialling with TLS: the CA and the name that was dialled are checked in each handshake.

use super::Tls;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, Error};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const FIRST_WORD_WITHIN: Duration = Duration::from_millis(300);

/// Why there is no connection, for a person.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// No TCP connection.
    #[error("{address}: {source}")]
    Tcp { address: String, source: io::Error },
    /// No TLS on it.
    #[error("{address}: {problem}")]
    Tls { address: String, problem: String },
}

/// Who sends the first bytes after the handshake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    Client,
    Server,
}

/// One connection to HOST:PORT for a protocol in which the client speaks first.
pub async fn connect(address: &str, tls: &Tls) -> Result<TlsStream<TcpStream>, DialError> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let Some(dialer) = Dialer::new(address, host, tls.clone()) else {
        let problem = format!("`{host}` is neither a DNS name nor an IP address");
        return Err(DialError::Tls { address: address.to_owned(), problem });
    };
    dialer.dial(First::Client).await
}

/// Connects to one address, with the newest certificates each time.
#[derive(Clone)]
pub(crate) struct Dialer {
    address: String,
    name: ServerName<'static>,
    tls: Tls,
}

impl Dialer {
    /// `host` as it stands in `address`. `None`: it is neither a DNS name nor an IP address.
    pub fn new(address: &str, host: &str, tls: Tls) -> Option<Self> {
        let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        // The dot of a complete name is no part of the name in a certificate.
        let host = host.strip_suffix('.').unwrap_or(host);
        let name = ServerName::try_from(host.to_owned()).ok()?;
        Some(Self { address: address.to_owned(), name, tls })
    }

    async fn dial(self, speaks_first: First) -> Result<TlsStream<TcpStream>, DialError> {
        let Self { address, name, tls } = self;
        let stream = match TcpStream::connect(&address).await {
            Ok(stream) => stream,
            Err(source) => return Err(DialError::Tcp { address, source }),
        };
        let _ = stream.set_nodelay(true);
        let connector = TlsConnector::from(tls.now().client.clone());
        let connected = match connector.connect(name, stream).await {
            Ok(stream) if speaks_first == First::Server => heard(stream).await,
            connected => connected,
        };
        connected.map_err(|error| DialError::Tls { problem: problem(&error), address })
    }
}

impl tower::Service<axum::http::Uri> for Dialer {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: axum::http::Uri) -> Self::Future {
        let dialer = self.clone();
        Box::pin(async move { dialer.dial(First::Server).await.map(TokioIo::new) })
    }
}

/// In TLS 1.3 a server looks at our certificate after our side of the handshake is over. An HTTP/2 server
/// speaks first, so its first bytes, which stay unread, say that it took the certificate, and an alert in
/// their place says here why not; later it would be an error of some call, without a reason.
async fn heard(mut stream: TlsStream<TcpStream>) -> io::Result<TlsStream<TcpStream>> {
    match tokio::time::timeout(FIRST_WORD_WITHIN, stream.fill_buf()).await {
        Ok(Err(error)) => Err(error),
        // One that waits for us is no error.
        Ok(Ok(_)) | Err(_) => Ok(stream),
    }
}

/// What went wrong in a handshake, and what to do.
fn problem(error: &io::Error) -> String {
    use CertificateError as Bad;
    let tls = error.get_ref().and_then(|e| e.downcast_ref::<Error>());
    match tls {
        Some(Error::InvalidCertificate(bad)) => match bad {
            Bad::UnknownIssuer | Bad::BadSignature => {
                "its certificate is of another CA; give the CA file of this cluster".into()
            }
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "its certificate has expired; renew it, or check the clocks".into()
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "its certificate is not valid yet; check the clocks".into()
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                format!(
                    "its certificate is not for the name that was dialled ({tls}); dial one of its names, or add this one to it",
                    tls = bad
                )
            }
            other => format!("its certificate is not accepted: {other}"),
        },
        Some(Error::InvalidMessage(_)) => {
            "it does not speak TLS; leave --ca-file or [tls] away, or configure [tls] there".into()
        }
        Some(Error::AlertReceived(alert)) => refused(*alert),
        Some(other) => format!("TLS: {other}"),
        None => format!("the connection broke during the TLS handshake ({error}); does it speak TLS?"),
    }
}

fn refused(alert: AlertDescription) -> String {
    use AlertDescription as A;
    match alert {
        A::UnknownCA
        | A::BadCertificate
        | A::DecryptError
        | A::CertificateExpired
        | A::CertificateUnknown => {
            format!("it refuses our certificate ({alert:?}); give one that is valid and of its CA")
        }
        other => format!("it refuses the TLS handshake ({other:?})"),
    }
}
