//! A control plane whose gate always says yes: for the run that proves that the gate is needed.

use super::ControlApi;
use crate::error::Result;
use async_trait::async_trait;
use std::sync::Arc;
use undb_proto::v1::{self, DisruptionPhase};
use undb_sdk::ApplyOutcome;

/// Answers every question for a lease with yes, and passes the rest on. Only by a test setting.
pub struct Ungated(pub Arc<dyn ControlApi>);

fn yes(lease: v1::DisruptionLease) -> v1::DisruptionResponse {
    v1::DisruptionResponse { done: true, lease: Some(lease), ..Default::default() }
}

#[async_trait]
impl ControlApi for Ungated {
    async fn status(&self) -> Result<v1::StatusResponse> {
        self.0.status().await
    }

    async fn apply(&self, object_json: String) -> Result<ApplyOutcome> {
        self.0.apply(object_json).await
    }

    async fn get(&self, kind: &str, name: &str, table: &str) -> Result<Vec<String>> {
        self.0.get(kind, name, table).await
    }

    async fn delete(&self, kind: &str, name: &str, now: bool) -> Result<String> {
        self.0.delete(kind, name, now).await
    }

    async fn acquire(&self, request: v1::AcquireDisruptionRequest) -> Result<v1::DisruptionResponse> {
        tracing::warn!(holder = request.holder, stores = ?request.stores, "the gate is switched off: granted unasked");
        Ok(yes(v1::DisruptionLease {
            lease_id: 1,
            token: 1,
            kind: request.kind,
            stores: request.stores,
            holder: request.holder,
            phase: DisruptionPhase::SafeToStop as i32,
            ..Default::default()
        }))
    }

    async fn disruption_status(
        &self,
        request: v1::DisruptionStatusRequest,
    ) -> Result<v1::DisruptionResponse> {
        let phase = match request.wanted() {
            DisruptionPhase::Unspecified => DisruptionPhase::SafeToStop,
            wanted => wanted,
        };
        Ok(yes(v1::DisruptionLease {
            lease_id: request.lease_id,
            token: request.token,
            phase: phase as i32,
            ..Default::default()
        }))
    }

    async fn release(&self, lease_id: u64, token: u64) -> Result<v1::DisruptionResponse> {
        Ok(yes(v1::DisruptionLease { lease_id, token, ..Default::default() }))
    }

    async fn list(&self) -> Result<Vec<v1::DisruptionLease>> {
        Ok(Vec::new())
    }

    async fn set_store(
        &self,
        store_id: u64,
        action: v1::StoreAction,
        lost: bool,
    ) -> Result<v1::SetStoreResponse> {
        self.0.set_store(store_id, action, lost).await
    }
}
