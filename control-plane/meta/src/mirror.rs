//! Keeping a copy: the snapshot of a watch, then its changes in order.

use crate::State;
use crate::state::shard_of;
use undb_proto::v1;

impl State {
    /// Takes a change of the watched state over. Records replace their older selves; only tombstones
    /// remove anything.
    pub fn absorb(&mut self, revision: u64, change: v1::MetaChange) {
        for store in change.stores {
            self.stores.insert(store.store_id, store);
        }
        for store_cluster in change.store_clusters {
            self.store_clusters.insert(store_cluster.name.clone(), store_cluster);
        }
        for table in change.tables {
            self.tables.insert(table.table_id, table);
        }
        for shard in change.shards {
            self.shards.insert(shard_of(&shard).shard_id, shard);
        }
        for shard_id in change.deleted_shards {
            self.shards.remove(&shard_id);
            self.purged_shards.insert(shard_id);
        }
        for table_id in change.deleted_tables {
            self.tables.remove(&table_id);
        }
        for name in change.deleted_store_clusters {
            self.store_clusters.remove(&name);
        }
        for lease in change.disruption_leases {
            self.disruption_leases.insert(lease.lease_id, lease);
        }
        for lease_id in change.deleted_disruption_leases {
            self.disruption_leases.remove(&lease_id);
        }
        for replica_move in change.replica_moves {
            self.replica_moves.insert(replica_move.shard_id, replica_move);
        }
        for shard_id in change.deleted_replica_moves {
            self.replica_moves.remove(&shard_id);
        }
        if let Some(lease) = change.control_lease {
            self.control_lease = lease;
        }
        if let Some(cluster) = change.cluster {
            self.cluster = cluster;
        }
        self.revision = revision;
    }
}
