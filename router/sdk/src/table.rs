//! The operations on one table.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use undb_proto::v1::{self, kv_request, kv_response};
use undb_types::Partitioning;

use crate::client::Core;
use crate::invoke::{Anchor, Call, Unanswered};
use crate::op::Change;
use crate::route::LiveRoute;
use crate::{
    Batch, Error, Expect, Expiry, Key, Mutation, PutOptions, Record, Result, Scan, ScanOptions, Span,
    WriteOutcome,
};

/// One table. Cheap to clone. Every call ends by its deadline ([`crate::Timeouts`]).
///
/// Reads are linearizable. A write future that is dropped may still be applied.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) core: Arc<Core>,
    pub(crate) route: Arc<LiveRoute>,
}

/// How long a record still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// There is no record.
    Absent,
    /// It stays until it is deleted.
    Never,
    /// It vanishes then, in ms since 1970.
    AtMs(u64),
}

/// How to increment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IncrementOptions {
    /// What an absent record counts as.
    pub initial: i64,
    /// Lifetime of a record that this creates.
    pub ttl: Option<Duration>,
}

impl Table {
    pub(crate) fn new(core: Arc<Core>, route: Arc<LiveRoute>) -> Self {
        Self { core, route }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.route.name
    }

    /// How its keys are ordered, and so which scans it can do.
    pub fn partitioning(&self) -> Partitioning {
        self.route.current().partitioning
    }

    /// How many shards it has now.
    pub fn shard_count(&self) -> usize {
        self.route.current().shard_count()
    }

    /// True when both keys lie in one shard now, so that a batch on them is atomic.
    pub fn same_shard(&self, a: &Key, b: &Key) -> bool {
        let routes = self.route.current();
        let shard = |key: &Key| key.encode(routes.partitioning).map(|k| routes.locate(&k).id).ok();
        shard(a).is_some_and(|id| shard(b) == Some(id))
    }

    /// The record at `key`.
    pub async fn get(&self, key: impl Into<Key>) -> Result<Option<Record>> {
        self.get_one(key.into(), ValueWanted::Yes).await
    }

    /// Version, expiry, kind and length of the record at `key`, without its value.
    pub async fn meta(&self, key: impl Into<Key>) -> Result<Option<Record>> {
        self.get_one(key.into(), ValueWanted::No).await
    }

    async fn get_one(&self, key: Key, wanted: ValueWanted) -> Result<Option<Record>> {
        let key = key.encode(self.partitioning())?;
        let anchor = Anchor::At(key.clone());
        let op = |_: &_| Some(get_op(vec![key.clone()], wanted));
        match self.read("get").run(&anchor, op).await {
            Ok((kv_response::Result::Get(get), _)) => {
                Ok(get.records.into_iter().next().and_then(|r| r.record).map(Into::into))
            }
            Ok(_) => Err(unfit()),
            Err(unanswered) => Err(unanswered.into_error()),
        }
    }

    /// Writes a value.
    pub async fn put(&self, key: impl Into<Key>, value: impl Into<Bytes>) -> Result<Change> {
        applied(self.put_with(key, value, PutOptions::default()).await?)
    }

    /// Writes a value, with options.
    pub async fn put_with(
        &self,
        key: impl Into<Key>,
        value: impl Into<Bytes>,
        options: PutOptions,
    ) -> Result<WriteOutcome> {
        self.write(Batch::new().and(Mutation::put_with(key, value, options))).await
    }

    /// Removes the record. True: there was one.
    pub async fn delete(&self, key: impl Into<Key>) -> Result<bool> {
        let outcome = self.write(Batch::new().and(Mutation::delete(key))).await?;
        Ok(applied(outcome)?.existed)
    }

    /// Writes a value if `expect` holds of the record that is there.
    pub async fn compare_and_set(
        &self,
        key: impl Into<Key>,
        expect: Expect,
        value: impl Into<Bytes>,
    ) -> Result<WriteOutcome> {
        self.put_with(key, value, PutOptions::new().when(expect)).await
    }

