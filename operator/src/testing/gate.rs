//! A control plane for whole-operator tests: stores that follow the Pods of the scripted API server, and a gate
//! that lets one store of three be down. Every operator process has a connection of its own, cut with its `Link`.

use super::link::{Fault, Link};
use super::serve::ApiServer;
use crate::control::{Connector, ControlApi};
use crate::error::{Error, Result};
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use undb_proto::v1::{self, DisruptionLease, DisruptionPhase as Phase, StoreAction, StoreState};
use undb_runtime::Clock;
use undb_sdk::ApplyOutcome;

/// Ticks that a store needs after its Pod is ready until its shards have caught up.
const CATCH_UP_TICKS: u32 = 2;
const LEADERS: u32 = 4;

#[derive(Clone, Debug)]
pub struct FakeStore {
    pub address: String,
    /// The volume claim that its identity lies on.
    pub claim_uid: String,
    pub state: StoreState,
    pub replicas: u32,
    pub leaders: u32,
    ready_ticks: u32,
}

#[derive(Default)]
pub struct State {
    pub stores: BTreeMap<u64, FakeStore>,
    pub leases: Vec<DisruptionLease>,
    pub is_down: bool,
    /// Nobody has heard yet of a store that restarts, whatever it says of itself.
    pub is_return_unheard: bool,
    /// What must never happen, and did.
    pub violations: Vec<String>,
    next: u64,
}

/// The control plane itself; clones share it.
#[derive(Clone)]
pub struct FakeGate {
    pub state: Arc<Mutex<State>>,
    clock: Clock,
}

impl State {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn is_up(&self, id: u64) -> bool {
        let store = self.stores.get(&id);
        store.is_some_and(|s| s.state != StoreState::StoreRemoved && s.ready_ticks > CATCH_UP_TICKS)
    }

    fn lease_of(&self, id: u64) -> Option<&DisruptionLease> {
        self.leases.iter().find(|l| l.stores.contains(&id))
    }

    /// Stores with copies that do not serve now.
    pub fn down(&self) -> Vec<u64> {
        let holding =
            self.stores.iter().filter(|(_, s)| s.state != StoreState::StoreRemoved && s.replicas > 0);
        holding.map(|(id, _)| *id).filter(|id| !self.is_up(*id)).collect()
    }

    fn may_stop(&self, id: u64, stopped: &[u64]) -> bool {
        if self.stores.get(&id).is_some_and(|s| s.replicas == 0) {
            return true;
        }
        let others = self
            .stores
            .iter()
            .filter(|(o, s)| **o != id && s.replicas > 0 && s.state != StoreState::StoreRemoved);
        let fine = others.map(|(o, _)| *o).all(|o| self.is_up(o) && self.lease_of(o).is_none());
        fine || (stopped.contains(&id) && !self.is_up(id))
    }

    fn blocked(&self, id: u64) -> v1::DisruptionResponse {
        let shard = v1::BlockingShard {
            shard_id: 1,
            table: "t".into(),
            reason: "StoreDown".into(),
            message: format!("stores {:?} do not serve", self.down()),
            ..Default::default()
        };
        let leaders_left = self.stores.get(&id).map_or(0, |s| s.leaders);
        v1::DisruptionResponse {
            blocking: vec![shard],
            blocking_count: 1,
            leaders_left,
            ..Default::default()
        }
    }
}

impl FakeGate {
    pub fn new(clock: Clock) -> Self {
        Self { state: Arc::default(), clock }
    }

    /// A connection for one process.
    pub fn connector(&self, link: &Link) -> Arc<dyn Connector> {
        Arc::new(Connected { gate: self.clone(), link: link.clone() })
    }

    /// One second of the stores: `pods` is address -> (claim's uid, ready).
    pub fn tick(&self, pods: &BTreeMap<String, (String, bool)>) {
        let mut state = self.state.lock();
        if state.is_down {
            return;
        }
        for (address, (claim_uid, ready)) in pods {
            let known = |s: &FakeStore| s.address == *address && s.claim_uid == *claim_uid;
            if *ready && !state.stores.values().any(known) {
                let id = state.next();
                let store = FakeStore {
                    address: address.clone(),
                    claim_uid: claim_uid.clone(),
                    state: StoreState::StoreUp,
                    replicas: 1,
                    leaders: LEADERS,
                    ready_ticks: 0,
                };
                state.stores.insert(id, store);
            }
        }
        let is_return_unheard = state.is_return_unheard;
        for store in state.stores.values_mut() {
            let ready =
                pods.get(&store.address).is_some_and(|(uid, ready)| *ready && *uid == store.claim_uid);
            let is_unheard = is_return_unheard && store.ready_ticks == 0;
            store.ready_ticks = if ready && !is_unheard { store.ready_ticks + 1 } else { 0 };
            if store.state == StoreState::StoreDraining && ready {
                store.replicas = store.replicas.saturating_sub(1);
            }
        }
    }
}

