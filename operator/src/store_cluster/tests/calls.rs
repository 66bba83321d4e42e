//! The calls of a pass on the small world, each checked against the rules that must hold whatever the
//! plan does.

use super::sim::{Sim, SimRecord, SimStore, World_};
use crate::control::ControlApi;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::store_cluster::model::{Mark, PodSeen, State, StoreSeen};
use crate::store_cluster::world::{Offline, World};
use async_trait::async_trait;
use parking_lot::Mutex;
use undb_proto::v1::{self, DisruptionLease, DisruptionPhase as Phase, StoreAction, StoreState};
use undb_sdk::ApplyOutcome;

fn crashed() -> Error {
    Error::Fatal("crashed".into())
}

fn api_error(code: u16) -> Error {
    let status = kube::core::Status::failure("refused", "Refused").with_code(code);
    kube::Error::Api(Box::new(status)).into()
}

impl Sim {
    pub fn new(world: World_) -> Self {
        Self { state: Mutex::new(world) }
    }

    /// One call: the process may die before its effect, or after.
    fn call<T>(&self, effect: impl FnOnce(&mut World_) -> Result<T>) -> Result<T> {
        let mut world = self.state.lock();
        world.calls += 1;
        let crash = world.crash.filter(|(at, _)| *at == world.calls);
        if let Some((_, is_after)) = crash {
            if is_after {
                let _done = effect(&mut world);
            }
            return Err(crashed());
        }
        effect(&mut world)
    }

    fn ask<T>(&self, answer: impl FnOnce(&mut World_) -> Result<T>) -> Result<T> {
        self.call(|world| {
            if world.is_control_down {
                return Err(Error::ControlPlaneUnreachable {
                    namespace: "n".into(),
                    control_plane: "c".into(),
                    cause: "down".into(),
                });
            }
            answer(world)
        })
    }
}

fn store<'a>(world: &'a mut World_, name: &str) -> Result<&'a mut SimStore> {
    world.stores.get_mut(name).ok_or_else(|| api_error(404))
}

fn response(lease: Option<DisruptionLease>, is_done: bool) -> v1::DisruptionResponse {
    v1::DisruptionResponse { done: is_done, lease, ..Default::default() }
}

/// The answer to a question that begins nothing.
fn looked(world: &World_, request: &v1::AcquireDisruptionRequest) -> v1::DisruptionResponse {
    let is_removal = request.kind() == v1::DisruptionKind::Remove;
    if world.may_stop(&request.stores, is_removal, &request.stopped_stores) {
        return response(None, true);
    }
    let homeless = request.stores.iter().flat_map(|id| world.homeless(*id)).map(|shard| v1::BlockingShard {
        shard_id: shard as u64,
        reason: "NoTarget".into(),
        ..Default::default()
    });
    v1::DisruptionResponse { blocking: homeless.collect(), ..response(None, false) }
}

#[async_trait]
impl World for Sim {
    fn control(&self) -> Option<&dyn ControlApi> {
        Some(self)
    }

    async fn create_store(&self, ordinal: u32, replaces: Option<&str>) -> Result<()> {
        self.call(|w| {
            w.cluster.next_ordinal = w.cluster.next_ordinal.max(ordinal + 1);
            let name = format!("s-{ordinal}");
            let uid = format!("store-{}", w.next());
            let seen = StoreSeen {
                name: name.clone(),
                uid,
                ordinal,
                replaces: replaces.map(str::to_owned),
                template_hash: w.cluster.template_hash.clone(),
                ..StoreSeen::default()
            };
            w.stores.entry(name).or_insert(SimStore { seen, ..SimStore::default() });
            Ok(())
        })
    }

    async fn set_template(&self, name: &str) -> Result<()> {
        self.call(|w| {
            let hash = w.cluster.template_hash.clone();
            store(w, name)?.seen.template_hash = hash;
            Ok(())
        })
    }

    async fn set_offline(&self, name: &str, wish: Offline) -> Result<()> {
        self.call(|w| {
            let seen = &mut store(w, name)?.seen;
            (seen.is_offline, seen.mark) = match wish {
                Offline::Take => (true, Mark::Victim),
                Offline::BringBack => (false, Mark::Cancelled),
                Offline::Forget => (false, Mark::None),
            };
            Ok(())
        })
    }

    async fn delete_store(&self, name: &str) -> Result<()> {
        self.call(|w| {
            if let Some(id) = w.id_of(name) {
                assert_eq!(w.records[&id].state, State::Removed, "{name} goes before its id is fenced");
                assert!(w.lease_of(id).is_none(), "{name} goes under a lease");
            }
            let is_drained = store(w, name)?.seen.is_drained_written;
            assert!(is_drained, "an admission policy refuses this");
            w.stores.remove(name);
            Ok(())
        })
    }

    async fn create_claim(&self, name: &str) -> Result<()> {
        self.call(|w| {
            store(w, name)?.seen.has_claim = true;
            Ok(())
        })
    }

