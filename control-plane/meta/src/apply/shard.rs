//! Shards change by compare-and-set, and never to an older epoch, a hole, an overlap or a store that
//! holds two replicas of one.

use super::{Done, unchanged};
use crate::state::{epoch_of, range_of, shard_of};
use crate::{Reject, State};
use std::collections::BTreeSet;
use undb_proto::v1::{self, ErrorCode, Role, StoreState};

const SHARDS_PER_CALL_MAX: usize = 10_000;

impl State {
    pub(super) fn put_shards(&mut self, op: v1::PutShards) -> Done {
        if op.shards.is_empty() {
            return unchanged(v1::MetaResult::default());
        }
        if op.shards.len() > SHARDS_PER_CALL_MAX {
            return Err(Reject::invalid(format!("at most {SHARDS_PER_CALL_MAX} shards in one transaction")));
        }
        let ids: BTreeSet<u64> = op.shards.iter().map(|s| shard_of(s).shard_id).collect();
        if ids.len() != op.shards.len() {
            return Err(Reject::invalid("a shard occurs twice in one transaction"));
        }
        for record in &op.shards {
            self.check_put(record)?;
        }
        check_replica_ids(self, &op.shards)?;
        self.check_ranges_after(&op.shards, &ids)?;
        let revision = self.next_revision();
        let mut shards = op.shards;
        for record in &mut shards {
            record.revision = revision;
            self.shards.insert(shard_of(record).shard_id, record.clone());
        }
        Ok((v1::MetaResult::default(), v1::MetaChange { shards, ..Default::default() }))
    }

    fn check_put(&self, record: &v1::ShardRecord) -> Result<(), Reject> {
        let shard = shard_of(record);
        let id = shard.shard_id;
        if !self.tables.contains_key(&shard.table_id) {
            let message = format!("shard {id} names table {}, which does not exist", shard.table_id);
            return Err(Reject::new(ErrorCode::TableNotFound, message));
        }
        if self.is_purged(id) {
            return Err(Reject::conflict(format!("shard {id} was purged and never returns")));
        }
        check_record(self, record)?;
        let Some(old) = self.shards.get(&id) else {
            return match record.revision {
                0 => Ok(()),
                _ => Err(Reject::new(ErrorCode::ShardNotFound, format!("there is no shard {id}"))),
            };
        };
        if old.revision != record.revision {
            return Err(Reject::conflict(format!("shard {id} is at revision {}", old.revision)));
        }
        if replicas(old).is_empty() {
            self.refuse_leased(record)?;
        }
        check_succession(old, record)
    }

    /// The first replicas of a shard go to stores that stay: a lease was granted when the shard was on none
    /// of its stores, and two leases together could stop most of it.
    fn refuse_leased(&self, record: &v1::ShardRecord) -> Result<(), Reject> {
        let placed = |id: &u64| replicas(record).iter().any(|r| r.store_id == *id);
        let leased =
            self.disruption_leases.values().find_map(|l| Some((l, l.stores.iter().find(|s| placed(s))?)));
        leased.map_or(Ok(()), |(lease, store_id)| {
            let id = shard_of(record).shard_id;
            let message = format!(
                "shard {id} cannot begin on store {store_id}, which is under disruption lease {}; place it anew",
                lease.lease_id
            );
            Err(Reject::conflict(message))
        })
    }

    /// The ranges of every table that is touched, as they would be.
    fn check_ranges_after(&self, put: &[v1::ShardRecord], ids: &BTreeSet<u64>) -> Result<(), Reject> {
        let moved = |s: &v1::ShardRecord| {
            self.shards.get(&shard_of(s).shard_id).is_none_or(|old| range_of(old) != range_of(s))
        };
        let tables: BTreeSet<u64> = put.iter().filter(|s| moved(s)).map(|s| shard_of(s).table_id).collect();
        for table_id in tables {
            let kept = self.shards.values().filter(|s| !ids.contains(&shard_of(s).shard_id));
            check_cover(kept.chain(put).filter(|s| shard_of(s).table_id == table_id))?;
        }
        Ok(())
    }
}

pub(crate) fn replicas(record: &v1::ShardRecord) -> &[v1::Replica] {
    &shard_of(record).replicas
}