    /// Adds to a decimal i64 and returns the sum; an absent record counts as 0. Exactly once.
    pub async fn increment(&self, key: impl Into<Key>, by: i64) -> Result<i64> {
        self.increment_with(key, by, IncrementOptions::default()).await
    }

    /// Adds to a decimal i64 and returns the sum. Exactly once.
    pub async fn increment_with(
        &self,
        key: impl Into<Key>,
        by: i64,
        options: IncrementOptions,
    ) -> Result<i64> {
        let mutation = Mutation::increment_from(key, by, options.initial, options.ttl);
        Ok(applied(self.write(Batch::new().and(mutation)).await?)?.number)
    }

    /// Lets the record vanish after `ttl`. False: there is none.
    pub async fn expire(&self, key: impl Into<Key>, ttl: Duration) -> Result<bool> {
        self.set_expiry(key, Expiry::After(ttl)).await
    }

    /// Lets the record vanish at a time in ms since 1970. False: there is none.
    pub async fn expire_at(&self, key: impl Into<Key>, at_ms: u64) -> Result<bool> {
        self.set_expiry(key, Expiry::AtMs(at_ms)).await
    }

    /// Lets the record stay. False: there is none.
    pub async fn persist(&self, key: impl Into<Key>) -> Result<bool> {
        self.set_expiry(key, Expiry::Never).await
    }

    async fn set_expiry(&self, key: impl Into<Key>, expiry: Expiry) -> Result<bool> {
        let outcome = self.write(Batch::new().and(Mutation::set_expiry(key, expiry))).await?;
        Ok(applied(outcome)?.existed)
    }

    /// How long the record still lives.
    pub async fn ttl(&self, key: impl Into<Key>) -> Result<Ttl> {
        Ok(match self.meta(key).await? {
            None => Ttl::Absent,
            Some(Record { expire_at_ms: 0, .. }) => Ttl::Never,
            Some(record) => Ttl::AtMs(record.expire_at_ms),
        })
    }

    /// Applies all mutations of a batch, or none when a condition does not hold. Exactly once.
    ///
    /// All its keys must lie in one shard; keys with one hash key always do.
    pub async fn write(&self, batch: Batch) -> Result<WriteOutcome> {
        let mutations = batch.encode(self.partitioning())?;
        self.write_encoded(mutations).await.map_err(|unanswered| match unanswered {
            Unanswered::Regroup => {
                Error::invalid("the keys of a batch must lie in one shard; keys with one hash key always do")
            }
            other => other.into_error(),
        })
    }

    pub(crate) async fn write_encoded(
        &self,
        mutations: Vec<v1::Mutation>,
    ) -> Result<WriteOutcome, Unanswered> {
        let Some(first) = mutations.first() else { return Ok(WriteOutcome::Applied(Vec::new())) };
        let anchor = Anchor::At(first.key.clone());
        let op = |shard: &crate::route::ShardRoute| {
            let fits = mutations.iter().all(|m| shard.range.contains(&m.key));
            fits.then(|| kv_request::Op::Write(v1::WriteRequest { mutations: mutations.clone() }))
        };
        let unfit = || Unanswered::Error(Error::Ambiguous { reason: "unfit answer of a store".into() });
        let mut ids = 1;
        loop {
            let ticket = self.core.lanes.take(self.core.clock.now_ms());
            let mut call = self.call("write", self.core.options.timeouts.write);
            (call.ticket, call.repeatable) = (Some(&ticket), false);
            return match call.run(&anchor, op).await {
                Ok((kv_response::Result::Write(write), _)) => {
                    WriteOutcome::from_wire(write, mutations.len()).ok_or_else(unfit)
                }
                Ok(_) => Err(unfit()),
                Err(Unanswered::TooOld(_)) if ids < REQUEST_IDS_MAX => {
                    ids += 1;
                    continue;
                }
                Err(Unanswered::TooOld(error)) => Err(Error::Rejected {
                    code: crate::ErrorCode::TooOld,
                    message: format!("this machine's clock seems to be behind the cluster's: {error}"),
                }
                .into()),
                Err(unanswered) => Err(unanswered),
            };
        }
    }