struct Connected {
    gate: FakeGate,
    link: Link,
}

#[async_trait]
impl Connector for Connected {
    async fn connect(&self, _namespace: &str, _control_plane: &str) -> Result<Arc<dyn ControlApi>> {
        Ok(Arc::new(Connected { gate: self.gate.clone(), link: self.link.clone() }))
    }
}

impl Connected {
    async fn call<T>(&self, line: &str, effect: impl FnOnce(&mut State, u64) -> Result<T>) -> Result<T> {
        let cut = || Error::ControlPlaneUnreachable {
            namespace: "data".into(),
            control_plane: "undb".into(),
            cause: format!("cut at {line}"),
        };
        let fault = self.link.take_outside(line);
        if fault == Some(Fault::Sleep) {
            self.link.asleep().await;
        }
        if fault == Some(Fault::Unreachable) || self.gate.state.lock().is_down {
            return Err(cut());
        }
        let now_ms = self.gate.clock.now_ms();
        let done = effect(&mut self.gate.state.lock(), now_ms);
        if fault == Some(Fault::AnswerLost) { Err(cut()) } else { done }
    }
}

fn rejected(message: &str) -> Error {
    Error::Control(undb_sdk::Error::Rejected { code: v1::ErrorCode::Conflict, message: message.into() })
}

fn answer(lease: DisruptionLease, is_done: bool, leaders_left: u32) -> v1::DisruptionResponse {
    v1::DisruptionResponse { done: is_done, lease: Some(lease), leaders_left, ..Default::default() }
}

#[async_trait]
impl ControlApi for Connected {
    async fn status(&self) -> Result<v1::StatusResponse> {
        self.call("status", |state, _| {
            let stores = state.stores.iter().map(|(id, s)| v1::StoreStatus {
                store: Some(v1::StoreRecord {
                    store_id: *id,
                    address: s.address.clone(),
                    state: s.state as i32,
                    ..Default::default()
                }),
                alive: state.is_up(*id),
                replicas: s.replicas.into(),
                leaders: s.leaders.into(),
                ..Default::default()
            });
            Ok(v1::StatusResponse { stores: stores.collect(), healthy: true, ..Default::default() })
        })
        .await
    }

    async fn apply(&self, _object: String) -> Result<ApplyOutcome> {
        self.call("apply", |_, _| Ok(ApplyOutcome { result: "unchanged".into(), warnings: vec![] })).await
    }

    async fn get(&self, _kind: &str, _name: &str, _table: &str) -> Result<Vec<String>> {
        self.call("get", |_, _| Ok(vec![])).await
    }

    async fn delete(&self, _kind: &str, _name: &str, _now: bool) -> Result<String> {
        self.call("delete", |_, _| Ok(String::new())).await
    }

    async fn acquire(&self, request: v1::AcquireDisruptionRequest) -> Result<v1::DisruptionResponse> {
        self.call("acquire", |state, now_ms| {
            let id = *request.stores.first().ok_or_else(|| rejected("no store"))?;
            let same = |l: &&DisruptionLease| l.holder == request.holder && l.stores == request.stores;
            if let Some(held) = state.leases.iter().find(same).cloned() {
                return Ok(answer(held, true, 0));
            }
            if state.lease_of(id).is_some() || !state.may_stop(id, &request.stopped_stores) {
                return Ok(state.blocked(id));
            }
            let lease = DisruptionLease {
                lease_id: state.next(),
                token: state.next(),
                kind: request.kind,
                stores: request.stores.clone(),
                holder: request.holder.clone(),
                expires_at_ms: now_ms + request.ttl_ms,
                phase: Phase::Draining as i32,
                ..Default::default()
            };
            if !request.dry_run {
                state.leases.push(lease.clone());
            }
            Ok(answer(lease, true, LEADERS))
        })
        .await
    }

