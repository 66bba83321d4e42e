//! The configuration of cluster control.

use crate::ServerError;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use undb_runtime::TlsFiles;

/// `undb run control --config FILE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// HOST:PORT to listen on.
    pub listen: String,
    /// HOST:PORT at which stores and the other roles reach this one; default: what it listens on.
    pub advertise: Option<String>,
    /// HOST:PORT of the metadata members.
    pub meta: Vec<String>,
    /// A file with the token that every call must carry; absent: no token.
    pub token_file: Option<PathBuf>,
    /// Certificates for what it serves and dials; absent: everything is plain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// What it decides by.
    pub tuning: Tuning,
}

/// What cluster control decides by. The defaults fit a data center; tests shorten them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tuning {
    /// How long the lease of the owner lasts without renewal, in milliseconds; it is renewed at a
    /// third of it. Shorter: faster take-over, more writes.
    pub lease_ttl_ms: u64,
    /// A store that has been silent for this long is Disconnected: its address may be taken over by
    /// an empty store, and it is no target. In milliseconds.
    pub disconnected_ms: u64,
    /// A store that has been silent for this long is Down: its replicas are made again elsewhere. In
    /// milliseconds.
    pub down_ms: u64,
    /// A store that returns after having been Disconnected gets no leaders for this long, in
    /// milliseconds.
    pub suspect_ms: u64,
    /// New replicas that one store receives at the same time.
    pub moves_per_store_max: u32,
    /// A replica with more unreplicated entries than this becomes neither voter nor leader.
    pub lag_entries_max: u64,
    /// A shard's leader is moved for balance at most this often, in milliseconds.
    pub leader_cooldown_ms: u64,
    /// Leaders moved for balance in one round.
    pub leader_moves_max: u32,
    /// How often the plan is made when nothing happens, in milliseconds.
    pub plan_interval_ms: u64,
    /// How many stores the cluster begins with: the `default` table is made when this many are there,
    /// with a replication of at most 3.
    pub stores_expected: u32,
    /// Tables of a StoreCluster that has no store of its own are placed on the stores of `default`:
    /// what `undb dev` wants, where a StoreCluster is only a class.
    pub share_default_stores: bool,
    /// The availability gate takes no report and no acknowledgement that is older, in milliseconds.
    /// Two heartbeats of stores: a replica that has been silent for longer is unavailable. Longer:
    /// a store that just died may still count when another one asks to be stopped. Shorter: refusals that
    /// pass by themselves where heartbeats are late.
    pub gate_fresh_ms: u64,
    /// A test setting: the availability gate answers yes to everything. Stores may then be stopped while
    /// their shards depend on them. Never set it where data or availability matters.
    pub unsafe_gate_off: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:7391".into(),
            advertise: None,
            meta: vec!["127.0.0.1:7390".into()],
            token_file: None,
            tls: None,
            tuning: Tuning::default(),
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            lease_ttl_ms: 10_000,
            disconnected_ms: 20_000,
            down_ms: 30 * 60 * 1000,
            suspect_ms: 60_000,
            moves_per_store_max: 4,
            lag_entries_max: 1000,
            leader_cooldown_ms: 60_000,
            leader_moves_max: 8,
            plan_interval_ms: 1000,
            stores_expected: 3,
            share_default_stores: false,
            gate_fresh_ms: 2_000,
            unsafe_gate_off: false,
        }
    }
}

impl Config {
    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), ServerError> {
        if self.meta.is_empty() {
            let problem = "list HOST:PORT of at least one metadata member".into();
            return Err(ServerError::Config { field: "meta", problem });
        }
        self.tuning.validate()
    }
}

impl Tuning {
    /// Refuses what cannot work.
    pub fn validate(&self) -> Result<(), ServerError> {
        let refuse = |field, problem: &str| Err(ServerError::Config { field, problem: problem.into() });
        if !(300..=600_000).contains(&self.lease_ttl_ms) {
            return refuse("tuning.lease_ttl_ms", "must be between 300 and 600000");
        }
        if self.down_ms < self.disconnected_ms || self.disconnected_ms == 0 {
            return refuse("tuning.down_ms", "must be at least disconnected_ms, which is above 0");
        }
        if !(1_000..=60_000).contains(&self.gate_fresh_ms) {
            return refuse("tuning.gate_fresh_ms", "must be between 1000 and 60000");
        }
        if self.plan_interval_ms == 0 || self.stores_expected == 0 || self.moves_per_store_max == 0 {
            return refuse(
                "tuning",
                "plan_interval_ms, stores_expected and moves_per_store_max must be at least 1",
            );
        }
        Ok(())
    }
}
