//! What a client is told: where, who, and how long.

use std::path::PathBuf;
use std::time::Duration;
use undb_runtime::{Bearer, Credentials, Tls, TlsOptions};

use crate::{Error, Result};

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Access addresses, `HOST:PORT`; any one that answers is enough.
    pub endpoints: Vec<String>,
    /// Sent as `authorization: Bearer TOKEN` with every call; none on an open cluster.
    pub token: Option<String>,
    /// The cluster's CA, and a certificate to show if it asks for one; none where it speaks plain.
    /// Files are read again when they change.
    pub tls: Option<TlsOptions>,
    /// Who is charged; empty: the token's own tenant.
    pub tenant: String,
    /// How long to wait for what.
    pub timeouts: Timeouts,
    /// Streams to each store, 1 to 4. More than one helps when values are large.
    pub connections_per_store: usize,
    /// Directory for the last good routes, so that a client can start while the control plane is away.
    /// None: memory only. One process at a time.
    pub cache_dir: Option<PathBuf>,
}

impl Options {
    /// Defaults, at these addresses.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            token: None,
            tls: None,
            tenant: String::new(),
            timeouts: Timeouts::default(),
            connections_per_store: 1,
            cache_dir: None,
        }
    }

    /// With this token, if there is one.
    pub fn token(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Over TLS, if there is any.
    pub fn tls(mut self, tls: Option<TlsOptions>) -> Self {
        self.tls = tls;
        self
    }

    /// What every connection of a client shows.
    pub(crate) fn credentials(&self) -> Result<Credentials> {
        let refuse = |e: undb_runtime::RuntimeError| Error::invalid(e.to_string());
        let bearer = Bearer::new(self.token.as_deref()).map_err(refuse)?;
        let tls = self.tls.clone().map(Tls::open).transpose().map_err(refuse)?;
        Ok(Credentials::new(bearer, tls))
    }

    /// With these timeouts.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }
}

/// How long to wait for what. A call ends by its total whatever happens to its attempts.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Finding the cluster in [`crate::Client::connect`]. Default 5 s.
    pub connect: Duration,
    /// A read with all its attempts. Default 10 s; lower it where a late answer is worth nothing.
    pub read: Duration,
    /// A write with all its attempts; after it the outcome is `Ambiguous`. Default 10 s.
    pub write: Duration,
    /// The first attempt at one store; later ones wait longer. Default 1 s.
    pub attempt: Duration,
    /// An admin call. Default 30 s.
    pub admin: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            read: Duration::from_secs(10),
            write: Duration::from_secs(10),
            attempt: Duration::from_secs(1),
            admin: Duration::from_secs(30),
        }
    }
}
