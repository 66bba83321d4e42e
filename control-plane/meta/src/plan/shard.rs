//! One shard at a time: from nothing to replicated, and back to it after a loss.

use super::place::Choice;
use super::{Action, LeaderView, Lost, Planner};
use crate::state::{epoch_of, shard_of};
use undb_proto::v1::{self, Role, TableState};
use undb_types::Epoch;

impl Planner<'_> {
    pub(super) fn shards(&mut self) {
        let state = self.view.state;
        for record in state.shards() {
            let Some(table) = state.table(shard_of(record).table_id) else { continue };
            // A deleted table is kept whole until its time is over: it may be wanted back, it must not hold up
            // a drain, and the gate, which counts it, must not wait for copies that nobody makes.
            let never_began =
                table.state() == TableState::TableDeleted && shard_of(record).replicas.is_empty();
            match record.bootstrapping {
                _ if self.is_due(table) || never_began => {}
                true => self.bootstrap(table, record),
                false => self.keep(table, record),
            }
        }
    }

    /// A new shard. Everything may be asked for again until all first replicas are there.
    fn bootstrap(&mut self, table: &v1::TableRecord, record: &v1::ShardRecord) {
        let shard = shard_of(record);
        let id = shard.shard_id;
        if shard.replicas.is_empty() {
            match self.choose(record, table.replication as usize, Role::Voter) {
                Choice::Stores(stores) => {
                    let action = Action::PlaceReplicas { record: record.clone(), stores, role: Role::Voter };
                    self.push(action, format!("shard {id} is new"));
                }
                Choice::Busy => {}
                Choice::Short(there, why) => self.note_short(table, there, &why),
            }
            return;
        }
        let mut all_there = true;
        for replica in &shard.replicas {
            if self.view.lost(replica.store_id) == Some(Lost::Removed) {
                continue;
            }
            if self.view.report(replica.store_id, replica.replica_id).is_some() {
                continue;
            }
            all_there = false;
            if self.view.is_fresh(replica.store_id) {
                let action = Action::CreateReplica {
                    store_id: replica.store_id,
                    shard: shard.clone(),
                    replica_id: replica.replica_id,
                    bootstrap: true,
                };
                self.push(action, format!("first replicas of shard {id}"));
            }
        }
        let led = self.view.leader(id).and_then(|l| l.shard()).is_some();
        if all_there && led {
            let record = v1::ShardRecord { bootstrapping: false, ..record.clone() };
            self.push(Action::PutShard { record }, format!("all first replicas of shard {id} are there"));
        }
    }

    /// A shard that serves: what its leader says is written down, and what is wanted is asked for.
    fn keep(&mut self, table: &v1::TableRecord, record: &v1::ShardRecord) {
        let shard = shard_of(record);
        self.create_listed_learners(shard);
        let Some(leader) = self.view.leader(shard.shard_id) else { return };
        let Some(actual) = leader.shard() else { return };
        let (wanted_epoch, epoch) = (epoch_of(shard), epoch_of(actual));
        if epoch.conf > wanted_epoch.conf || epoch.version > wanted_epoch.version {
            let record = self.as_reported(record, actual);
            let reason = format!("shard {} is at epoch {}.{}", shard.shard_id, epoch.version, epoch.conf);
            self.push(Action::PutShard { record }, reason);
            return;
        }
        if !epoch.covers(wanted_epoch) {
            return; // A new leader that has not yet applied what the one before reported.
        }
        if leader.report.joint {
            let replicas =
                begun(&leader, actual).unwrap_or_else(|| self.wanted(table, shard, actual, &leader));
            self.change(&leader, shard, epoch, replicas, "a change of members is half done");
            return;
        }
        if let Some((store_id, lease)) = self.view.held_by(shard) {
            self.hold(record, actual, &leader, store_id, lease);
            return;
        }
        if self.step_learners(table, record, actual, &leader) {
            return;
        }
        self.step_voters(table, record, actual, &leader);
    }

    /// A shard of a store under a lease keeps its members. While nothing may stop yet, learners that are
    /// still on their way are given up: the gate waits until the shard is settled.
    fn hold(
        &mut self,
        record: &v1::ShardRecord,
        actual: &v1::Shard,
        leader: &LeaderView<'_>,
        store_id: u64,
        lease: &v1::DisruptionLease,
    ) {
        let shard = shard_of(record);
        let why =
            format!("store {store_id} is under disruption lease {} of {}", lease.lease_id, lease.holder);
        let draining = lease.phase() == v1::DisruptionPhase::Draining;
        let learner = shard.replicas.iter().find(|r| r.role() == Role::Learner);
        match learner.copied() {
            Some(learner) if draining => {
                self.unlist(record, learner.replica_id, format!("{why}; a new replica would be in its way"));
            }
            None if draining && self.remove_strangers(shard, actual, leader) => {}
            _ => {}
        }
        if learner.is_some() || shard.replicas.iter().any(|r| self.view.lost_replica(r).is_some()) {
            self.wait(shard.shard_id, store_id, format!("its members stay as they are: {why}"));
        }
    }

    fn unlist(&mut self, record: &v1::ShardRecord, replica_id: u64, reason: String) {
        let mut record = record.clone();
        if let Some(shard) = record.shard.as_mut() {
            shard.replicas.retain(|r| r.replica_id != replica_id);
        }
        self.push(Action::PutShard { record }, reason);
    }

    /// A listed learner that its store does not have yet.
    fn create_listed_learners(&mut self, shard: &v1::Shard) {
        for replica in shard.replicas.iter().filter(|r| r.role() == Role::Learner) {
            let missing = self
                .view
                .fresh(replica.store_id)
                .is_some_and(|seen| !seen.replicas.contains_key(&replica.replica_id));
            if missing {
                let action = Action::CreateReplica {
                    store_id: replica.store_id,
                    shard: shard.clone(),
                    replica_id: replica.replica_id,
                    bootstrap: false,
                };
                self.push(action, format!("a new replica of shard {}", shard.shard_id));
            }
        }
    }

    /// Brings a learner in and makes it a voter. True when that is under way.
    fn step_learners(
        &mut self,
        table: &v1::TableRecord,
        record: &v1::ShardRecord,
        actual: &v1::Shard,
        leader: &LeaderView<'_>,
    ) -> bool {
        let shard = shard_of(record);
        let id = shard.shard_id;
        let Some(learner) = shard.replicas.iter().find(|r| r.role() == Role::Learner) else {
            return self.remove_strangers(shard, actual, leader);
        };
        let voters = || shard.replicas.iter().filter(|r| r.role() == Role::Voter);
        let needed = voters().count() < table.replication as usize
            || voters().any(|r| self.view.lost_replica(r).is_some());
        let gone = self.view.lost(learner.store_id).is_some()
            || self.view.lease(learner.store_id).is_some()
            || self.view.silent_ms(learner.store_id) >= self.view.settings.disconnected_ms;
        if gone || !needed {
            let reason = match gone {
                true => format!("store {} went away before shard {id} was there", learner.store_id),
                false => format!("shard {id} needs no more replicas"),
            };
            self.unlist(record, learner.replica_id, reason);
            return true;
        }
        if self.view.report(learner.store_id, learner.replica_id).is_none() {
            return true;
        }
        if !actual.replicas.iter().any(|r| r.replica_id == learner.replica_id) {
            let mut replicas = actual.replicas.clone();
            replicas.push(*learner);
            self.change(leader, shard, epoch_of(actual), replicas, "a new replica joins");
            return true;
        }
        if self.caught_up(leader, learner.replica_id) {
            let replicas = self.wanted(table, shard, actual, leader);
            let kept = |id| replicas.iter().any(|r| r.replica_id == id);
            if !kept(leader.report.replica_id) {
                self.hand_over(shard, leader, "its store is to give its replica away");
                return true;
            }
            self.change(leader, shard, epoch_of(actual), replicas, "the new replica has caught up");
        }
        true
    }

    /// Members that metadata no longer lists: learners whose placement was given up.
    fn remove_strangers(&mut self, shard: &v1::Shard, actual: &v1::Shard, leader: &LeaderView<'_>) -> bool {
        let listed = |r: &&v1::Replica| shard.replicas.iter().any(|l| l.replica_id == r.replica_id);
        let stranger = actual.replicas.iter().any(|r| r.role() == Role::Learner && !listed(&r));
        if stranger {
            let is_kept = |r: &&v1::Replica| r.role() != Role::Learner || listed(r);
            let replicas = actual.replicas.iter().filter(is_kept).copied().collect();
            self.change(leader, shard, epoch_of(actual), replicas, "a learner was given up");
        }
        stranger
    }

    /// Too few voters, or one on a lost store: a learner is placed. Too many: one goes.
    fn step_voters(
        &mut self,
        table: &v1::TableRecord,
        record: &v1::ShardRecord,
        actual: &v1::Shard,
        leader: &LeaderView<'_>,
    ) {
        let shard = shard_of(record);
        let voters = || shard.replicas.iter().filter(|r| r.role() == Role::Voter);
        let lost = voters().filter_map(|r| Some((self.view.lost_replica(r)?, r.store_id))).min();
        let (count, wanted) = (voters().count(), table.replication as usize);
        let reason = match lost {
            Some((why, store_id)) => format!("store {store_id} {why}"),
            None if count < wanted => format!("{count} of {wanted} replicas are there"),
            None if count > wanted => format!("{count} replicas are there, {wanted} are wanted"),
            None => return,
        };
        if count > wanted {
            let replicas = self.wanted(table, shard, actual, leader);
            self.change(leader, shard, epoch_of(actual), replicas, &reason);
            return;
        }
        self.place_learner(table, record, lost, &reason);
    }

    /// Writes a learner down on a store that may have it, or says what that waits for.
    fn place_learner(
        &mut self,
        table: &v1::TableRecord,
        record: &v1::ShardRecord,
        lost: Option<(Lost, u64)>,
        reason: &str,
    ) {
        let id = shard_of(record).shard_id;
        let planned = lost.filter(|(why, _)| why.is_planned()).map(|(_, store_id)| store_id);
        if let Some(store_id) = planned.filter(|id| !self.gives_more(*id)) {
            let limit = self.view.settings.moves_per_store_max;
            let text = format!("{reason}; {limit} replicas are leaving store {store_id}, the others wait");
            return self.wait(id, store_id, text);
        }
        let from = lost.map_or(0, |(_, store_id)| store_id);
        let moved = self.view.state.replica_move(id).filter(|_| matches!(lost, Some((Lost::Moved, _))));
        let choice = match moved {
            None => self.choose(record, 1, Role::Learner),
            Some(moved) => match self.choose_for_move(moved) {
                Ok(store_id) => Choice::Stores(vec![store_id]),
                Err(why) => return self.wait(id, from, format!("{reason}: {why}")),
            },
        };
        match choice {
            Choice::Stores(stores) => {
                if let Some(store_id) = planned {
                    self.note_leaving(store_id);
                }
                let action = Action::PlaceReplicas { record: record.clone(), stores, role: Role::Learner };
                self.push(action, reason);
            }
            Choice::Busy => {
                self.wait(
                    id,
                    from,
                    format!("{reason}; every store that could take it receives others first"),
                );
            }
            Choice::Short(..) => {
                self.note_short_of_spare(table, reason);
                self.wait(id, from, format!("{reason}; there is no other store that can take its replica"));
            }
        }
    }

    /// The membership that ends the change: the learner as voter, and one lost voter gone when there
    /// would be too many.
    fn wanted(
        &self,
        table: &v1::TableRecord,
        shard: &v1::Shard,
        actual: &v1::Shard,
        leader: &LeaderView<'_>,
    ) -> Vec<v1::Replica> {
        let joins = |r: &&v1::Replica| {
            r.role() == Role::Learner
                && actual.replicas.iter().any(|a| a.replica_id == r.replica_id)
                && (leader.report.joint || self.caught_up(leader, r.replica_id))
        };
        let voters = shard.replicas.iter().filter(|r| r.role() == Role::Voter || joins(r));
        let mut wanted: Vec<v1::Replica> =
            voters.map(|r| v1::Replica { role: Role::Voter as i32, ..*r }).collect();
        while wanted.len() > table.replication as usize {
            let own = |r: &v1::Replica| r.replica_id == leader.report.replica_id;
            // The most urgent loss first; nothing lost: one that is silent, and not the leader.
            let rank = |r: &v1::Replica| match self.view.lost_replica(r) {
                Some(why) => (0, Some(why)),
                None if !own(r) && !self.caught_up(leader, r.replica_id) => (1, None),
                None => (2 + u8::from(own(r)), None),
            };
            let worst = wanted.iter().enumerate().min_by_key(|(_, r)| (rank(r), r.replica_id));
            let Some((at, _)) = worst else { break };
            wanted.remove(at);
        }
        wanted
    }

    /// The record as the leader reports it, with what metadata wants beyond it.
    fn as_reported(&self, record: &v1::ShardRecord, actual: &v1::Shard) -> v1::ShardRecord {
        let shard = shard_of(record);
        let known = |id: u64| actual.replicas.iter().any(|r| r.replica_id == id);
        let coming = shard.replicas.iter().filter(|r| r.role() == Role::Learner && !known(r.replica_id));
        let replicas = actual.replicas.iter().chain(coming).copied().collect();
        let (a, b) = (epoch_of(shard), epoch_of(actual));
        let epoch = Epoch { version: a.version.max(b.version), conf: a.conf.max(b.conf) };
        let shard = v1::Shard { replicas, epoch: Some(epoch.into()), ..shard.clone() };
        v1::ShardRecord { shard: Some(shard), ..record.clone() }
    }

    pub(super) fn caught_up(&self, leader: &LeaderView<'_>, replica_id: u64) -> bool {
        let settings = self.view.settings;
        leader.has_caught_up(replica_id, settings.lag_entries_max, settings.fresh_ms())
    }

    fn change(
        &mut self,
        leader: &LeaderView<'_>,
        shard: &v1::Shard,
        expected: Epoch,
        replicas: Vec<v1::Replica>,
        reason: &str,
    ) {
        let action =
            Action::ChangeMembers { store_id: leader.store_id, shard_id: shard.shard_id, expected, replicas };
        self.push(action, format!("shard {}: {reason}", shard.shard_id));
    }
}

/// The membership that a joint one leads to: what was begun is finished, whatever is wanted by now.
fn begun(leader: &LeaderView<'_>, actual: &v1::Shard) -> Option<Vec<v1::Replica>> {
    let (incoming, outgoing) = (&leader.report.voters_incoming, &leader.report.voters_outgoing);
    let known = |id: &u64| actual.replicas.iter().any(|r| r.replica_id == *id);
    if incoming.is_empty() || !incoming.iter().all(known) {
        return None;
    }
    let kept = |r: &&v1::Replica| {
        incoming.contains(&r.replica_id) || r.role() == Role::Learner && !outgoing.contains(&r.replica_id)
    };
    let role = |r: &v1::Replica| match incoming.contains(&r.replica_id) {
        true => Role::Voter as i32,
        false => r.role,
    };
    Some(actual.replicas.iter().filter(kept).map(|r| v1::Replica { role: role(r), ..*r }).collect())
}
