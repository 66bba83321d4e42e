//! What the operator reports of a Table.

use super::{Condition, ShardCounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TableStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its id in the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_id: Option<u64>,
    /// Pending, Creating, Available, Degraded, Unavailable, Deleting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Its shards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardCounts>,
    /// Ready, FullyReplicated, Reconciling, Stalled.
    pub conditions: Vec<Condition>,
}
