//! What can go wrong with a whole store. Errors of one request are `v1::Error` values instead.

use std::path::PathBuf;

/// Why a store does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The configuration cannot work.
    #[error("configuration: {0}")]
    Config(String),
    /// Another process holds the directory.
    #[error("{} is in use by {holder}: stop it, or choose another directory", path.display())]
    DirectoryInUse { path: PathBuf, holder: String },
    /// The directory belongs to another cluster.
    #[error("{} belongs to cluster {found}, but cluster control says {wanted}: choose another directory, or correct `control`", path.display())]
    OtherCluster { path: PathBuf, found: String, wanted: String },
    /// A newer release wrote this.
    #[error("{} has format version {found}, this release knows up to {known}: start it with the release that wrote it, or a newer one", path.display())]
    NewerFormat { path: PathBuf, found: u32, known: u32 },
    /// Data lies there, but nobody knows whose.
    #[error("{} has data but no identity.json: restore that file from a backup, or move the directory away to start as an empty store", path.display())]
    IdentityMissing { path: PathBuf },
    /// Another store took this one's place; it must never serve again.
    #[error("store {store_id} was removed from the cluster{detail}: move {} away to start as an empty store", path.display())]
    Removed { store_id: u64, detail: String, path: PathBuf },
    /// Cluster control refused the registration.
    #[error("cluster control refused this store: {0}")]
    Refused(String),
    /// A file of ours does not read.
    #[error("{} is damaged: {detail}", path.display())]
    Corrupt { path: PathBuf, detail: String },
    /// Log or engine cannot be read as a whole; one damaged replica alone does not stop a store.
    #[error("{} is damaged: {detail}; keep it, but move it away and start as an empty store: the peers of its replicas fill it again", path.display())]
    Damaged { path: PathBuf, detail: String },
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}; choose another port with `listen`")]
    Listen { address: String, source: std::io::Error },
    /// The shared log.
    #[error("log: {0}")]
    Log(String),
    /// A failed sync: nothing after it can be trusted, so the process ends and recovers.
    #[error("the log is poisoned: {0}; the process ends so that a restart recovers what is durable")]
    Poisoned(String),
    /// The engine.
    #[error("engine: {0}")]
    Engine(String),
    /// The consensus host.
    #[error("raft: {0}")]
    Raft(String),
    /// The stop was asked for before the store was up.
    #[error("stopped before the store was up")]
    Stopped,
    /// Ours to fix.
    #[error("internal: {0}")]
    Internal(String),
}

impl StoreError {
    /// What the process exits with; `undb help exit-codes` lists them.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Config(_) => 2,
            Self::DirectoryInUse { .. } | Self::Listen { .. } => 10,
            Self::OtherCluster { .. } | Self::Removed { .. } | Self::Refused(_) => 11,
            Self::NewerFormat { .. } => 12,
            Self::IdentityMissing { .. } | Self::Corrupt { .. } | Self::Damaged { .. } => 13,
            Self::Poisoned(_) => 14,
            _ => 3,
        }
    }
}
