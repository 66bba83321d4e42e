//! TLS between processes, with identities that change while a process runs.
//!
//! ```text
//! cert, key, CA files --every 10 s--> read --> the same as before: nothing
//!                                       |----> good: the next handshake uses it
//!                                       `----> bad: the old one stays, an error and a metric say so
//! ```
//! Connections that are open go on with what they began with. The CA file is a bundle: a certificate of
//! any of its authorities is accepted, so that a CA is replaced by first adding the new one everywhere,
//! then changing certificates, then removing the old one.
//!
//! Invariants: a listener with TLS never hands on a connection without it; a session is never resumed,
//! so that every connection is checked against the newest CA.

mod dial;
mod identity;
mod listen;
mod plain;
mod validity;

pub(crate) use dial::Dialer;
pub use dial::{DialError, connect};
pub use listen::{Peer, Speaks, TlsListener, TlsStream};

use crate::RuntimeError;
use identity::Identity;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Where the certificates of a process lie: the table `[tls]` of a configuration. PEM files, read again
/// when they change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificates of the authorities that peers are checked against, in both directions; a bundle.
    pub ca_file: PathBuf,
    /// The own certificate, followed by those between it and the CA. A listener needs one; clients of
    /// tables do not.
    #[serde(default)]
    pub cert_file: Option<PathBuf>,
    /// Its private key.
    #[serde(default)]
    pub key_file: Option<PathBuf>,
}

/// The same in memory, for who keeps certificates elsewhere than in files.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsPem {
    /// As `ca_file`.
    pub ca: Vec<u8>,
    /// As `cert_file`.
    pub cert: Option<Vec<u8>>,
    /// As `key_file`.
    pub key: Option<Vec<u8>>,
}

impl std::fmt::Debug for TlsPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TlsPem(certificate: {})", self.cert.is_some())
    }
}

/// Where certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsOptions {
    /// Files, read again when they change.
    Files(TlsFiles),
    /// Memory; it stays as it is.
    Pem(TlsPem),
}

impl From<TlsFiles> for TlsOptions {
    fn from(files: TlsFiles) -> Self {
        Self::Files(files)
    }
}

impl From<TlsPem> for TlsOptions {
    fn from(pem: TlsPem) -> Self {
        Self::Pem(pem)
    }
}

/// What a process shows to peers and checks them against, always the newest. Clones are the same.
#[derive(Clone)]
pub struct Tls(Arc<Inner>);

struct Inner {
    options: TlsOptions,
    // Leaf lock, held for a clone.
    now: Mutex<Arc<Identity>>,
    // Leaf lock. The last problem that was logged, so that it is logged once.
    problem: Mutex<Option<String>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({:?})", self.0.options)
    }
}

impl Tls {
    /// Reads the certificates; an error names the file and what is wrong with it. Inside a tokio runtime
    /// files are watched from now on, for as long as a clone lives.
    pub fn open(options: impl Into<TlsOptions>) -> Result<Self, RuntimeError> {
        let options = options.into();
        let identity = Identity::read(&options)?;
        identity.report();
        let watched = matches!(options, TlsOptions::Files(_));
        let inner = Inner { options, now: Mutex::new(Arc::new(identity)), problem: Mutex::default() };
        let tls = Self(Arc::new(inner));
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && watched
        {
            // Ends with the last clone.
            runtime.spawn(watch(Arc::downgrade(&tls.0)));
        }
        Ok(tls)
    }

    /// For a process that listens: it must have a certificate.
    pub fn open_server(files: &TlsFiles) -> Result<Self, RuntimeError> {
        let tls = Self::open(files.clone())?;
        match tls.has_certificate() {
            true => Ok(tls),
            false => Err(RuntimeError::Tls {
                file: "[tls]".into(),
                problem: "a process that listens needs a certificate: set cert_file and key_file".into(),
            }),
        }
    }

    /// True when there is a certificate to show.
    pub fn has_certificate(&self) -> bool {
        self.now().server.is_some()
    }

    /// Certificates in the CA bundle that is in use.
    pub fn bundle_len(&self) -> usize {
        self.now().bundle_len
    }

    /// Looks at the files now. True: they have changed and are used from now on.
    pub fn reload(&self) -> Result<bool, RuntimeError> {
        let old = self.now();
        let next = Identity::read(&self.0.options)?;
        if next.content == old.content {
            return Ok(false);
        }
        if next.has_expired() && !old.has_expired() {
            let problem = "the new certificate has expired already; the old one stays in use";
            return Err(RuntimeError::Tls { file: next.name(), problem: problem.into() });
        }
        next.report();
        *self.0.now.lock() = Arc::new(next);
        Ok(true)
    }

    fn now(&self) -> Arc<Identity> {
        self.0.now.lock().clone()
    }

    /// Reloads, and tells who watches how it went.
    fn reload_and_tell(&self) {
        match self.reload() {
            Ok(changed) => {
                let repaired = self.0.problem.lock().take().is_some();
                if changed || repaired {
                    tracing::info!(changed, "tls certificates read");
                }
            }
            Err(error) => {
                metrics::counter!("undb_tls_reload_failures_total").increment(1);
                let error = error.to_string();
                let mut problem = self.0.problem.lock();
                if problem.as_ref() != Some(&error) {
                    tracing::error!(error, "tls certificates not reloaded, the old ones stay in use");
                    *problem = Some(error);
                }
            }
        }
    }
}

async fn watch(tls: Weak<Inner>) {
    // IMPORTANT: a metric that is never counted is not shown, and an alert on it would never be seen to work.
    metrics::counter!("undb_tls_reload_failures_total").increment(0);
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let Some(inner) = tls.upgrade() else { return };
        let _ended = tokio::task::spawn_blocking(move || Tls(inner).reload_and_tell()).await;
    }
}
