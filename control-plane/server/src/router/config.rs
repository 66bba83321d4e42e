//! The configuration of routing.

use crate::ServerError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undb_runtime::TlsFiles;

/// `undb run router --config FILE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// HOST:PORT to listen on.
    pub listen: String,
    /// HOST:PORT at which clients reach this one; default: what it listens on.
    pub advertise: Option<String>,
    /// HOST:PORT of the metadata members.
    pub meta: Vec<String>,
    /// A file with the token that every call must carry; absent: no token.
    pub token_file: Option<PathBuf>,
    /// Certificates for what it serves and dials; absent: everything is plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// The last good routes are kept in this file, and served while the sources are away; absent:
    /// kept in memory only.
    pub last_good_file: Option<PathBuf>,
    /// Milliseconds between digests to subscribers, by which they find a push that they missed.
    pub digest_interval_ms: u64,
    /// Changes that come within this time go out as one, in milliseconds.
    pub coalesce_ms: u64,
    /// Updates queued for one subscriber; when more are due it gets one snapshot instead.
    pub queue_len_max: usize,
    /// Subscribers at the same time; more are refused with SERVER_BUSY.
    pub subscribers_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7392".into(),
            advertise: None,
            meta: vec!["127.0.0.1:7390".into()],
            token_file: None,
            tls: None,
            last_good_file: None,
            digest_interval_ms: 10_000,
            coalesce_ms: 50,
            queue_len_max: 256,
            subscribers_max: 10_000,
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
        if self.digest_interval_ms == 0 || self.queue_len_max == 0 || self.subscribers_max == 0 {
            return refuse("digest_interval_ms, queue_len_max, subscribers_max", "must be at least 1");
        }
        Ok(())
    }
}
