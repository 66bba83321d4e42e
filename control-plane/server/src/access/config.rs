//! The configuration of access.

use crate::ServerError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undb_runtime::TlsFiles;

/// `undb run access --config FILE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// HOST:PORT to listen on: what clients and tools are given as endpoint.
    pub listen: String,
    /// HOST:PORT of the metadata members.
    pub meta: Vec<String>,
    /// HOST:PORT of the routing processes, as clients reach them.
    pub routers: Vec<String>,
    /// The name of that group of routing processes.
    pub router_group: String,
    /// A file with the token that every call must carry; absent: no token.
    pub token_file: Option<PathBuf>,
    /// Certificates for what it serves and dials; absent: everything is plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// How long a client may use what it discovered, in seconds.
    pub discover_ttl_seconds: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7380".into(),
            meta: vec!["127.0.0.1:7390".into()],
            routers: vec!["127.0.0.1:7392".into()],
            router_group: "default".into(),
            token_file: None,
            tls: None,
            discover_ttl_seconds: 300,
        }
    }
}

impl Config {
    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), ServerError> {
        let refuse = |field, problem: &str| Err(ServerError::Config { field, problem: problem.into() });
        if self.meta.is_empty() {
            return refuse("meta", "list HOST:PORT of at least one metadata member");
        }
        if self.routers.is_empty() {
            return refuse("routers", "list HOST:PORT of at least one routing process");
        }
        Ok(())
    }
}