/// What must hold for a record by itself, given the stores.
pub(super) fn check_record(state: &State, record: &v1::ShardRecord) -> Result<(), Reject> {
    let shard = shard_of(record);
    let id = shard.shard_id;
    state.check_new_id(id)?;
    if shard.epoch.is_none() || shard.range.is_none() {
        return Err(Reject::invalid(format!("shard {id} lacks its epoch or its range")));
    }
    if !record.bootstrapping && !shard.replicas.iter().any(|r| r.role() == Role::Voter) {
        return Err(Reject::invalid(format!("shard {id} would have no voter")));
    }
    let mut stores = BTreeSet::new();
    for replica in &shard.replicas {
        if replica.role() == Role::Unspecified {
            return Err(Reject::invalid(format!("replica {} has no role", replica.replica_id)));
        }
        if !stores.insert(replica.store_id) {
            let message = format!("store {} would hold two replicas of shard {id}", replica.store_id);
            return Err(Reject::conflict(message));
        }
    }
    check_new_replicas(state, record)
}

/// A replica is placed on a store that is part of the cluster; one that is there already may stay on
/// a store that was removed meanwhile, until it is replaced.
fn check_new_replicas(state: &State, record: &v1::ShardRecord) -> Result<(), Reject> {
    let shard = shard_of(record);
    let old = state.shards.get(&shard.shard_id).map(replicas).unwrap_or_default();
    for replica in &shard.replicas {
        let before = old.iter().find(|r| r.replica_id == replica.replica_id);
        match (before, state.stores.get(&replica.store_id)) {
            (Some(before), _) if before.store_id != replica.store_id => {
                let message = format!("replica {} cannot move; place another", replica.replica_id);
                return Err(Reject::invalid(message));
            }
            (Some(_), _) => {}
            (None, Some(store)) if store.state() != StoreState::StoreRemoved => {
                state.check_new_id(replica.replica_id)?;
            }
            (None, _) => {
                let message = format!("store {} is not part of the cluster", replica.store_id);
                return Err(Reject::new(ErrorCode::StoreMismatch, message));
            }
        }
    }
    Ok(())
}

/// No replica id belongs to two shards, now or within the transaction.
pub(super) fn check_replica_ids(state: &State, put: &[v1::ShardRecord]) -> Result<(), Reject> {
    let mut new = BTreeSet::new();
    for record in put {
        let old = state.shards.get(&shard_of(record).shard_id).map(replicas).unwrap_or_default();
        let added = replicas(record).iter().map(|r| r.replica_id);
        for id in added.filter(|id| !old.iter().any(|r| r.replica_id == *id)) {
            if !new.insert(id) {
                return Err(Reject::conflict(format!("replica id {id} occurs twice")));
            }
        }
    }
    if new.is_empty() {
        return Ok(());
    }
    let taken = state.shards.values().flat_map(replicas).find(|r| new.contains(&r.replica_id));
    match taken {
        Some(replica) => Err(Reject::conflict(format!("replica id {} is taken", replica.replica_id))),
        None => Ok(()),
    }
}

fn check_succession(old: &v1::ShardRecord, new: &v1::ShardRecord) -> Result<(), Reject> {
    let (was, is) = (shard_of(old), shard_of(new));
    let id = is.shard_id;
    let (before, after) = (epoch_of(was), epoch_of(is));
    if !after.covers(before) {
        return Err(Reject::conflict(format!(
            "shard {id} would go back from epoch {}.{} to {}.{}",
            before.version, before.conf, after.version, after.conf
        )));
    }
    if was.table_id != is.table_id || is.version_base < was.version_base {
        return Err(Reject::invalid(format!("shard {id} cannot change its table or lower its version base")));
    }
    if was.range != is.range && after.version == before.version {
        return Err(Reject::invalid(format!("shard {id} changes its range without a new version")));
    }
    if new.bootstrapping && !old.bootstrapping {
        return Err(Reject::invalid(format!("shard {id} has been created; it cannot be created again")));
    }
    Ok(())
}

/// From the first key to the last, each once.
pub(crate) fn check_cover<'a>(shards: impl Iterator<Item = &'a v1::ShardRecord>) -> Result<(), Reject> {
    let mut ranges: Vec<(&[u8], &[u8], u64)> = shards
        .map(|s| {
            let (start, end) = range_of(s);
            (start, end, shard_of(s).shard_id)
        })
        .collect();
    ranges.sort();
    let mut at: Option<&[u8]> = Some(&[]);
    for (start, end, id) in ranges {
        match at {
            None => return Err(Reject::conflict(format!("shard {id} overlaps the last one"))),
            Some(at) if start < at => {
                return Err(Reject::conflict(format!("shard {id} overlaps the one before it")));
            }
            Some(at) if start > at => {
                return Err(Reject::conflict(format!("there is a hole before shard {id}")));
            }
            Some(_) if !end.is_empty() && end <= start => {
                return Err(Reject::conflict(format!("the range of shard {id} is empty")));
            }
            Some(_) => at = (!end.is_empty()).then_some(end),
        }
    }
    match at {
        None => Ok(()),
        Some(_) => Err(Reject::conflict("the ranges end before the last key")),
    }
}
