//! What the proxy is told.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undb_sdk::TlsFiles;

/// Configuration of the role `proxy`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where Redis clients connect, HOST:PORT.
    pub resp: String,
    /// Where HTTP clients connect, HOST:PORT; /metrics, /healthz and /readyz are here too.
    pub http: String,
    /// Access addresses of the cluster, HOST:PORT each.
    pub endpoints: Vec<String>,
    /// File with the token that the cluster asks for, and that clients must give with AUTH or as a bearer
    /// token. None: everybody may come in, so only listen on loopback.
    pub token_file: Option<PathBuf>,
    /// Certificates for what it dials; absent: it speaks plain to the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// Redis and HTTP clients speak TLS too, with the certificate of `tls`.
    pub resp_tls: bool,
    /// Tables by their SELECT number: the first is database 0. A name works with SELECT too.
    pub tables: Vec<String>,
    /// Most connections of Redis clients at one time.
    pub connections_max: usize,
    /// Directory for the last good routes; one process each. None: memory only.
    pub cache_dir: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            resp: "127.0.0.1:7379".into(),
            http: "127.0.0.1:7381".into(),
            endpoints: vec!["127.0.0.1:7380".into()],
            token_file: None,
            tls: None,
            resp_tls: false,
            tables: vec!["default".into()],
            connections_max: 10_000,
            cache_dir: None,
        }
    }
}
