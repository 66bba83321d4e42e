//! Certificates as they were read once, and the two configurations made of them.

use super::{TlsOptions, TlsPem, validity};
use crate::RuntimeError;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Reads repeated until two in a row agree: a file may be replaced between the others.
const READS_MAX: usize = 4;
const HTTP_2: &[u8] = b"h2";

/// One generation of certificates.
pub(super) struct Identity {
    /// What it was made of, to see a change.
    pub content: TlsPem,
    /// For dialling.
    pub client: Arc<ClientConfig>,
    /// For listening; none without a certificate.
    pub server: Option<Servers>,
    pub bundle_len: usize,
    cert_file: Option<PathBuf>,
    not_after: Option<i64>,
}

/// For listening.
#[derive(Clone)]
pub(super) struct Servers {
    /// gRPC: asks for a client certificate and checks one that is shown.
    pub rpc: Arc<ServerConfig>,
    /// Anything else: asks for none.
    pub public: Arc<ServerConfig>,
}

impl Identity {
    pub fn read(options: &TlsOptions) -> Result<Self, RuntimeError> {
        let names = Names::of(options);
        let mut content = read(options)?;
        for _ in 1..READS_MAX {
            let again = read(options)?;
            if again == content {
                break;
            }
            content = again;
        }
        Self::new(content, &names)
    }

    fn new(content: TlsPem, names: &Names) -> Result<Self, RuntimeError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots(&content.ca, &names.ca)?);
        let bundle_len = roots.len();
        let own = match (&content.cert, &content.key) {
            (Some(cert), Some(key)) => Some((chain(cert, &names.cert)?, private_key(key, &names.key)?)),
            (None, None) => None,
            (Some(_), None) => {
                return refuse(&names.cert, "a certificate without its key: give the key file too");
            }
            (None, Some(_)) => {
                return refuse(&names.key, "a key without its certificate: give the certificate file too");
            }
        };
        let end = own.as_ref().and_then(|(chain, _)| validity::not_after(chain.first()?));
        let server = match &own {
            Some((chain, key)) => Some(Servers {
                rpc: rpc_config(&provider, roots.clone(), chain, key, names)?,
                public: public_config(&provider, chain, key, names)?,
            }),
            None => None,
        };
        let client = client_config(&provider, roots, own, names)?;
        let cert_file = content.cert.is_some().then(|| names.cert.clone());
        Ok(Self { content, client, server, bundle_len, cert_file, not_after: end })
    }

    /// What errors call the certificate.
    pub fn name(&self) -> PathBuf {
        self.cert_file.clone().unwrap_or_else(|| "the certificate".into())
    }

    pub fn has_expired(&self) -> bool {
        self.not_after.is_some_and(|end| end < now_seconds())
    }

    /// Tells the metric when the certificate ends, and the log when it has.
    pub fn report(&self) {
        let Some(end) = self.not_after else { return };
        metrics::gauge!("undb_tls_certificate_expiry_seconds").set(end as f64);
        if self.has_expired() {
            let file = self.name();
            tracing::error!(file = %file.display(), "the certificate has expired, peers refuse it; renew it");
        }
    }
}

fn now_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}

/// What errors call the parts.
struct Names {
    ca: PathBuf,
    cert: PathBuf,
    key: PathBuf,
}

impl Names {
    fn of(options: &TlsOptions) -> Self {
        let memory = (PathBuf::from("the CA"), PathBuf::from("the certificate"), PathBuf::from("the key"));
        let (ca, cert, key) = match options {
            TlsOptions::Pem(_) => memory,
            TlsOptions::Files(f) => (
                f.ca_file.clone(),
                f.cert_file.clone().unwrap_or(memory.1),
                f.key_file.clone().unwrap_or(memory.2),
            ),
        };
        Self { ca, cert, key }
    }
}

fn read(options: &TlsOptions) -> Result<TlsPem, RuntimeError> {
    let file = |what: &'static str, path: &Path| {
        std::fs::read(path).map_err(|source| RuntimeError::Read { what, path: path.into(), source })
    };
    match options {
        TlsOptions::Pem(pem) => Ok(pem.clone()),
        TlsOptions::Files(files) => Ok(TlsPem {
            ca: file("the CA file", &files.ca_file)?,
            cert: files.cert_file.as_deref().map(|p| file("the certificate file", p)).transpose()?,
            key: files.key_file.as_deref().map(|p| file("the key file", p)).transpose()?,
        }),
    }
}

fn refuse<T>(file: &Path, problem: impl Into<String>) -> Result<T, RuntimeError> {
    Err(RuntimeError::Tls { file: file.into(), problem: problem.into() })
}

fn certificates(pem: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, RuntimeError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Err(error) => refuse(file, format!("is no PEM file: {error}")),
        Ok(found) if found.is_empty() => refuse(file, "holds no certificate; it must be PEM"),
        Ok(found) => Ok(found),
    }
}

fn roots(pem: &[u8], file: &Path) -> Result<RootCertStore, RuntimeError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, file)? {
        if let Err(error) = roots.add(certificate) {
            return refuse(file, format!("holds something that is no CA certificate: {error}"));
        }
    }
    Ok(roots)
}

fn chain(pem: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, RuntimeError> {
    certificates(pem, file)
}

fn private_key(pem: &[u8], file: &Path) -> Result<PrivateKeyDer<'static>, RuntimeError> {
    // Without the parser's own text, which could repeat what it read.
    PrivateKeyDer::from_pem_slice(pem).or_else(|_| refuse(file, "holds no private key; it must be PEM"))
}

fn mismatch(error: &rustls::Error, names: &Names) -> RuntimeError {
    let problem = match error {
        rustls::Error::InconsistentKeys(_) => {
            format!("does not belong to the certificate in {}", names.cert.display())
        }
        other => format!("cannot be used with {}: {other}", names.cert.display()),
    };
    RuntimeError::Tls { file: names.key.clone(), problem }
}

fn rpc_config(
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    names: &Names,
) -> Result<Arc<ServerConfig>, RuntimeError> {
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).allow_unauthenticated().build();
    let verifier = verifier.or_else(|e| refuse(&names.ca, e.to_string()))?;
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| mismatch(&e, names))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.to_vec(), key.clone_key())
        .map_err(|e| mismatch(&e, names))?;
    Ok(unresumed(config, vec![HTTP_2.to_vec()]))
}

fn public_config(
    provider: &Arc<CryptoProvider>,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    names: &Names,
) -> Result<Arc<ServerConfig>, RuntimeError> {
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| mismatch(&e, names))?
        .with_no_client_auth()
        .with_single_cert(chain.to_vec(), key.clone_key())
        .map_err(|e| mismatch(&e, names))?;
    Ok(unresumed(config, Vec::new()))
}

fn unresumed(mut config: ServerConfig, protocols: Vec<Vec<u8>>) -> Arc<ServerConfig> {
    config.alpn_protocols = protocols;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

fn client_config(
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    own: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    names: &Names,
) -> Result<Arc<ClientConfig>, RuntimeError> {
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| mismatch(&e, names))?
        .with_root_certificates(roots);
    let mut config = match own {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).map_err(|e| mismatch(&e, names))?,
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![HTTP_2.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}
