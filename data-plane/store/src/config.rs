//! What a person sets for a store, with units in the names and defaults that fit a small server.
//!
//! `Config` is read from TOML; unknown fields are refused. `validate` turns what cannot work into
//! one sentence that names the field.

use crate::error::StoreError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undb_runtime::TlsFiles;

const MIB: u64 = 1024 * 1024;

/// One store process.
///
/// ```toml
/// dir = "/var/lib/undb/store"        # everything the store keeps; one process a directory
/// listen = "0.0.0.0:7390"            # port 0: any free one
/// advertise = "store-0.example:7390" # what others dial; empty: the address bound by `listen`
/// control = ["control.example:7380"] # cluster control, any member; the owner is followed
/// zone = "a"                         # failure domain for placement
/// store_cluster = "default"          # placement class
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Directory of everything that the store keeps. Required.
    pub dir: PathBuf,
    /// Address to bind, `HOST:PORT`; port 0 takes a free one.
    #[serde(default = "default_listen")]
    pub listen: String,
    /// Address that clients and other stores dial; empty: the bound one.
    #[serde(default)]
    pub advertise: String,
    /// Addresses of cluster control, `HOST:PORT`, any number of its members. Required.
    pub control: Vec<String>,
    /// Failure domain; placement puts replicas of one shard into different ones.
    #[serde(default)]
    pub zone: String,
    /// A file that names the zone, for who learns it only after the process was made; waited for at the
    /// start until it is not empty, up to a minute. None: `zone` holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_file: Option<PathBuf>,
    /// Placement class that this store belongs to.
    #[serde(default = "default_store_cluster")]
    pub store_cluster: String,
    /// Shared secret between roles; empty: none is asked for and none is sent.
    #[serde(default)]
    pub token: String,
    /// Certificates for what it serves and dials; absent: everything is plain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// Space the store may use, in bytes; 0: the whole file system.
    #[serde(default)]
    pub capacity_bytes: u64,
    /// Space kept free for votes, deletes and GC; user writes are refused before it is touched. At
    /// most a tenth of the capacity is reserved, so that the default fits small disks too.
    #[serde(default = "default_disk_reserve_bytes")]
    pub disk_reserve_bytes: u64,
    /// What requests may hold in memory together before new ones are answered with SERVER_BUSY.
    #[serde(default = "default_request_memory_bytes")]
    pub request_memory_bytes: u64,
    /// The engine.
    #[serde(default)]
    pub engine: EngineConfig,
    /// The log that all shards share.
    #[serde(default)]
    pub log: LogConfig,
    /// Elections and heartbeats.
    #[serde(default)]
    pub raft: RaftConfig,
    /// Rates and bounds of the request path.
    #[serde(default)]
    pub limits: LimitConfig,
    /// Time to move leaders away and flush after SIGTERM, in ms.
    #[serde(default = "default_stop_deadline_ms")]
    pub stop_deadline_ms: u64,
    /// Time between heartbeats to cluster control, in ms.
    #[serde(default = "default_heartbeat_ms")]
    pub heartbeat_ms: u64,
    /// Value of the label `store` on this store's metrics; empty: the store id.
    #[serde(default)]
    pub label: String,
}

/// Memory of the engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineConfig {
    /// Memtables, index blocks and values of all shards together, in bytes: half for memtables, a
    /// quarter each for blocks and values.
    pub memory_bytes: u64,
    /// Time between two maintenance passes, in ms.
    pub maintain_ms: u64,
}

/// The shared log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Size of a segment file, in bytes.
    pub segment_bytes: u64,
    /// Entries kept in memory for replication and apply, in bytes.
    pub cache_bytes: u64,
    /// A shard that keeps more log than this, in bytes, is flushed and its log purged.
    pub retained_bytes_per_shard: u64,
    /// When all logs together are larger, in bytes, the shard with the oldest unflushed entries goes first.
    pub retained_bytes: u64,
    /// Entries behind the flushed position that stay for followers that lag a little.
    pub tail_entries: u64,
}

/// Timing of the consensus groups. Raise both where disks or CPUs stall for long.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RaftConfig {
    /// Time between a leader's heartbeats, in ms.
    pub heartbeat_ms: u64,
    /// Shortest wait for a silent leader, in ms; at least twice the heartbeat.
    pub election_min_ms: u64,
    /// Longest wait for a silent leader, in ms.
    pub election_max_ms: u64,
    /// Rate at which snapshots are sent, all together, in bytes a second; 0: no limit.
    pub snapshot_bytes_per_s: u64,
    /// How a leader makes sure that it still leads before a read: `lease` costs no message and trusts
    /// that clocks run at about the same speed; `read_index` asks a quorum.
    pub reads: ReadBarrier,
}

/// How a read makes sure of its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadBarrier {
    /// By its lease.
    Lease,
    /// By a round to a quorum, shared by the reads that wait.
    ReadIndex,
}

/// Bounds of the request path.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitConfig {
    /// Requests of one session that are worked on at once; more wait in the socket.
    pub session_requests: usize,
    /// Log entries of one shard that wait for their commit at once.
    pub entries_in_flight: usize,
    /// Commands that share one log entry, at most.
    pub entry_commands: usize,
    /// Bytes of commands that share one log entry, at most (one larger command goes alone).
    pub entry_bytes: usize,
    /// Writes of one shard that wait for a place in an entry; more are answered with SERVER_BUSY.
    pub shard_queue: usize,
    /// Deadline of a request that names none, in ms.
    pub default_deadline_ms: u64,
    /// Replicas opened at once when the store starts.
    pub open_concurrency: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { memory_bytes: 256 * MIB, maintain_ms: 200 }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 64 * MIB,
            cache_bytes: 64 * MIB,
            retained_bytes_per_shard: 128 * MIB,
            retained_bytes: 2048 * MIB,
            tail_entries: 10_000,
        }
    }
}

