//! From heartbeats to what the availability gate is told.
//!
//! A heartbeat repeats the clock of the answer before it, and how long ago that came. So its words are
//! dated by our own clock, not later than they were said, however long they were under way; one that
//! repeats no answer of this lease is not dated, and says nothing. All of it begins anew with a lease.
//!
//! A store that restarted: its replicas count again when their leader has twice said that they
//! acknowledge and lack little, and when the store itself no longer says that they are catching up. Its
//! heartbeat alone brings nothing back. A store that is stopping serves nothing any more.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use undb_meta::State;
use undb_meta::gate::{LeaderReport, Observations, Progress, Settings, StoreSeen};
use undb_proto::v1::{self, Role, StoreState};
use undb_types::Epoch;

/// Two heartbeats and a little: who sees that a store's process does not run is believed when the store
/// has been silent for so long.
pub(super) const STOPPED_SILENT_MS: u64 = 2_500;

/// What was heard under one lease of control.
#[derive(Debug, Default)]
pub(super) struct GateSeen {
    /// 0: under none yet.
    lease: u64,
    started_ms: u64,
    observations: Observations,
    /// When each store last spoke at all, by when it came here.
    words: BTreeMap<u64, u64>,
    /// When each store last registered: not later than its process could say anything dated.
    began: BTreeMap<u64, u64>,
}

impl GateSeen {
    /// Begins anew under another lease.
    pub fn under(&mut self, lease: u64, now_ms: u64) -> &mut Self {
        if self.lease != lease {
            let observations = Observations::new(now_ms);
            *self = Self { lease, started_ms: now_ms, observations, ..Self::default() };
        }
        self
    }

    /// A store registered: its process runs, and may have begun anew. What was said before is not of it.
    pub fn registered(&mut self, store_id: u64, now_ms: u64) {
        self.words.insert(store_id, now_ms);
        self.began.insert(store_id, now_ms);
        self.observations.began_anew(store_id);
    }

    /// A heartbeat, whole.
    pub fn heartbeat(
        &mut self,
        state: &State,
        request: &v1::HeartbeatRequest,
        settings: &Settings,
        now_ms: u64,
    ) {
        self.words.insert(request.store_id, now_ms);
        for report in &request.replicas {
            if let Some(shard_id) = listed(state, request.store_id, report) {
                self.observations.term_heard(shard_id, report.term);
            }
        }
        if request.echo_lease != self.lease {
            return;
        }
        let at_ms = request.echo_ms.saturating_add(request.echo_ms_ago).min(now_ms);
        if self.began.get(&request.store_id).is_some_and(|began_ms| at_ms < *began_ms) {
            return;
        }
        self.observations.store_heard(request.store_id, store_seen(request, at_ms));
        for report in &request.replicas {
            let shard_id = report.shard.as_ref().map_or(0, |s| s.shard_id);
            if let Some(report) = leader_report(report, at_ms) {
                self.observations.leader_heard(shard_id, report, settings);
            }
        }
    }

    /// Why it is too early to decide: in the beginning every store must have spoken once.
    pub fn too_early(&self, state: &State, settings: &Settings, now_ms: u64) -> Option<String> {
        if now_ms.saturating_sub(self.started_ms) > settings.fresh_ms {
            return None;
        }
        let part = state.stores().filter(|s| s.state() != StoreState::StoreRemoved);
        let missing = part.map(|s| s.store_id).find(|id| self.observations.store(*id).is_none())?;
        Some(format!("cluster control has just begun and has not heard store {missing} yet; ask again"))
    }

    /// With the word of somebody who sees that stores do not run, for those that are silent too. It is
    /// about this moment, so it is not kept.
    pub fn with_stopped(&self, stopped: &[u64], asked: &BTreeSet<u64>, now_ms: u64) -> Cow<'_, Observations> {
        let mut seen = Cow::Borrowed(&self.observations);
        for store_id in stopped.iter().filter(|id| asked.contains(id)) {
            let last_ms = self.words.get(store_id).copied().unwrap_or(self.started_ms);
            if now_ms.saturating_sub(last_ms) >= STOPPED_SILENT_MS {
                let known = self.observations.store(*store_id).cloned().unwrap_or_default();
                let out = StoreSeen { at_ms: now_ms, serving: false, ..known };
                seen.to_mut().store_heard(*store_id, out);
            }
        }
        seen
    }
}

/// The shard of a replica that metadata lists on this store. What else campaigns is no part of it.
fn listed(state: &State, store_id: u64, report: &v1::ReplicaReport) -> Option<u64> {
    let shard_id = report.shard.as_ref()?.shard_id;
    let known = state.shard(shard_id)?.shard.as_ref()?;
    let here = |r: &v1::Replica| (r.store_id, r.replica_id) == (store_id, report.replica_id);
    known.replicas.iter().any(here).then_some(shard_id)
}

fn store_seen(request: &v1::HeartbeatRequest, at_ms: u64) -> StoreSeen {
    let stats = request.stats.unwrap_or_default();
    let out = |r: &&v1::ReplicaReport| request.stopping || !r.fault.is_empty();
    let ids = |wanted: &dyn Fn(&&v1::ReplicaReport) -> bool| {
        request.replicas.iter().filter(wanted).map(|r| r.replica_id).collect()
    };
    StoreSeen {
        at_ms,
        serving: true,
        since_ms: at_ms,
        faulty: ids(&out),
        behind: ids(&|r| r.catching_up),
        capacity_bytes: stats.capacity_bytes,
        free_bytes: stats.free_bytes,
    }
}

/// What a replica says as the leader of its shard.
fn leader_report(report: &v1::ReplicaReport, at_ms: u64) -> Option<LeaderReport> {
    if !report.is_leader || !report.fault.is_empty() {
        return None;
    }
    let shard = report.shard.as_ref()?;
    let voters = shard.replicas.iter().filter(|r| r.role() == Role::Voter).map(|r| r.replica_id);
    let halves = !report.voters_outgoing.is_empty() && !report.voters_incoming.is_empty();
    let (voters, incoming) = match report.joint && halves {
        true => {
            let half = |ids: &[u64]| ids.iter().copied().collect::<BTreeSet<u64>>();
            (half(&report.voters_outgoing), Some(half(&report.voters_incoming)))
        }
        false => (voters.collect(), None),
    };
    let progress = |p: &v1::PeerProgress| {
        (p.replica_id, Progress { match_index: p.match_index, ack_ms_ago: p.last_ack_ms_ago })
    };
    Some(LeaderReport {
        at_ms,
        replica_id: report.replica_id,
        term: report.term,
        epoch: shard.epoch.map(Epoch::from).unwrap_or_default(),
        last_index: report.last_index,
        stores: shard.replicas.iter().map(|r| (r.replica_id, r.store_id)).collect(),
        voters,
        incoming,
        changing: report.change_pending || report.joint && !halves,
        live_bytes: report.live_bytes,
        peers: report.peers.iter().map(progress).collect(),
    })
}

#[cfg(test)]
#[path = "gate_seen/tests.rs"]
mod tests;
