//! UNDB through its SDK.

use crate::target::{Target, TargetError};
use bytes::Bytes;
use futures::future::BoxFuture;
use undb_proto::v1::StoreStats;
use undb_sdk::{Client, Error, Table};

/// What all stores have counted, added up. Each replica counts for itself, so ratios are per replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Keys and values of applied writes.
    pub user_bytes: u64,
    /// Everything written to files.
    pub written_bytes: u64,
    /// Keys and values that a reader can see.
    pub live_bytes: u64,
    /// Held by files.
    pub disk_bytes: u64,
}

impl Counters {
    fn add(&mut self, stats: &StoreStats) {
        self.user_bytes += stats.user_bytes;
        self.written_bytes += stats.log_bytes + stats.index_bytes + stats.relocated_bytes + stats.other_bytes;
        self.live_bytes += stats.live_bytes;
        self.disk_bytes += stats.disk_bytes;
    }
}

/// A table of a cluster.
#[derive(Clone)]
pub struct UndbTarget {
    client: Client,
    table: Table,
}

impl UndbTarget {
    /// The table to load.
    pub fn new(client: Client, table: Table) -> Self {
        Self { client, table }
    }
}

impl From<Error> for TargetError {
    fn from(error: Error) -> Self {
        TargetError(format!("{}: {error}", error.code_name()))
    }
}

impl Target for UndbTarget {
    fn read(&self, key: Bytes) -> BoxFuture<'_, Result<Option<usize>, TargetError>> {
        Box::pin(async move { Ok(self.table.get(key).await?.map(|record| record.value.len())) })
    }

    fn write(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), TargetError>> {
        Box::pin(async move {
            self.table.put(key, value).await?;
            Ok(())
        })
    }

    fn counters(&self) -> BoxFuture<'_, Result<Option<Counters>, TargetError>> {
        Box::pin(async move {
            let status = self.client.admin().status().await?;
            let mut sum = Counters::default();
            for store in status.stores.iter().filter(|store| store.alive) {
                sum.add(&store.stats.unwrap_or_default());
            }
            Ok(Some(sum))
        })
    }
}
