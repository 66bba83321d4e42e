//! What the Redis commands need of a table: the seam between their meaning and the cluster. The cluster's
//! side is the SDK; the tests' side is a map in memory.

use bytes::Bytes;
use futures::future::BoxFuture;
use std::sync::Arc;
use undb_sdk::{Batch, Client, Key, Mutation, Partitioning, Record, ScanOptions, Span, Table, WriteOutcome};

pub(crate) type Answer<'a, T> = BoxFuture<'a, Result<T, undb_sdk::Error>>;

/// A page of a scan.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub records: Vec<(Key, Record)>,
    /// Where the next page begins; `None`: the span is exhausted.
    pub cursor: Option<Bytes>,
}

/// What to scan.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    pub span: Span,
    pub cursor: Option<Bytes>,
    pub len: u32,
    pub keys_only: bool,
}

/// One table.
pub(crate) trait Keyspace: Send + Sync + 'static {
    fn partitioning(&self) -> Partitioning;
    fn get(&self, key: Key) -> Answer<'_, Option<Record>>;
    fn get_many(&self, keys: Vec<Key>) -> Answer<'_, Vec<Option<Record>>>;
    /// Without values.
    fn meta_many(&self, keys: Vec<Key>) -> Answer<'_, Vec<Option<Record>>>;
    /// Atomic; all keys in one shard.
    fn write(&self, batch: Batch) -> Answer<'_, WriteOutcome>;
    /// Atomic per shard at best.
    fn write_each(&self, mutations: Vec<Mutation>) -> Answer<'_, Vec<Result<WriteOutcome, undb_sdk::Error>>>;
    fn scan(&self, request: PageRequest) -> Answer<'_, Page>;
    fn delete_range(&self, span: Span) -> Answer<'_, u64>;
}

/// Opens tables by name.
pub(crate) trait Tables: Send + Sync + 'static {
    fn open(&self, name: Arc<str>) -> Answer<'_, Arc<dyn Keyspace>>;
}

impl Tables for Client {
    fn open(&self, name: Arc<str>) -> Answer<'_, Arc<dyn Keyspace>> {
        Box::pin(async move { Ok(Arc::new(self.table(&*name).await?) as Arc<dyn Keyspace>) })
    }
}

impl Keyspace for Table {
    fn partitioning(&self) -> Partitioning {
        Table::partitioning(self)
    }

    fn get(&self, key: Key) -> Answer<'_, Option<Record>> {
        Box::pin(Table::get(self, key))
    }

    fn get_many(&self, keys: Vec<Key>) -> Answer<'_, Vec<Option<Record>>> {
        Box::pin(Table::get_many(self, keys))
    }

    fn meta_many(&self, keys: Vec<Key>) -> Answer<'_, Vec<Option<Record>>> {
        Box::pin(Table::meta_many(self, keys))
    }

    fn write(&self, batch: Batch) -> Answer<'_, WriteOutcome> {
        Box::pin(Table::write(self, batch))
    }

    fn write_each(&self, mutations: Vec<Mutation>) -> Answer<'_, Vec<Result<WriteOutcome, undb_sdk::Error>>> {
        Box::pin(async move { Ok(self.mutate_many(mutations).await) })
    }

    fn scan(&self, request: PageRequest) -> Answer<'_, Page> {
        Box::pin(async move {
            let mut options = ScanOptions::over(request.span).page_len(request.len);
            if request.keys_only {
                options = options.keys_only();
            }
            if let Some(cursor) = request.cursor {
                options = options.resume(cursor);
            }
            let mut scan = Table::scan(self, options)?;
            let records = scan.next_page().await?.unwrap_or_default();
            Ok(Page { records, cursor: scan.cursor() })
        })
    }

    fn delete_range(&self, span: Span) -> Answer<'_, u64> {
        Box::pin(Table::delete_range(self, span))
    }
}
