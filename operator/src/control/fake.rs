//! A control plane for tests: it answers from what a test put in, and remembers what it was asked.

use super::{Connector, ControlApi};
use crate::error::{Error, Result};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use undb_proto::v1;
use undb_sdk::ApplyOutcome;

/// Answers and calls. Clones share both.
#[derive(Clone, Default)]
pub struct FakeControl {
    // Owner: the test and the code under it, in turn.
    state: Arc<Mutex<State>>,
}

/// What it answers.
#[derive(Default)]
pub struct State {
    /// It does not answer at all.
    pub down: bool,
    pub status: v1::StatusResponse,
    pub leases: Vec<v1::DisruptionLease>,
    pub objects: Vec<String>,
    /// Answers to acquire, disruption_status and release, in order; none left: done.
    pub disruptions: VecDeque<v1::DisruptionResponse>,
    /// One line for each call.
    pub calls: Vec<String>,
}

impl FakeControl {
    /// Looks at, or changes, what it answers.
    pub fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock())
    }

    fn called<T>(&self, line: String, answer: impl FnOnce(&mut State) -> T) -> Result<T> {
        let mut state = self.state.lock();
        state.calls.push(line);
        if state.down {
            return Err(Error::ControlPlaneUnreachable {
                namespace: "test".into(),
                control_plane: "fake".into(),
                cause: "down".into(),
            });
        }
        Ok(answer(&mut state))
    }
}

fn next(state: &mut State) -> v1::DisruptionResponse {
    let done = v1::DisruptionResponse { done: true, ..Default::default() };
    state.disruptions.pop_front().unwrap_or(done)
}

#[async_trait]
impl ControlApi for FakeControl {
    async fn status(&self) -> Result<v1::StatusResponse> {
        self.called("status".into(), |s| s.status.clone())
    }

    async fn apply(&self, object_json: String) -> Result<ApplyOutcome> {
        self.called(format!("apply {object_json}"), |_| ApplyOutcome {
            result: "configured".into(),
            warnings: Vec::new(),
        })
    }

    async fn get(&self, kind: &str, name: &str, table: &str) -> Result<Vec<String>> {
        self.called(format!("get {kind} {name} {table}"), |s| s.objects.clone())
    }

    async fn delete(&self, kind: &str, name: &str, now: bool) -> Result<String> {
        self.called(format!("delete {kind} {name} now={now}"), |_| String::new())
    }

    async fn acquire(&self, request: v1::AcquireDisruptionRequest) -> Result<v1::DisruptionResponse> {
        let line = format!("acquire {:?} {:?} {}", request.kind(), request.stores, request.holder);
        self.called(line, next)
    }

    async fn disruption_status(
        &self,
        request: v1::DisruptionStatusRequest,
    ) -> Result<v1::DisruptionResponse> {
        self.called(format!("lease {} {:?}", request.lease_id, request.wanted()), next)
    }

    async fn release(&self, lease_id: u64, _token: u64) -> Result<v1::DisruptionResponse> {
        self.called(format!("release {lease_id}"), next)
    }

    async fn list(&self) -> Result<Vec<v1::DisruptionLease>> {
        self.called("list".into(), |s| s.leases.clone())
    }

    async fn set_store(
        &self,
        store_id: u64,
        action: v1::StoreAction,
        lost: bool,
    ) -> Result<v1::SetStoreResponse> {
        self.called(format!("set_store {store_id} {action:?} lost={lost}"), |_| Default::default())
    }
}

#[async_trait]
impl Connector for FakeControl {
    async fn connect(&self, _namespace: &str, _control_plane: &str) -> Result<Arc<dyn ControlApi>> {
        Ok(Arc::new(self.clone()))
    }
}