impl Default for RaftConfig {
    fn default() -> Self {
        Self {
            heartbeat_ms: 250,
            election_min_ms: 1000,
            election_max_ms: 2000,
            snapshot_bytes_per_s: 64 * MIB,
            reads: ReadBarrier::Lease,
        }
    }
}

impl Default for LimitConfig {
    fn default() -> Self {
        Self {
            session_requests: 4096,
            entries_in_flight: 8,
            entry_commands: 1024,
            entry_bytes: MIB as usize,
            shard_queue: 16_384,
            default_deadline_ms: 10_000,
            open_concurrency: 8,
        }
    }
}

fn default_listen() -> String {
    "127.0.0.1:7390".into()
}
fn default_store_cluster() -> String {
    "default".into()
}
fn default_disk_reserve_bytes() -> u64 {
    1024 * MIB
}
fn default_request_memory_bytes() -> u64 {
    256 * MIB
}
fn default_stop_deadline_ms() -> u64 {
    20_000
}
fn default_heartbeat_ms() -> u64 {
    1000
}

impl Config {
    /// The defaults for a store in `dir` that registers at `control`.
    pub fn new(dir: impl Into<PathBuf>, control: Vec<String>) -> Self {
        Self {
            dir: dir.into(),
            listen: default_listen(),
            advertise: String::new(),
            control,
            zone: String::new(),
            zone_file: None,
            store_cluster: default_store_cluster(),
            token: String::new(),
            tls: None,
            capacity_bytes: 0,
            disk_reserve_bytes: default_disk_reserve_bytes(),
            request_memory_bytes: default_request_memory_bytes(),
            engine: EngineConfig::default(),
            log: LogConfig::default(),
            raft: RaftConfig::default(),
            limits: LimitConfig::default(),
            stop_deadline_ms: default_stop_deadline_ms(),
            heartbeat_ms: default_heartbeat_ms(),
            label: String::new(),
        }
    }

    /// Refuses what cannot work, naming the field.
    pub fn validate(&self) -> Result<(), StoreError> {
        let refuse = |why: &str| Err(StoreError::Config(why.to_string()));
        if self.dir.as_os_str().is_empty() {
            return refuse("dir: name the directory that the store may use");
        }
        if self.control.is_empty() {
            return refuse("control: name at least one address of cluster control");
        }
        if self.store_cluster.is_empty() {
            return refuse("store_cluster: must not be empty");
        }
        let raft = &self.raft;
        if raft.heartbeat_ms == 0 || raft.election_min_ms < 2 * raft.heartbeat_ms {
            return refuse(
                "raft.election_min_ms: must be at least twice raft.heartbeat_ms, and that above 0",
            );
        }
        if raft.election_max_ms <= raft.election_min_ms {
            return refuse("raft.election_max_ms: must be above raft.election_min_ms");
        }
        let limits = &self.limits;
        let positive = [
            ("limits.session_requests", limits.session_requests),
            ("limits.entries_in_flight", limits.entries_in_flight),
            ("limits.entry_commands", limits.entry_commands),
            ("limits.entry_bytes", limits.entry_bytes),
            ("limits.shard_queue", limits.shard_queue),
            ("limits.open_concurrency", limits.open_concurrency),
            ("heartbeat_ms", self.heartbeat_ms as usize),
            ("engine.maintain_ms", self.engine.maintain_ms as usize),
        ];
        if let Some((field, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return refuse(&format!("{field}: must be above 0"));
        }
        Ok(())
    }

    /// Free bytes below which user writes are refused, for a disk of `total` bytes.
    pub(crate) fn reserve_bytes(&self, total: u64) -> u64 {
        self.disk_reserve_bytes.min(total / 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> Config {
        Config::new("/tmp/x", vec!["127.0.0.1:1".into()])
    }

    #[test]
    fn the_defaults_are_valid() {
        valid().validate().expect("defaults");
    }

    #[test]
    fn what_cannot_work_is_refused_by_the_name_of_its_field() {
        let mut config = valid();
        config.raft.election_min_ms = config.raft.heartbeat_ms;
        let message = config.validate().expect_err("refused").to_string();
        assert!(message.contains("raft.election_min_ms"), "{message}");
        let mut config = valid();
        config.limits.entry_bytes = 0;
        assert!(config.validate().expect_err("refused").to_string().contains("limits.entry_bytes"));
    }

    #[test]
    fn unknown_fields_are_refused() {
        let text = r#"{"dir": "/tmp/x", "control": ["a:1"], "mem": 3}"#;
        let error = serde_json::from_str::<Config>(text).expect_err("refused").to_string();
        assert!(error.contains("mem"), "{error}");
    }

    #[test]
    fn the_reserve_never_takes_more_than_a_tenth_of_the_disk() {
        assert_eq!(valid().reserve_bytes(100 * MIB), 10 * MIB);
        assert_eq!(valid().reserve_bytes(1 << 40), 1024 * MIB);
    }
}
