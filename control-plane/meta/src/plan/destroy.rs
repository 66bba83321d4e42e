//! Replicas that must go. Each for a positive reason: a record of the same shard that lists others,
//! in agreement with its leader; a table whose time is over; the tombstone of a purged one.

use super::{Action, Planner};
use crate::state::{epoch_of, shard_of};
use undb_proto::v1;
use undb_types::Epoch;

impl Planner<'_> {
    pub(super) fn destroy(&mut self) {
        let state = self.view.state;
        for store in state.stores() {
            let Some(seen) = self.view.fresh(store.store_id) else { continue };
            for report in seen.replicas.values() {
                if let Some((epoch, reason)) = self.unwanted(report) {
                    let shard_id = report.shard.as_ref().map_or(0, |s| s.shard_id);
                    let action = Action::DestroyReplica {
                        store_id: store.store_id,
                        shard_id,
                        replica_id: report.replica_id,
                        epoch,
                    };
                    self.push(action, reason);
                }
            }
        }
    }

    fn unwanted(&self, report: &v1::ReplicaReport) -> Option<(Epoch, String)> {
        let theirs = report.shard.as_ref()?;
        let id = theirs.shard_id;
        if self.view.state.is_purged(id) {
            return Some((epoch_of(theirs), format!("the table of shard {id} was purged")));
        }
        let record = self.view.state.shard(id)?;
        let shard = shard_of(record);
        let table = self.view.state.table(shard.table_id)?;
        if self.is_due(table) {
            let epoch = newest(epoch_of(shard), epoch_of(theirs));
            return Some((epoch, format!("table {} was deleted", table.name)));
        }
        let listed = |s: &v1::Shard| s.replicas.iter().any(|r| r.replica_id == report.replica_id);
        if record.bootstrapping || listed(shard) || report.is_leader {
            return None;
        }
        let actual = self.view.leader(id)?.shard()?;
        let epoch = epoch_of(shard);
        let agreed =
            !listed(actual) && epoch_of(actual).covers(epoch_of(theirs)) && epoch.covers(epoch_of(theirs));
        agreed.then(|| (epoch, format!("shard {id} has other members since conf {}", epoch.conf)))
    }
}

fn newest(a: Epoch, b: Epoch) -> Epoch {
    Epoch { version: a.version.max(b.version), conf: a.conf.max(b.conf) }
}
