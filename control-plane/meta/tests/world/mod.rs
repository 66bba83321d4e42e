//! A small model of stores and their Raft groups, for tests of what cluster control does to them: who
//! holds which replica, who leads, who lags. Elections and replication happen in `tick`.

#![allow(dead_code)]

pub mod run;

use std::collections::BTreeMap;
use undb_proto::v1::{self, Role};

/// All stores and all groups.
#[derive(Default)]
pub struct World {
    pub stores: BTreeMap<u64, Store>,
    pub groups: BTreeMap<u64, Group>,
    /// What must never happen and did.
    pub violations: Vec<String>,
}

#[derive(Default)]
pub struct Store {
    pub up: bool,
    pub stopping: bool,
    /// Replica id -> shard id.
    pub replicas: BTreeMap<u64, u64>,
}

/// A Raft group as an all-knowing observer sees it.
pub struct Group {
    pub shard: v1::Shard,
    pub leader: u64,
    pub term: u64,
    pub last_index: u64,
    /// Replica id -> entries it has.
    pub has: BTreeMap<u64, u64>,
    /// Its table was deleted: replicas may go.
    pub doomed: bool,
}

fn epoch(shard: &v1::Shard) -> (u64, u64) {
    shard.epoch.map_or((0, 0), |e| (e.version, e.conf))
}

impl World {
    pub fn add_store(&mut self, store_id: u64) {
        self.stores.insert(store_id, Store { up: true, ..Store::default() });
    }

    fn holds(&self, replica: &v1::Replica) -> bool {
        self.stores
            .get(&replica.store_id)
            .is_some_and(|s| s.up && s.replicas.contains_key(&replica.replica_id))
    }

    /// Elections where the leader is gone and a quorum lives; replication to whoever is there.
    pub fn tick(&mut self) {
        let ids: Vec<u64> = self.groups.keys().copied().collect();
        for id in ids {
            let group = &self.groups[&id];
            let voters: Vec<&v1::Replica> =
                group.shard.replicas.iter().filter(|r| r.role() == Role::Voter).collect();
            let live: Vec<u64> = voters.iter().filter(|r| self.holds(r)).map(|r| r.replica_id).collect();
            let quorum = live.len() * 2 > voters.len();
            let led = group.shard.replicas.iter().any(|r| r.replica_id == group.leader && self.holds(r));
            let best =
                live.iter().copied().max_by_key(|r| (group.has.get(r).copied().unwrap_or(0), u64::MAX - r));
            let there: Vec<u64> =
                group.shard.replicas.iter().filter(|r| self.holds(r)).map(|r| r.replica_id).collect();
            let Some(group) = self.groups.get_mut(&id) else { continue };
            if !quorum {
                group.leader = 0;
                continue;
            }
            if !led || !live.contains(&group.leader) {
                group.leader = best.unwrap_or(0);
                group.term += 1;
            }
            group.last_index += 1;
            for replica in there {
                group.has.insert(replica, group.last_index);
            }
        }
    }

    pub fn create_replica(
        &mut self,
        store_id: u64,
        shard: &v1::Shard,
        replica_id: u64,
        bootstrap: bool,
    ) -> bool {
        let Some(store) = self.stores.get_mut(&store_id).filter(|s| s.up) else { return false };
        store.replicas.insert(replica_id, shard.shard_id);
        if bootstrap && !self.groups.contains_key(&shard.shard_id) {
            let group = Group {
                shard: shard.clone(),
                leader: 0,
                term: 0,
                last_index: 0,
                has: BTreeMap::new(),
                doomed: false,
            };
            self.groups.insert(shard.shard_id, group);
        }
        true
    }

    /// As a leader would: refused by another store, for another epoch, or without a quorum of the new.
    pub fn change_members(
        &mut self,
        store_id: u64,
        shard_id: u64,
        expected: (u64, u64),
        replicas: &[v1::Replica],
    ) -> Result<v1::Shard, String> {
        let voters: Vec<v1::Replica> = replicas.iter().filter(|r| r.role() == Role::Voter).copied().collect();
        let live = voters.iter().filter(|r| self.holds(r)).count();
        let Some(group) = self.groups.get_mut(&shard_id) else { return Err("no group".into()) };
        let leads =
            group.shard.replicas.iter().any(|r| r.replica_id == group.leader && r.store_id == store_id);
        if !leads || epoch(&group.shard) != expected {
            return Err("not the leader, or another epoch".into());
        }
        if live * 2 <= voters.len() {
            self.violations.push(format!("shard {shard_id} was asked to lose its quorum"));
            return Err("no quorum".into());
        }
        if group.shard.replicas != replicas {
            group.shard.replicas = replicas.to_vec();
            if let Some(epoch) = group.shard.epoch.as_mut() {
                epoch.conf += 1;
            }
        }
        Ok(group.shard.clone())
    }

    pub fn transfer_leader(&mut self, store_id: u64, shard_id: u64, to: u64) -> bool {
        let target =
            self.groups.get(&shard_id).and_then(|g| g.shard.replicas.iter().find(|r| r.replica_id == to));
        let fit = target.is_some_and(|r| r.role() == Role::Voter && self.holds(r));
        let Some(group) = self.groups.get_mut(&shard_id) else { return false };
        let leads =
            group.shard.replicas.iter().any(|r| r.replica_id == group.leader && r.store_id == store_id);
        if leads && fit {
            group.leader = to;
            group.term += 1;
        }
        leads && fit
    }

    pub fn destroy_replica(&mut self, store_id: u64, shard_id: u64, replica_id: u64) -> bool {
        if let Some(group) = self.groups.get(&shard_id) {
            let member = group.shard.replicas.iter().any(|r| r.replica_id == replica_id);
            if member && !group.doomed {
                self.violations
                    .push(format!("replica {replica_id} of shard {shard_id} was a member, and destroyed"));
            }
        }
        let Some(store) = self.stores.get_mut(&store_id).filter(|s| s.up) else { return false };
        store.replicas.remove(&replica_id);
        true
    }

    /// What a store says of its replicas.
    pub fn reports(&self, store_id: u64) -> Vec<v1::ReplicaReport> {
        let Some(store) = self.stores.get(&store_id) else { return Vec::new() };
        let report = |(replica_id, shard_id): (&u64, &u64)| {
            let Some(group) = self.groups.get(shard_id) else {
                let shard = Some(v1::Shard { shard_id: *shard_id, ..Default::default() });
                return v1::ReplicaReport { shard, replica_id: *replica_id, ..Default::default() };
            };
            let is_leader = group.leader == *replica_id;
            let index = group.has.get(replica_id).copied().unwrap_or(0);
            let peers = group.shard.replicas.iter().filter(|r| is_leader && r.replica_id != *replica_id);
            v1::ReplicaReport {
                shard: Some(group.shard.clone()),
                replica_id: *replica_id,
                term: group.term,
                leader_replica_id: group.leader,
                last_index: index,
                committed_index: index,
                applied_index: index,
                is_leader,
                peers: peers
                    .map(|r| v1::PeerProgress {
                        replica_id: r.replica_id,
                        match_index: group.has.get(&r.replica_id).copied().unwrap_or(0),
                        last_ack_ms_ago: if self.holds(r) { 0 } else { u64::MAX },
                    })
                    .collect(),
                ..Default::default()
            }
        };
        store.replicas.iter().map(report).collect()
    }
}
