//! What the operator asks a control plane: one narrow trait, the SDK behind it, and a fake for tests.
//!
//! ```text
//! Connector.connect(namespace, name) --> ControlApi --> undb_sdk::Admin at <name>-access.<namespace>.svc
//!    (Secrets <name>-token, <name>-tls; kept until they change)
//! ```
//! No answer is an error, never a default: who asks treats it as unknown.

mod connector;
#[cfg(test)]
pub mod fake;
mod ungated;

pub use connector::{AdminApi, KubeConnector};
pub use ungated::Ungated;

use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use undb_proto::v1;
use undb_sdk::ApplyOutcome;

/// The calls. All are idempotent.
#[async_trait]
pub trait ControlApi: Send + Sync {
    /// Stores, members, and whether all is fine.
    async fn status(&self) -> Result<v1::StatusResponse>;
    /// Creates or changes an object {apiVersion, kind, metadata, spec}.
    async fn apply(&self, object_json: String) -> Result<ApplyOutcome>;
    /// Objects of a kind (tables, stores, shards, storeclusters) with their status, as JSON.
    async fn get(&self, kind: &str, name: &str, table: &str) -> Result<Vec<String>>;
    /// Deletes an object.
    async fn delete(&self, kind: &str, name: &str, now: bool) -> Result<String>;
    /// May these stores go down? A denial is an answer.
    async fn acquire(&self, request: v1::AcquireDisruptionRequest) -> Result<v1::DisruptionResponse>;
    /// Looks at a lease, keeps it alive, moves it on.
    async fn disruption_status(&self, request: v1::DisruptionStatusRequest)
    -> Result<v1::DisruptionResponse>;
    /// Gives a lease back.
    async fn release(&self, lease_id: u64, token: u64) -> Result<v1::DisruptionResponse>;
    /// All leases.
    async fn list(&self) -> Result<Vec<v1::DisruptionLease>>;
    /// Cordons, drains, removes a store.
    async fn set_store(
        &self,
        store_id: u64,
        action: v1::StoreAction,
        lost: bool,
    ) -> Result<v1::SetStoreResponse>;
}

/// Finds a control plane by its name.
#[async_trait]
pub trait Connector: Send + Sync {
    /// Cheap when it was asked before; the connection itself is made by the first call.
    async fn connect(&self, namespace: &str, control_plane: &str) -> Result<Arc<dyn ControlApi>>;
}
