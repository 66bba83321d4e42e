//! What the Redis commands need of a table, so that they can be tested without a cluster.

use crate::Failure;
use bytes::Bytes;
use futures::future::BoxFuture;
use undb_sdk::{Batch, Key, Mutation, Record, WriteOutcome};

/// A record met by a walk over the keys.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its key.
    pub key: Key,
    /// The record, without its value where only keys were asked for.
    pub record: Record,
}

/// Records, and where to go on; none: the end.
pub type Walked = (Vec<Found>, Option<Bytes>);

/// A table as the commands see it. Every call is linearizable by itself.
pub trait Keyspace: Send + Sync + 'static {
    /// The records of `keys`, in their order.
    fn get(&self, keys: Vec<Key>, values: bool) -> BoxFuture<'_, Result<Vec<Option<Record>>, Failure>>;

    /// All mutations or none; their keys share a shard.
    fn write(&self, batch: Batch) -> BoxFuture<'_, Result<WriteOutcome, Failure>>;

    /// Each mutation by itself; plain puts of one shard travel, and happen, together.
    fn write_each(&self, mutations: Vec<Mutation>) -> BoxFuture<'_, Result<Vec<WriteOutcome>, Failure>>;

    /// Up to `limit` records of one hash key whose sort keys begin with `prefix`, from `from` on.
    fn fields(
        &self,
        hash: Bytes,
        prefix: Bytes,
        from: Option<Bytes>,
        limit: usize,
        values: bool,
    ) -> BoxFuture<'_, Result<Vec<Found>, Failure>>;

    /// Removes the records of one hash key whose sort keys begin with `prefix`. Not atomic.
    fn drop_fields(&self, hash: Bytes, prefix: Bytes) -> BoxFuture<'_, Result<(), Failure>>;

    /// About `limit` records in the table's order, without values, and where to go on; none: the end.
    fn walk(&self, from: Option<Bytes>, limit: usize) -> BoxFuture<'_, Result<Walked, Failure>>;
}