    async fn disruption_status(
        &self,
        request: v1::DisruptionStatusRequest,
    ) -> Result<v1::DisruptionResponse> {
        self.call("lease", |state, now_ms| {
            let found = state.leases.iter().position(|l| l.lease_id == request.lease_id);
            let index = found.ok_or_else(|| rejected("there is no such lease"))?;
            let mut lease = state.leases.remove(index);
            let id = lease.stores.first().copied().unwrap_or_default();
            lease.expires_at_ms = now_ms + request.ttl_ms;
            let leaders = state.stores.get(&id).map_or(0, |s| s.leaders);
            let allowed = match (lease.phase(), request.wanted()) {
                (_, Phase::Unspecified) => false,
                (Phase::Stopped, Phase::SafeToStop) => false,
                (_, Phase::SafeToStop) => {
                    if let Some(store) = state.stores.get_mut(&id) {
                        store.leaders = store.leaders.saturating_sub(LEADERS / 2);
                    }
                    leaders == 0 && state.may_stop(id, &request.stopped_stores)
                }
                (Phase::Draining, Phase::Stopped) => false,
                _ => true,
            };
            if allowed && lease.phase != request.wanted() as i32 {
                lease.phase = request.wanted() as i32;
                lease.phase_since_ms = state.next();
            }
            state.leases.push(lease.clone());
            Ok(answer(lease, allowed, leaders))
        })
        .await
    }

    async fn release(&self, lease_id: u64, token: u64) -> Result<v1::DisruptionResponse> {
        self.call("release", |state, _| {
            let Some(lease) = state.leases.iter().find(|l| l.lease_id == lease_id).cloned() else {
                return Ok(v1::DisruptionResponse { done: true, ..Default::default() });
            };
            if lease.token != token {
                return Err(rejected("another token holds this lease"));
            }
            let back = |id: &u64| state.is_up(*id) || state.stores.get(id).is_none_or(|s| s.replicas == 0);
            let proven = lease.phase() == Phase::CatchingUp && lease.stores.iter().all(back);
            let empty = lease.stores.iter().all(|id| state.stores.get(id).is_none_or(|s| s.replicas == 0));
            if !(proven || empty || lease.phase() == Phase::Draining) {
                return Ok(answer(lease, false, 0));
            }
            state.leases.retain(|l| l.lease_id != lease_id);
            for id in &lease.stores {
                if let Some(store) = state.stores.get_mut(id) {
                    store.leaders = LEADERS;
                }
            }
            Ok(answer(lease, true, 0))
        })
        .await
    }

    async fn list(&self) -> Result<Vec<DisruptionLease>> {
        self.call("list", |state, _| Ok(state.leases.clone())).await
    }

    async fn set_store(&self, id: u64, action: StoreAction, lost: bool) -> Result<v1::SetStoreResponse> {
        self.call("set_store", |state, _| {
            let up = state.is_up(id);
            let store = state.stores.get_mut(&id).ok_or_else(|| rejected("there is no such store"))?;
            let violation = match action {
                StoreAction::StoreDrain => {
                    store.state = StoreState::StoreDraining;
                    None
                }
                StoreAction::StoreUncordon => {
                    store.state = StoreState::StoreUp;
                    None
                }
                StoreAction::StoreRemove if store.replicas == 0 || (lost && !up) => {
                    store.state = StoreState::StoreRemoved;
                    None
                }
                other => Some(format!("{other:?} of store {id} with {} replicas", store.replicas)),
            };
            let record = v1::StoreRecord { store_id: id, state: store.state as i32, ..Default::default() };
            state.violations.extend(violation);
            Ok(v1::SetStoreResponse { store: Some(record), ..Default::default() })
        })
        .await
    }
}

/// What the API server holds of stores: address -> (claim's uid, ready).
pub fn store_pods(server: &ApiServer, namespace: &str) -> BTreeMap<String, (String, bool)> {
    let pods = server.with(|c| c.all(&super::Key::new("pods", namespace, "")));
    let of_stores =
        pods.into_iter().filter(|(_, pod)| pod["metadata"]["labels"]["undb.io/component"] == "store");
    of_stores
        .map(|(key, pod)| {
            let cluster = pod["metadata"]["labels"]["undb.io/store-cluster"].as_str().unwrap_or_default();
            let address = crate::workload::names::store_address(&key.name, cluster, namespace);
            let claim = server.get("persistentvolumeclaims", namespace, &format!("data-{}", key.name));
            let uid = claim.and_then(|c| Some(c["metadata"]["uid"].as_str()?.to_owned())).unwrap_or_default();
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            (address, (uid, ready && pod["metadata"]["deletionTimestamp"].is_null()))
        })
        .collect()
}
