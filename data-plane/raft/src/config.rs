//! What a host needs to start, and what every group runs with.

use crate::RaftError;
use openraft::{Config, SnapshotPolicy};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use undb_log::Log;
use undb_runtime::Credentials;

/// Where stores are now. Asked at every connect, so a store that moved is followed.
pub trait AddressBook: Send + Sync + 'static {
    /// HOST:PORT of a store; `fallback` is what its group last knew. `None`: nowhere.
    fn address(&self, store: u64, fallback: &str) -> Option<String>;
}

/// An address book without entries: every store is where its group last knew it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastKnown;

impl AddressBook for LastKnown {
    fn address(&self, _store: u64, fallback: &str) -> Option<String> {
        (!fallback.is_empty()).then(|| fallback.to_owned())
    }
}

/// How fast a group notices and reacts. The same on all members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often an idle leader makes itself heard.
    pub heartbeat: Duration,
    /// A follower that hears nothing for at least this long may stand for election; more than twice
    /// the heartbeat.
    pub election_min: Duration,
    /// ... and at most this long. Also the leader's lease.
    pub election_max: Duration,
    /// How long `transfer_leader` waits for the new leader.
    pub transfer: Duration,
    /// How long `change_members` waits for new members to catch up; asked again, it goes on.
    pub catch_up: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_millis(250),
            election_min: Duration::from_millis(1000),
            election_max: Duration::from_millis(2000),
            transfer: Duration::from_secs(6),
            catch_up: Duration::from_secs(120),
        }
    }
}

/// What a host needs to start.
#[derive(Clone)]
pub struct HostOptions {
    /// Requests of another cluster are refused.
    pub cluster_id: String,
    /// Requests for another store are refused.
    pub store: u64,
    /// The store's log, which all groups share.
    pub log: Log,
    /// Where peers are.
    pub addresses: Arc<dyn AddressBook>,
    /// The same on all members of a group.
    pub timing: Timing,
    /// Most bytes a second of all snapshots that this host sends; 0: no limit.
    pub snapshot_bytes_per_s: u64,
    /// Shown to every peer.
    pub credentials: Credentials,
}

impl fmt::Debug for HostOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster_id, store, timing, .. } = self;
        f.debug_struct("HostOptions")
            .field("cluster_id", cluster_id)
            .field("store", store)
            .field("timing", timing)
            .finish_non_exhaustive()
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What openraft runs with. Each line that differs from its default says why.
pub(crate) fn raft_config(cluster_id: &str, timing: &Timing) -> Result<Config, RaftError> {
    let heartbeat = ms(timing.heartbeat);
    let election_max = ms(timing.election_max);
    let config = Config {
        cluster_name: cluster_id.to_owned(),
        heartbeat_interval: heartbeat,
        // A follower that has just acknowledged entries needs no heartbeat.
        heartbeat_min_interval: Some(heartbeat / 2),
        election_timeout_min: ms(timing.election_min),
        election_timeout_max: election_max,
        // A replica that was cut off does not depose a healthy leader when it comes back.
        enable_pre_vote: Some(true),
        // Without it a leader that lost its quorum can keep a connected one from electing.
        quorum_loss_probe_interval: Some(2 * election_max),
        // A restarted leader has an older state than it had, and no record of what it had committed.
        enable_leader_restore: Some(false),
        // A replica whose disk was lost comes back under a new id.
        allow_log_reversion: Some(false),
        // Snapshots and purges are asked for by bytes, with `purge_to_durable`.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        purge_batch_size: 1,
        max_payload_entries: 512,
        install_snapshot_timeout: 3_600_000,
        backoff: "50ms 100ms ...1s".to_owned(),
        ..Config::default()
    };
    config.validate().map_err(|e| RaftError::Refused(format!("timing: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_timing_is_accepted_and_a_senseless_one_is_named() {
        let config = raft_config("c", &Timing::default()).expect("default");
        assert_eq!(config.quorum_loss_probe_interval, Some(4000));
        let timing = Timing { election_min: Duration::from_millis(300), ..Timing::default() };
        assert!(matches!(raft_config("c", &timing), Err(RaftError::Refused(m)) if m.contains("timing")));
    }
}
