//! A small world: stores with Pods, fences and records, shards on them, and a gate that counts.

use crate::fence::Fence;
use crate::gate::Holder;
use crate::store_cluster::model::{
    Cluster, Control, Known, Lease, Mark, NodeSeen, NodeState, Observed, Record, State, StoreSeen,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use undb_proto::v1::{self, DisruptionLease, DisruptionPhase as Phase};

/// The hash of a template whose image cannot start.
pub const BAD: &str = "bad";

/// A world; calls are counted so that one of them can be the last.
#[derive(Default)]
pub struct Sim {
    pub state: Mutex<World_>,
}

#[derive(Clone, Default)]
pub struct World_ {
    pub cluster: Cluster,
    pub stores: BTreeMap<String, SimStore>,
    pub records: BTreeMap<u64, SimRecord>,
    pub leases: Vec<DisruptionLease>,
    /// Store ids of each shard's copies.
    pub shards: Vec<BTreeSet<u64>>,
    pub is_control_down: bool,
    pub now_ms: u64,
    pub calls: u32,
    /// The process dies at this call; `true`: after its effect.
    pub crash: Option<(u32, bool)>,
    pub next: u64,
}

#[derive(Clone, Default)]
pub struct SimStore {
    pub seen: StoreSeen,
    pub is_fence_open: bool,
    pub fence_version: u64,
    pub has_fence: bool,
    pub is_node_lost: bool,
}

#[derive(Clone, Debug, Default)]
pub struct SimRecord {
    pub name: String,
    pub state: State,
    /// Ticks since its process runs; caught up at 2.
    pub up_ticks: u32,
    pub is_frozen: bool,
}

impl World_ {
    pub fn new(replicas: usize) -> Self {
        let cluster = Cluster {
            uid: "cluster".into(),
            replicas,
            is_rolling: true,
            template_hash: "one".into(),
            replace_after_ms: Some(60_000),
            ..Cluster::default()
        };
        Self { cluster, now_ms: 1_000_000, next: 1, ..Self::default() }
    }

    pub fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn is_running(&self, name: &str) -> bool {
        self.stores.get(name).is_some_and(|s| s.seen.is_running() && !s.is_node_lost)
    }

    /// Serves, and has what the others have.
    pub fn is_up(&self, id: u64) -> bool {
        self.records.get(&id).is_some_and(|r| {
            r.state != State::Removed && !r.is_frozen && r.up_ticks >= 2 && self.is_running(&r.name)
        })
    }

    pub(super) fn lease_of(&self, id: u64) -> Option<&DisruptionLease> {
        self.leases.iter().find(|l| l.stores.contains(&id))
    }

    pub(super) fn id_of(&self, name: &str) -> Option<u64> {
        self.records.iter().rev().find(|(_, r)| r.name == name).map(|(id, _)| *id)
    }

    pub fn replicas_on(&self, id: u64) -> usize {
        self.shards.iter().filter(|s| s.contains(&id)).count()
    }

    pub fn is_shard_up(&self, shard: &BTreeSet<u64>) -> bool {
        shard.iter().filter(|id| self.is_up(**id)).count() > shard.len() / 2
    }

    /// The predicate: enough others that are up and under no other lease.
    pub(super) fn may_stop(&self, ids: &[u64], is_removal: bool, stopped: &[u64]) -> bool {
        let holds = |shard: &&BTreeSet<u64>| ids.iter().any(|id| shard.contains(id));
        self.shards.iter().filter(holds).all(|shard| {
            let others = shard.iter().filter(|id| !ids.contains(id));
            let is_left = |id: &&u64| self.is_up(**id) && self.lease_of(**id).is_none();
            let is_enough = others.filter(is_left).count() > shard.len() / 2;
            // What is down already takes nothing away.
            let is_down = ids.iter().all(|id| stopped.contains(id) && !self.is_up(*id));
            !is_removal && (is_enough || is_down)
        })
    }

    /// What the kubelets, the stores and cluster control do meanwhile.
    pub fn tick(&mut self) {
        self.now_ms += 5_000;
        let names: Vec<String> = self.stores.keys().cloned().collect();
        for name in &names {
            self.run_pod(name);
        }
        let ids: Vec<u64> = self.records.keys().copied().collect();
        for id in ids {
            let name = self.records[&id].name.clone();
            let is_newest = self.id_of(&name) == Some(id);
            let runs = is_newest && self.is_running(&name);
            let record = self.records.get_mut(&id).expect("known");
            record.up_ticks = if runs && !record.is_frozen { record.up_ticks + 1 } else { 0 };
            if record.state == State::Removed || record.state == State::Draining {
                self.move_one(id);
            }
        }
    }

    fn run_pod(&mut self, name: &str) {
        let cluster_hash_bad = BAD;
        let Some(store) = self.stores.get_mut(name) else { return };
        let is_node_lost = store.is_node_lost;
        match &mut store.seen.pod {
            Some(pod) if pod.is_terminating && is_node_lost => {}
            Some(pod) if pod.is_terminating => store.seen.pod = None,
            Some(pod) if pod.template_hash == cluster_hash_bad => {
                pod.is_pending = true;
            }
            Some(_) if is_node_lost => {}
            Some(pod) => {
                pod.is_pending = false;
                // One tick to start, one to be ready.
                pod.is_ready = pod.is_running;
                pod.is_running = true;
            }
            None => {}
        }
        if self.is_running(name) && self.id_of(name).is_none() && !self.is_control_down {
            let id = self.next();
            self.records.insert(id, SimRecord { name: name.to_owned(), ..SimRecord::default() });
        }
    }

    /// One copy moves away from a store that leaves, or is gone, while a majority can do it.
    fn move_one(&mut self, id: u64) {
        let targets: Vec<u64> = self.records.keys().copied().filter(|t| self.is_target(*t)).collect();
        for index in 0..self.shards.len() {
            let shard = self.shards[index].clone();
            if !shard.contains(&id) || !self.is_shard_up(&shard) {
                continue;
            }
            if let Some(target) = targets.iter().find(|t| !shard.contains(t)) {
                self.shards[index].remove(&id);
                self.shards[index].insert(*target);
                return;
            }
        }
    }

    /// Shards with a copy on this store that no other store could take.
    pub fn homeless(&self, id: u64) -> Vec<usize> {
        let has_target =
            |shard: &BTreeSet<u64>| self.records.keys().any(|t| self.is_target(*t) && !shard.contains(t));
        let on_it = self.shards.iter().enumerate().filter(|(_, shard)| shard.contains(&id));
        on_it.filter(|(_, shard)| !has_target(shard)).map(|(index, _)| index).collect()
    }

    fn is_target(&self, id: u64) -> bool {
        self.is_up(id) && self.records[&id].state == State::Up && self.lease_of(id).is_none()
    }

    pub fn observe(&self) -> Observed {
        let stores = self.stores.values().map(|s| self.store_seen(s));
        let mut stores: Vec<StoreSeen> = stores.collect();
        stores.sort_by_key(|s| s.ordinal);
        let leases = self.leases.iter().cloned().map(Lease::new).collect();
        let control = (!self.is_control_down).then_some(Control { leases });
        Observed { cluster: self.cluster.clone(), stores, control, ..Observed::default() }
    }

    fn store_seen(&self, store: &SimStore) -> StoreSeen {
        let mut seen = store.seen.clone();
        seen.fence = store.has_fence.then(|| Fence {
            resource_version: store.fence_version.to_string(),
            is_open: store.is_fence_open,
        });
        let since_ms = self.now_ms.saturating_sub(600_000);
        let state = if store.is_node_lost { NodeState::NotReady { since_ms } } else { NodeState::Ready };
        seen.node =
            NodeSeen { name: Some("node".into()), state, zone: Some("z".into()), ..Default::default() };
        if seen.pod.is_none() && seen.mark == Mark::None && !seen.is_offline {
            seen.node.state = NodeState::Unbound;
        }
        seen.record = match self.id_of(&seen.name) {
            _ if self.is_control_down => Record::Unknown,
            None => Record::Absent,
            Some(id) => Record::Known(Known {
                store_id: id,
                state: self.records[&id].state,
                is_alive: self.is_running(&seen.name) && !self.records[&id].is_frozen,
                replicas: self.replicas_on(id) as u64,
                leaders: 0,
                zone: String::new(),
            }),
        };
        seen
    }

    /// As the status of a pass writes it.
    pub fn write_statuses(&mut self) {
        let observed = self.observe();
        for seen in &observed.stores {
            let store = self.stores.get_mut(&seen.name).expect("seen");
            store.seen.known_id = seen.store_id().or(store.seen.known_id);
            if seen.record != Record::Unknown {
                let is_never = seen.record == Record::Absent && seen.is_offline && seen.pod.is_none();
                store.seen.is_drained_written =
                    seen.is_state(State::Removed) || (is_never && seen.known_id.is_none());
            }
        }
        let beyond = observed.stores.iter().map(|s| s.ordinal + 1).max().unwrap_or(0);
        self.cluster.next_ordinal = self.cluster.next_ordinal.max(beyond);
    }

    /// `kubectl drain`, through the webhook: what its code does.
    pub fn evict_by_person(&mut self, name: &str) {
        if self.is_control_down {
            return;
        }
        let Some(id) = self.id_of(name) else { return };
        let Some(pod) = self.stores[name].seen.live_pod().cloned() else { return };
        if self.stores[name].is_fence_open {
            return self.terminate(name);
        }
        let holder = Holder::Eviction(pod.uid).to_string();
        if self.grant(v1::DisruptionKind::Restart, &[id], &holder, &[]).is_none() {
            return;
        }
        let lease = self.leases.iter_mut().find(|l| l.holder == holder).expect("granted");
        if lease.phase() == Phase::Draining {
            lease.phase = Phase::SafeToStop as i32;
            lease.expires_at_ms = self.now_ms + 120_000;
            let store = self.stores.get_mut(name).expect("seen");
            store.is_fence_open = true;
            store.fence_version += 1;
            self.terminate(name);
        }
    }

    pub fn terminate(&mut self, name: &str) {
        if let Some(pod) = self.stores.get_mut(name).and_then(|s| s.seen.pod.as_mut()) {
            pod.is_terminating = true;
        }
    }

    pub(super) fn grant(
        &mut self,
        kind: v1::DisruptionKind,
        ids: &[u64],
        holder: &str,
        stopped: &[u64],
    ) -> Option<DisruptionLease> {
        let is_same = |l: &&DisruptionLease| l.holder == holder && l.stores == ids && l.kind() == kind;
        if let Some(held) = self.leases.iter().find(is_same) {
            return Some(held.clone());
        }
        let is_busy = ids.iter().any(|id| self.lease_of(*id).is_some());
        let is_removal = kind == v1::DisruptionKind::Remove;
        if is_busy || !self.may_stop(ids, is_removal, stopped) {
            return None;
        }
        let id = self.next();
        let lease = DisruptionLease {
            lease_id: id,
            token: id,
            kind: kind as i32,
            stores: ids.to_vec(),
            holder: holder.to_owned(),
            expires_at_ms: self.now_ms + 120_000,
            phase: Phase::Draining as i32,
            ..Default::default()
        };
        self.leases.push(lease.clone());
        self.check_one_of_ours();
        Some(lease)
    }

    fn check_one_of_ours(&self) {
        let ours = self.leases.iter().filter(|l| {
            matches!(Holder::parse(&l.holder), Some(Holder::StoreCluster(_) | Holder::ScaleIn(_)))
        });
        assert!(ours.count() <= 1, "two disruptions of ours at once: {:?}", self.leases);
    }

    /// Everything is as wanted and nothing is held.
    pub fn is_settled(&self) -> bool {
        let is_fine = |s: &SimStore| {
            let pod = s.seen.live_pod();
            !s.is_fence_open
                && !s.seen.is_offline
                && s.seen.mark == Mark::None
                && pod.is_some_and(|p| p.is_ready && p.template_hash == self.cluster.template_hash)
        };
        self.stores.len() == self.cluster.replicas
            && self.leases.is_empty()
            && self.stores.values().all(is_fine)
            && self.shards.iter().all(|s| s.iter().all(|id| self.is_up(*id)))
    }
}
