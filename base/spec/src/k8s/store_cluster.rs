//! What the operator reports of a StoreCluster.

use super::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StoreClusterStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The image in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Stores that exist.
    pub replicas: u32,
    /// Of them, those whose Pod is Ready: every shard was caught up once since it began.
    pub ready_replicas: u32,
    /// Of them, those whose Pod is as the spec wants it.
    pub updated_replicas: u32,
    /// Of them, those that serve and are not being drained.
    pub available_replicas: u32,
    /// Of them, those that are leaving.
    pub offline_replicas: u32,
    /// The number of the next store; numbers are never used again.
    pub next_ordinal: u32,
    /// Labels of the stores' Pods, as one selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// The template that stores ran before the change in progress.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<String>,
    /// The template that stores get.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_revision: Option<String>,
    /// The shards that these stores keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardCounts>,
    /// What forbids the next step, the first ten.
    pub blocked_by: Vec<BlockedBy>,
    /// Permissions to stop stores that are held now.
    pub active_leases: Vec<LeaseStatus>,
    /// One sentence on what happens now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Ready, Available, Progressing, Degraded, DisruptionAllowed, Reconciling, Stalled.
    pub conditions: Vec<Condition>,
}

/// Shards by state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ShardCounts {
    /// All.
    pub total: u32,
    /// Those with a majority of copies that are caught up.
    pub available: u32,
    /// Those that lack a copy.
    pub degraded: u32,
    /// Those that no majority serves.
    pub unavailable: u32,
}

/// One thing that forbids the next step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct BlockedBy {
    /// The shard, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<u64>,
    /// Its table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// Its keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<String>,
    /// One word, for example TooFewVoters.
    pub reason: String,
    /// A sentence with what is there and what is needed.
    pub message: String,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// A permission to stop stores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseStatus {
    /// Its number in the control plane.
    pub lease_id: u64,
    /// RESTART, REMOVE or REPLACE.
    pub kind: String,
    /// Names of the Stores.
    pub stores: Vec<String>,
    /// Who holds it.
    pub holder: String,
    /// How far the disruption is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// When it ends without a heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}
