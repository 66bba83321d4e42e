//! What stores said: the observations that the plan takes, and the leaders that routing follows.

use super::gate_seen::GateSeen;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use undb_meta::plan::Observations;
use undb_meta::{State, gate};
use undb_proto::v1;

pub(super) type Leaders = Arc<BTreeMap<u64, v1::LeaderInfo>>;

/// Soft state of the owner. Begins anew with every lease.
pub(super) struct Heard {
    disconnected_ms: u64,
    // Leaf lock.
    observations: Mutex<Observations>,
    // Leaf lock.
    gate: Mutex<GateSeen>,
    leaders: watch::Sender<Leaders>,
    /// Something happened that the plan may depend on.
    pub stirred: Notify,
}

impl Heard {
    pub fn new(now_ms: u64, disconnected_ms: u64) -> Self {
        Self {
            disconnected_ms,
            observations: Mutex::new(Observations::new(now_ms)),
            gate: Mutex::default(),
            leaders: watch::Sender::default(),
            stirred: Notify::new(),
        }
    }

    /// Forgets everything: what was heard under an older lease is about another time.
    pub fn begin(&self, now_ms: u64) {
        *self.observations.lock() = Observations::new(now_ms);
        self.leaders.send_replace(Arc::default());
    }

    /// Plans or describes with what was heard; heartbeats wait meanwhile.
    pub fn read<T>(&self, read: impl FnOnce(&Observations) -> T) -> T {
        read(&self.observations.lock())
    }

    /// The same for the gate, of what was heard under this lease.
    pub fn gate<T>(&self, lease: u64, now_ms: u64, read: impl FnOnce(&GateSeen) -> T) -> T {
        read(self.gate.lock().under(lease, now_ms))
    }

    pub fn registered(&self, store_id: u64, lease: u64, now_ms: u64) {
        self.gate.lock().under(lease, now_ms).registered(store_id, now_ms);
        self.observations.lock().registered(store_id, now_ms, self.disconnected_ms);
        self.stirred.notify_one();
    }

    pub fn moved_leader(&self, shard_id: u64, now_ms: u64) {
        self.observations.lock().moved_leader(shard_id, now_ms);
    }

    /// Stores that have been silent for so long that an empty one may take their place.
    pub fn disconnected<'a>(
        &self,
        stores: impl Iterator<Item = &'a v1::StoreRecord>,
        now_ms: u64,
    ) -> Vec<u64> {
        let observations = self.observations.lock();
        let silent =
            |s: &&v1::StoreRecord| observations.silent_ms(s.store_id, now_ms) >= self.disconnected_ms;
        stores.filter(silent).map(|s| s.store_id).collect()
    }

    /// A heartbeat, whole, taken under a lease.
    pub fn heartbeat(
        &self,
        request: v1::HeartbeatRequest,
        state: &State,
        settings: &gate::Settings,
        lease: u64,
        now_ms: u64,
    ) {
        self.gate.lock().under(lease, now_ms).heartbeat(state, &request, settings, now_ms);
        let leaders = leaders_of(&request.replicas);
        let mut observations = self.observations.lock();
        let seen = observations.heard(request.store_id, now_ms, self.disconnected_ms, request.replicas);
        seen.stopping = request.stopping;
        seen.stats = request.stats.unwrap_or_default();
        drop(observations);
        self.note_leaders(leaders);
        self.stirred.notify_one();
    }

    /// A store's answer to ListReplicas.
    pub fn listed(&self, store_id: u64, replicas: Vec<v1::ReplicaReport>, now_ms: u64) {
        let leaders = leaders_of(&replicas);
        self.observations.lock().heard(store_id, now_ms, self.disconnected_ms, replicas);
        self.note_leaders(leaders);
        self.stirred.notify_one();
    }

    /// Follows the leaders of all shards.
    pub fn leaders(&self) -> watch::Receiver<Leaders> {
        self.leaders.subscribe()
    }

    /// A leader of a higher term replaces one; within a term only its epoch moves.
    fn note_leaders(&self, heard: Vec<v1::LeaderInfo>) {
        self.leaders.send_if_modified(|leaders| {
            let mut changed = false;
            for info in heard {
                let known = leaders.get(&info.shard_id);
                let newer = known.is_none_or(|k| rank(&info) > rank(k));
                if newer {
                    Arc::make_mut(leaders).insert(info.shard_id, info);
                    changed = true;
                }
            }
            changed
        });
    }
}

fn rank(info: &v1::LeaderInfo) -> (u64, u64, u64) {
    let epoch = info.epoch.unwrap_or_default();
    (info.term, epoch.version, epoch.conf)
}

/// Leaders by themselves and by their followers: a follower may know the new leader of a store that
/// cannot reach us.
fn leaders_of(replicas: &[v1::ReplicaReport]) -> Vec<v1::LeaderInfo> {
    let known = replicas.iter().filter(|r| r.leader_replica_id != 0 || r.is_leader);
    known
        .filter_map(|r| {
            let shard = r.shard.as_ref()?;
            let replica_id = if r.is_leader { r.replica_id } else { r.leader_replica_id };
            Some(v1::LeaderInfo { shard_id: shard.shard_id, replica_id, term: r.term, epoch: shard.epoch })
        })
        .collect()
}
