//! The same specs as custom resources, those that only Kubernetes has, and what the operator reports.
//!
//! ```text
//! StoreClusterSpec, TableSpec (also `undb apply`) --+
//! ControlPlaneSpec, RouterSpec, StoreSpec ----------+--kube derive--> types --> crds/*.yaml
//! ```
//! Never: decisions. A status holds what was seen, not what is to be done.

mod columns;
mod control_plane;
mod convert;
pub mod crds;
mod router;
mod rules;
mod store;
mod store_cluster;
mod table;

pub use crate::store_cluster::StoreClusterResource as StoreCluster;
pub use crate::table::TableResource as Table;
pub use crate::{StoreClusterSpec, TableSpec};
pub use control_plane::{
    ComponentSpec, ControlPlane, ControlPlaneSpec, ControlPlaneStatus, ControlPlaneVolumeRetentionSpec,
    MemberStatus, MetadataSpec, MetadataStorageSpec, TlsSpec, TuningSpec,
};
pub use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
pub use router::{ProxySpec, ProxyTlsSpec, Router, RouterSpec, RouterStatus, RoutingSpec, ServiceType};
pub use store::{Store, StoreSpec, StoreStatus};
pub use store_cluster::{BlockedBy, LeaseStatus, ShardCounts, StoreClusterStatus};
pub use table::TableStatus;
