//! The configuration of a metadata member.

use crate::ServerError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undb_runtime::TlsFiles;

/// `undb run meta --config FILE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// HOST:PORT to listen on.
    pub listen: String,
    /// HOST:PORT at which the other roles and members reach this one; default: what it listens on.
    pub advertise: Option<String>,
    /// Its own directory: `LOCK`, `identity.json`, `image`, `log/`.
    pub dir: PathBuf,
    /// The id of the cluster, the same in every member's file. May be absent with one member: then it
    /// is made at the first start and kept in the directory.
    pub cluster_id: Option<String>,
    /// Which of `members` this one is.
    pub member_id: u64,
    /// All members, 1, 3 or 5; empty: this one alone.
    pub members: Vec<Member>,
    /// A file with the token that every call must carry; absent: no token.
    pub token_file: Option<PathBuf>,
    /// Certificates for what it serves and dials; absent: everything is plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// Milliseconds between heartbeats of the leader.
    pub heartbeat_ms: u64,
    /// Shortest time without a heartbeat after which a follower stands for election, in milliseconds;
    /// the longest is twice that. More than twice `heartbeat_ms`.
    pub election_ms: u64,
    /// Number of entries after which the image is written and the log before it purged.
    pub image_after_entries: u64,
    /// Changes kept for watchers that reconnect; one that is further behind gets a snapshot.
    pub watch_ring_len: usize,
}

/// One metadata member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its number, from 1, never given to another.
    pub id: u64,
    /// HOST:PORT.
    pub address: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7390".into(),
            advertise: None,
            dir: "undb-meta".into(),
            cluster_id: None,
            member_id: 1,
            members: Vec::new(),
            token_file: None,
            tls: None,
            heartbeat_ms: 250,
            election_ms: 1000,
            image_after_entries: 10_000,
            watch_ring_len: 65_536,
        }
    }
}

impl Config {
    /// Refuses what cannot work, before anything is opened.
    pub fn validate(&self) -> Result<(), ServerError> {
        let refuse = |field, problem: String| Err(ServerError::Config { field, problem });
        let count = self.members.len();
        if ![0, 1, 3, 5].contains(&count) {
            return refuse("members", format!("{count} members are not possible; list 1, 3 or 5"));
        }
        if count > 0 && !self.members.iter().any(|m| m.id == self.member_id) {
            return refuse("member_id", format!("{} is not in `members`; add it", self.member_id));
        }
        let mut ids: Vec<u64> = self.members.iter().map(|m| m.id).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.len() != count || self.member_id == 0 || ids.contains(&0) {
            return refuse("members", "ids are numbers from 1, each once".into());
        }
        if count > 1 && self.cluster_id.as_deref().unwrap_or_default().is_empty() {
            let problem = "is needed with several members; put the same text into each one's file";
            return refuse("cluster_id", problem.into());
        }
        if self.heartbeat_ms == 0 || self.election_ms <= 2 * self.heartbeat_ms {
            return refuse("election_ms", "must be more than twice heartbeat_ms".into());
        }
        if self.image_after_entries == 0 || self.watch_ring_len == 0 {
            return refuse("image_after_entries, watch_ring_len", "must be at least 1".into());
        }
        Ok(())
    }
}
