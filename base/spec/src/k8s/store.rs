//! Store: one store of a StoreCluster. The operator makes it; a person may only take it offline.

use super::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wanted of a store.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "undb.io",
    version = "v1alpha1",
    kind = "Store",
    plural = "stores",
    shortname = "ust",
    category = "undb",
    namespaced,
    derive = "PartialEq",
    status = "StoreStatus"
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StoreSpec {
    /// The StoreCluster that it belongs to.
    pub store_cluster: String,
    /// Its number there, never used again.
    pub ordinal: u32,
    /// Hash of what its Pod is to look like; a Pod with another one is restarted in order.
    #[serde(default)]
    pub template_hash: String,
    /// True: its data moves to other stores, then it goes and another takes its place.
    #[serde(default)]
    pub offline: bool,
    /// Always 1: lets a PodDisruptionBudget count its Pod.
    #[serde(default = "one")]
    pub replicas: u32,
}

fn one() -> u32 {
    1
}

impl Default for StoreSpec {
    fn default() -> Self {
        Self {
            store_cluster: String::new(),
            ordinal: 0,
            template_hash: String::new(),
            offline: false,
            replicas: one(),
        }
    }
}

/// What is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StoreStatus {
    /// The generation of the spec that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Its id in the control plane, written on its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_id: Option<u64>,
    /// Pending, Starting, Serving, Stopping, Draining, Drained, Lost or Unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// One word on why it is not Serving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Its Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod_uid: Option<String>,
    /// The node of its Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// Shards that it leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leaders: Option<u32>,
    /// Shards that it keeps a copy of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// While it drains: 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_progress_percent: Option<u32>,
    /// Pods that it has: 0 or 1.
    pub replicas: u32,
    /// Labels of its Pod, as one selector.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Ready, Serving, Drained, Reconciling, Stalled.
    pub conditions: Vec<Condition>,
}