    /// Removes all records of a span, shard by shard and in steps of at most 1,000: not atomic as a whole.
    /// Returns how many were removed; after an error some may be.
    pub async fn delete_range(&self, span: Span) -> Result<u64> {
        let range = span.encode(self.partitioning())?;
        // No encoded key is empty, and none is below a zero byte.
        let mut start = if range.start.is_empty() { Bytes::from_static(&[0]) } else { range.start };
        let mut removed = 0;
        while range.end.is_empty() || start < range.end {
            let call = self.call("delete_range", self.core.options.timeouts.write.max(DELETE_RANGE_TIMEOUT));
            let anchor = Anchor::At(start.clone());
            let op = |shard: &crate::route::ShardRoute| {
                let end = smaller_end(&range.end, &shard.range.end);
                let op = v1::mutation::Op::DeleteRange(v1::DeleteRange { end });
                let mutation = v1::Mutation { key: start.clone(), op: Some(op), ..Default::default() };
                Some(kv_request::Op::Write(v1::WriteRequest { mutations: vec![mutation] }))
            };
            let (answer, shard) = call.run(&anchor, op).await.map_err(Unanswered::into_error)?;
            if let kv_response::Result::Write(write) = answer {
                removed += write.results.first().map_or(0, |r| u64::try_from(r.number).unwrap_or(0));
            }
            if shard.range.end.is_empty() {
                break;
            }
            start = shard.range.end.clone();
        }
        Ok(removed)
    }

    /// A scan, to be read page by page or as a stream.
    pub fn scan(&self, options: ScanOptions) -> Result<Scan> {
        Scan::new(self.clone(), options)
    }

    /// How many live records a span has. Reads all their keys.
    pub async fn count(&self, span: Span) -> Result<u64> {
        let mut scan = self.scan(ScanOptions::over(span).keys_only().page_len(10_000))?;
        let mut count = 0;
        while let Some(page) = scan.next_page().await? {
            count += page.len() as u64;
        }
        Ok(count)
    }

    pub(crate) fn read(&self, name: &'static str) -> Call<'_> {
        self.call(name, self.core.options.timeouts.read)
    }

    fn call(&self, name: &'static str, timeout: Duration) -> Call<'_> {
        let started = Instant::now();
        Call {
            core: &self.core,
            route: &self.route,
            name,
            started,
            deadline: started + timeout,
            ticket: None,
            repeatable: true,
        }
    }
}

/// New ids for a write whose first attempt is refused as too old, before giving up.
const REQUEST_IDS_MAX: u32 = 3;
/// A range can be long; a shard of it may take a while.
const DELETE_RANGE_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
pub(crate) enum ValueWanted {
    Yes,
    No,
}

pub(crate) fn get_op(keys: Vec<Bytes>, wanted: ValueWanted) -> kv_request::Op {
    let no_value = matches!(wanted, ValueWanted::No);
    kv_request::Op::Get(v1::GetRequest { keys, consistency: v1::Consistency::Linearizable as i32, no_value })
}

/// The end that comes first; empty means none.
pub(crate) fn smaller_end(a: &Bytes, b: &Bytes) -> Bytes {
    if a.is_empty() || (!b.is_empty() && b < a) { b.clone() } else { a.clone() }
}

pub(crate) fn unfit() -> Error {
    Error::Fatal {
        code: crate::ErrorCode::Internal,
        message: "a store answered with something else than was asked for".into(),
    }
}

impl Unanswered {
    pub(crate) fn into_error(self) -> Error {
        match self {
            Unanswered::Error(error) | Unanswered::TooOld(error) => error,
            Unanswered::Regroup => Error::invalid("the key lies outside of every shard"),
        }
    }
}

/// The change of a write without conditions.
fn applied(outcome: WriteOutcome) -> Result<Change> {
    outcome.change().ok_or_else(|| Error::Ambiguous {
        reason: "a store says that a condition failed where there was none".into(),
    })
}
