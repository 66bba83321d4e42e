//! What a user writes: StoreClusters and Tables, as YAML or JSON, with the rules beside the fields.
//!
//! ```text
//! text --parse_yaml/parse_json--> Parsed { object, warnings } --to_json--> the wire, metadata
//!           |                                  ^ changes(old, new): what an update may do
//!           v
//!       SpecError: file, line, column, field path, what to do
//! ```
//! The operator takes the same text. Fields that mean something only on Kubernetes are accepted and
//! answered with a warning, so that one file serves both.
//!
//! Never: I/O, other crates of ours. To add a field: the struct in `table` or `store_cluster`, its
//! rule in `check`, and whether it may change in `change`.

mod advice;
mod change;
mod check;
mod error;
#[cfg(feature = "kube")]
pub mod k8s;
mod kubernetes;
mod manifest;
mod parse;
mod quantity;
mod store_cluster;
mod table;
mod tree;

pub use change::{Change, changes};
pub use error::{Problem, SpecError, Violation};
pub use kubernetes::{
    Amount, ControlPlaneRef, DisruptionPolicySpec, EvictionWebhook, OnTimeout, PodMetadata, PodTemplate,
    ReplacementMode, ReplacementPolicySpec, ResourcesSpec, TopologySpec, UpdateStrategySpec,
    UpdateStrategyType, VolumeRetention, VolumeRetentionSpec,
};
pub use manifest::{API_VERSION, Manifest, Metadata, Object, Parsed};
pub use parse::{parse_json, parse_yaml};
pub use quantity::{ByteSize, QuantityError};
pub use store_cluster::{
    EngineSpec, EngineType, SeparationSpec, StorageSpec, StoreCluster, StoreClusterSpec,
};
pub use table::{
    DeletionPolicy, PartitioningSpec, PartitioningType, QuotaSpec, ReplicationSpec, Table, TableSpec,
};