    async fn delete_claim(&self, name: &str) -> Result<()> {
        self.call(|w| {
            if let Some(id) = w.id_of(name) {
                assert_eq!(
                    w.records[&id].state,
                    State::Removed,
                    "the volume goes before the removal is known"
                );
            }
            store(w, name)?.seen.has_claim = false;
            Ok(())
        })
    }

    async fn create_fence(&self, name: &str) -> Result<()> {
        self.call(|w| {
            store(w, name)?.has_fence = true;
            Ok(())
        })
    }

    async fn fence(&self, name: &str) -> Result<Option<Fence>> {
        self.call(|w| {
            let store = store(w, name)?;
            let fence =
                Fence { resource_version: store.fence_version.to_string(), is_open: store.is_fence_open };
            Ok(store.has_fence.then_some(fence))
        })
    }

    async fn open_fence(&self, name: &str, resource_version: &str) -> Result<()> {
        self.call(|w| {
            let id = w.id_of(name);
            let is_running = w.is_running(name);
            let lease = id.and_then(|id| w.lease_of(id).cloned());
            let store = store(w, name)?;
            if store.fence_version.to_string() != resource_version {
                return Err(api_error(409));
            }
            match id {
                Some(_) => assert_eq!(
                    lease.map(|l| l.phase()),
                    Some(Phase::SafeToStop),
                    "{name}: opened without a yes of the gate"
                ),
                None => assert!(!is_running, "{name}: opened while it runs and nobody knows it"),
            }
            store.is_fence_open = true;
            store.fence_version += 1;
            Ok(())
        })
    }

    async fn seal_fence(&self, name: &str, _mark: &str) -> Result<()> {
        self.call(|w| {
            store(w, name)?.fence_version += 1;
            Ok(())
        })
    }

    async fn close_fence(&self, name: &str) -> Result<()> {
        self.call(|w| {
            let store = store(w, name)?;
            store.fence_version += u64::from(store.is_fence_open);
            store.is_fence_open = false;
            Ok(())
        })
    }

    async fn create_pod(&self, name: &str) -> Result<()> {
        self.call(|w| {
            let uid = format!("pod-{}", w.next());
            let template_hash = w.cluster.template_hash.clone();
            let store = store(w, name)?;
            assert!(store.has_fence && store.seen.has_claim, "{name}: a Pod without fence or volume");
            store.seen.pod.get_or_insert(PodSeen {
                uid,
                template_hash,
                is_pending: true,
                zone: Some("z".into()),
                ..PodSeen::default()
            });
            Ok(())
        })
    }

    async fn write_zone(&self, name: &str, _: &str, zone: &str) -> Result<()> {
        self.call(|w| {
            if let Some(pod) = &mut store(w, name)?.seen.pod {
                pod.zone = Some(zone.to_owned());
            }
            Ok(())
        })
    }

    async fn pod_runs(&self, name: &str, pod_uid: &str) -> Result<Option<bool>> {
        self.call(|w| {
            let pod = store(w, name)?.seen.live_pod().filter(|p| p.uid == pod_uid);
            Ok(pod.map(|p| p.is_running))
        })
    }

    async fn evict(&self, name: &str, pod_uid: &str) -> Result<()> {
        self.call(|w| {
            let store = store(w, name)?;
            let Some(pod) = store.seen.pod.as_mut().filter(|p| p.uid == pod_uid) else {
                return Err(api_error(409));
            };
            if !store.is_fence_open && !pod.is_pending {
                return Err(api_error(429));
            }
            pod.is_terminating = true;
            Ok(())
        })
    }

    async fn delete_pod(&self, name: &str, pod_uid: &str) -> Result<()> {
        self.call(|w| {
            if let Some(id) = w.id_of(name) {
                assert_eq!(w.records[&id].state, State::Removed, "a Pod of a living store is deleted");
            }
            if let Some(pod) = store(w, name)?.seen.pod.as_mut().filter(|p| p.uid == pod_uid) {
                pod.is_terminating = true;
            }
            Ok(())
        })
    }

    fn address(&self, name: &str) -> String {
        name.to_owned()
    }
}

#[async_trait]
impl ControlApi for Sim {
    async fn status(&self) -> Result<v1::StatusResponse> {
        self.ask(|w| {
            let record = |(id, r): (&u64, &SimRecord)| v1::StoreStatus {
                store: Some(v1::StoreRecord { store_id: *id, address: r.name.clone(), ..Default::default() }),
                ..Default::default()
            };
            Ok(v1::StatusResponse { stores: w.records.iter().map(record).collect(), ..Default::default() })
        })
    }

    async fn apply(&self, _: String) -> Result<ApplyOutcome> {
        Ok(ApplyOutcome { result: "unchanged".into(), warnings: vec![] })
    }

    async fn get(&self, _: &str, _: &str, _: &str) -> Result<Vec<String>> {
        Ok(vec![])
    }

