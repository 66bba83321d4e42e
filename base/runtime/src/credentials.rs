//! What a process shows where it connects, and what it asks of those who connect to it.

use crate::tls::{Peer, Tls};
use crate::{Bearer, TokenCheck};
use tonic::service::Interceptor;
use tonic::{Request, Status};

/// Shown with every connection that a process makes: the token, and with TLS the certificate.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The token.
    pub bearer: Bearer,
    /// None: connections are plain.
    pub tls: Option<Tls>,
}

impl Credentials {
    /// A token over TLS, if there is one.
    pub fn new(bearer: Bearer, tls: Option<Tls>) -> Self {
        Self { bearer, tls }
    }
}

impl From<Bearer> for Credentials {
    fn from(bearer: Bearer) -> Self {
        Self { bearer, tls: None }
    }
}

/// The check of services between the processes of a cluster: the token, and with TLS a certificate of
/// the cluster's CA.
#[derive(Clone, Debug)]
pub struct InternalCheck {
    token: TokenCheck,
    needs_certificate: bool,
}

impl InternalCheck {
    /// For a listener with `tls`, if any.
    pub fn new(token: TokenCheck, tls: Option<&Tls>) -> Self {
        Self { token, needs_certificate: tls.is_some() }
    }
}

impl Interceptor for InternalCheck {
    fn call(&mut self, request: Request<()>) -> Result<Request<()>, Status> {
        self.token.check(request.metadata())?;
        let shown = request.extensions().get::<Peer>().is_some_and(|peer| peer.has_certificate);
        if self.needs_certificate && !shown {
            return Err(Status::unauthenticated(
                "this service is for the cluster's own processes and asks for a client certificate of its CA; set cert_file and key_file in [tls] of the caller (undb: --cert-file and --cert-key-file)",
            ));
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_peer_with_a_certificate_passes_where_one_is_needed() {
        let peer = |has_certificate| {
            let mut request = Request::new(());
            let address = ([127, 0, 0, 1], 1).into();
            request.extensions_mut().insert(Peer { address, has_certificate });
            request
        };
        let mut check = InternalCheck { token: TokenCheck::default(), needs_certificate: true };
        assert!(check.call(peer(true)).is_ok());
        for refused in [peer(false), Request::new(())] {
            let status = check.call(refused).expect_err("refused");
            assert_eq!(status.code(), tonic::Code::Unauthenticated);
            assert!(status.message().contains("cert_file"), "{status}");
        }
        let mut plain = InternalCheck::new(TokenCheck::default(), None);
        assert!(plain.call(Request::new(())).is_ok());
    }
}
