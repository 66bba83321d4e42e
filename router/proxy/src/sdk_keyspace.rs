//! A table of a cluster, for the commands.

use crate::Failure;
use crate::keyspace::{Found, Keyspace, Walked};
use bytes::Bytes;
use futures::future::BoxFuture;
use undb_sdk::{Batch, Key, Mutation, Record, ScanOptions, Span, Table, WriteOutcome};

impl Keyspace for Table {
    fn get(&self, keys: Vec<Key>, values: bool) -> BoxFuture<'_, Result<Vec<Option<Record>>, Failure>> {
        Box::pin(
            async move { Ok(if values { self.get_many(keys).await? } else { self.meta_many(keys).await? }) },
        )
    }

    fn write(&self, batch: Batch) -> BoxFuture<'_, Result<WriteOutcome, Failure>> {
        Box::pin(async move { Ok(Table::write(self, batch).await?) })
    }

    fn write_each(&self, mutations: Vec<Mutation>) -> BoxFuture<'_, Result<Vec<WriteOutcome>, Failure>> {
        Box::pin(async move {
            let outcomes = self.mutate_many(mutations).await;
            outcomes.into_iter().map(|one| one.map_err(Failure::from)).collect()
        })
    }

    fn fields(
        &self,
        hash: Bytes,
        prefix: Bytes,
        from: Option<Bytes>,
        limit: usize,
        values: bool,
    ) -> BoxFuture<'_, Result<Vec<Found>, Failure>> {
        Box::pin(async move {
            let end = Some(undb_types::prefix_end(&prefix)).filter(|end| !end.is_empty());
            let span = Span::SortBetween(hash, from.unwrap_or(prefix), end);
            let mut options = ScanOptions::over(span).page_len(limit as u32);
            if !values {
                options = options.keys_only();
            }
            let mut scan = self.scan(options)?;
            let mut found = Vec::new();
            while found.len() < limit
                && let Some(page) = scan.next_page().await?
            {
                found.extend(page.into_iter().map(|(key, record)| Found { key, record }));
            }
            found.truncate(limit);
            Ok(found)
        })
    }

    fn drop_fields(&self, hash: Bytes, prefix: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(async move {
            self.delete_range(Span::Within(hash, prefix)).await?;
            Ok(())
        })
    }

    fn walk(&self, from: Option<Bytes>, limit: usize) -> BoxFuture<'_, Result<Walked, Failure>> {
        Box::pin(async move {
            let mut options = ScanOptions::all().keys_only().page_len(limit as u32);
            if let Some(cursor) = from {
                options = options.resume(cursor);
            }
            let mut scan = self.scan(options)?;
            let page = scan.next_page().await?.unwrap_or_default();
            let found = page.into_iter().map(|(key, record)| Found { key, record }).collect();
            Ok((found, scan.cursor()))
        })
    }
}