    async fn delete(&self, _: &str, _: &str, _: bool) -> Result<String> {
        Ok(String::new())
    }

    async fn acquire(&self, request: v1::AcquireDisruptionRequest) -> Result<v1::DisruptionResponse> {
        self.ask(|w| {
            let kind = request.kind();
            if request.dry_run {
                return Ok(looked(w, &request));
            }
            // No copies: nothing to weigh.
            let lease = w.grant(kind, &request.stores, &request.holder, &request.stopped_stores);
            let is_done = lease.is_some();
            Ok(response(lease, is_done))
        })
    }

    async fn disruption_status(
        &self,
        request: v1::DisruptionStatusRequest,
    ) -> Result<v1::DisruptionResponse> {
        self.ask(|w| {
            let found = w.leases.iter().position(|l| l.lease_id == request.lease_id);
            let index = found.ok_or_else(|| api_error(404))?;
            let lease = w.leases[index].clone();
            let rest = World_ { leases: without(&w.leases, lease.lease_id), ..w.clone() };
            let is_removal = lease.kind() == v1::DisruptionKind::Remove;
            let is_safe = rest.may_stop(&lease.stores, is_removal, &request.stopped_stores);
            let wanted = request.wanted();
            let is_allowed = match (lease.phase(), wanted) {
                (_, Phase::Unspecified) => false,
                (from, to) if from == to && to != Phase::SafeToStop => true,
                (Phase::Draining | Phase::CatchingUp | Phase::SafeToStop, Phase::SafeToStop) => is_safe,
                (Phase::SafeToStop, Phase::Stopped) => true,
                (Phase::SafeToStop | Phase::Stopped | Phase::Draining, Phase::CatchingUp) => {
                    let is_open = |id: &u64| {
                        w.stores.values().any(|s| w.id_of(&s.seen.name) == Some(*id) && s.is_fence_open)
                    };
                    assert!(!lease.stores.iter().any(is_open), "back up is said while the fence is open");
                    true
                }
                _ => {
                    return Err(Error::Control(undb_sdk::Error::Rejected {
                        code: v1::ErrorCode::Conflict,
                        message: format!("not from {:?} to {wanted:?}", lease.phase()),
                    }));
                }
            };
            let held = &mut w.leases[index];
            held.expires_at_ms = w.now_ms + 120_000;
            if is_allowed {
                held.phase = wanted as i32;
            }
            Ok(response(Some(held.clone()), is_allowed))
        })
    }

    async fn release(&self, lease_id: u64, _: u64) -> Result<v1::DisruptionResponse> {
        self.ask(|w| {
            let Some(lease) = w.leases.iter().find(|l| l.lease_id == lease_id).cloned() else {
                return Ok(response(None, true));
            };
            let is_cancelled = lease.phase() == Phase::Draining && w.now_ms < lease.expires_at_ms;
            let is_back = |id: &u64| w.replicas_on(*id) == 0 || w.is_up(*id);
            let is_done = is_cancelled
                || lease.stores.iter().all(|id| w.replicas_on(*id) == 0)
                || (lease.phase() == Phase::CatchingUp && lease.stores.iter().all(is_back));
            if is_done {
                for store in w.stores.values().filter(|s| s.is_fence_open) {
                    let id = w.id_of(&store.seen.name).unwrap_or(0);
                    assert!(!lease.stores.contains(&id), "a lease ends while the fence is open");
                }
                w.leases.retain(|l| l.lease_id != lease_id);
            }
            Ok(response(Some(lease), is_done))
        })
    }

    async fn list(&self) -> Result<Vec<DisruptionLease>> {
        self.ask(|w| Ok(w.leases.clone()))
    }

    async fn set_store(&self, id: u64, action: StoreAction, is_lost: bool) -> Result<v1::SetStoreResponse> {
        self.ask(|w| {
            let replicas = w.replicas_on(id);
            let is_up = w.is_up(id);
            let may_go = replicas == 0 || (is_lost && w.may_stop(&[id], false, &[]));
            let record = w.records.get_mut(&id).ok_or_else(|| api_error(404))?;
            match action {
                StoreAction::StoreDrain => record.state = State::Draining,
                StoreAction::StoreUncordon => record.state = State::Up,
                StoreAction::StoreRemove if may_go => {
                    assert!(!is_lost || !is_up, "a living store is given up as lost");
                    record.state = State::Removed;
                }
                _ => {}
            }
            let state =
                if record.state == State::Removed { StoreState::StoreRemoved } else { StoreState::StoreUp };
            let store = v1::StoreRecord { store_id: id, state: state as i32, ..Default::default() };
            Ok(v1::SetStoreResponse { store: Some(store), ..Default::default() })
        })
    }
}

fn without(leases: &[DisruptionLease], lease_id: u64) -> Vec<DisruptionLease> {
    leases.iter().filter(|l| l.lease_id != lease_id).cloned().collect()
}
