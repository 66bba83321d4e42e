//! A table in memory, for tests of the commands: one shard whose semantics are those of kv.proto.

use crate::Failure;
use crate::keyspace::{Found, Keyspace, Walked};
use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use undb_proto::v1::{self, condition::Want, mutation::Op};
use undb_sdk::{Batch, Change, Key, Mutation, Partitioning, Record, WriteOutcome};
use undb_types::{decode_key, encode_key};

#[derive(Default)]
pub struct Memory {
    records: Mutex<(u64, BTreeMap<Bytes, Record>)>,
    /// The store's clock.
    pub now_ms: AtomicU64,
}

fn encoded(key: &Key) -> Bytes {
    encode_key(Partitioning::Range, &key.hash, &key.sort)
}

fn decoded(key: &[u8]) -> Key {
    let (hash, sort) = decode_key(Partitioning::Range, key).expect("our own key");
    Key::new(hash, sort)
}

impl Memory {
    fn live(&self, record: Option<&Record>) -> Option<Record> {
        let now = self.now_ms.load(Ordering::Relaxed);
        record.filter(|r| r.expire_at_ms == 0 || r.expire_at_ms > now).cloned()
    }

    fn holds(condition: Option<&v1::Condition>, current: Option<&Record>) -> bool {
        match condition.and_then(|c| c.want.as_ref()) {
            None => true,
            Some(Want::Absent(_)) => current.is_none(),
            Some(Want::Present(_)) => current.is_some(),
            Some(Want::Version(version)) => current.is_some_and(|r| r.version == *version),
            Some(Want::Value(value)) => current.is_some_and(|r| r.value == *value),
        }
    }

    fn expiry(&self, ttl_ms: u64, at_ms: u64) -> u64 {
        if ttl_ms == 0 { at_ms } else { self.now_ms.load(Ordering::Relaxed) + ttl_ms }
    }

    fn changed(&self, op: Op, old: Option<&Record>, version: u64) -> Result<(Option<Record>, i64), Failure> {
        let fresh = |value: Bytes, kind: u32, expire_at_ms: u64| Record {
            value_len: value.len() as u32,
            value,
            version,
            expire_at_ms,
            kind,
        };
        Ok(match op {
            Op::Put(put) => {
                let kept = old.map_or(0, |r| r.expire_at_ms);
                let at = if put.keep_ttl { kept } else { self.expiry(put.ttl_ms, put.expire_at_ms) };
                (Some(fresh(put.value, put.kind, at)), 0)
            }
            Op::Delete(_) => (None, 0),
            Op::Check(_) => (old.cloned(), 0),
            Op::SetExpiry(set) => {
                let at = self.expiry(set.ttl_ms, set.expire_at_ms);
                (old.cloned().map(|r| Record { expire_at_ms: at, version, ..r }), 0)
            }
            Op::Increment(increment) => {
                let number = match old {
                    None => increment.initial,
                    Some(r) if r.kind != 0 => return Err(Failure::WRONG_TYPE),
                    Some(r) => crate::command::parse_integer(&r.value).ok_or(Failure::NOT_AN_INTEGER)?,
                };
                let sum = number.checked_add(increment.by).ok_or(Failure::OVERFLOW)?;
                (Some(fresh(sum.to_string().into(), 0, old.map_or(0, |r| r.expire_at_ms))), sum)
            }
            Op::DeleteRange(_) => return Err(Failure::SYNTAX),
        })
    }

    fn apply(&self, batch: Batch) -> Result<WriteOutcome, Failure> {
        let mutations = batch.encode(Partitioning::Range)?;
        let mut state = self.records.lock();
        let mut seen = std::collections::HashSet::new();
        assert!(mutations.iter().all(|m| seen.insert(m.key.clone())), "a batch names a key once");
        for (index, m) in mutations.iter().enumerate() {
            let current = self.live(state.1.get(&m.key));
            if !Self::holds(m.condition.as_ref(), current.as_ref()) {
                return Ok(WriteOutcome::ConditionFailed { index, current });
            }
        }
        let version = state.0 + 1;
        let mut changes = Vec::new();
        let mut writes = Vec::new();
        for m in mutations {
            let old = self.live(state.1.get(&m.key));
            let (new, number) = self.changed(m.op.expect("an op"), old.as_ref(), version)?;
            changes.push(Change { version, existed: old.is_some(), previous: None, number });
            writes.push((m.key, new));
        }
        state.0 = version;
        for (key, new) in writes {
            match new {
                Some(record) => state.1.insert(key, record),
                None => state.1.remove(&key),
            };
        }
        Ok(WriteOutcome::Applied(changes))
    }

    fn in_prefix(&self, hash: &Bytes, prefix: &[u8]) -> Vec<Found> {
        let state = self.records.lock();
        let all = state.1.iter().filter_map(|(key, record)| {
            let key = decoded(key);
            let record = self.live(Some(record))?;
            (key.hash == *hash && key.sort.starts_with(prefix)).then_some(Found { key, record })
        });
        all.collect()
    }

    /// Records of any kind, expired ones included.
    pub fn len(&self) -> usize {
        self.records.lock().1.len()
    }
}

impl Keyspace for Memory {
    fn get(&self, keys: Vec<Key>, _values: bool) -> BoxFuture<'_, Result<Vec<Option<Record>>, Failure>> {
        let state = self.records.lock();
        let found = keys.iter().map(|key| self.live(state.1.get(&encoded(key)))).collect();
        Box::pin(ready(Ok(found)))
    }

    fn write(&self, batch: Batch) -> BoxFuture<'_, Result<WriteOutcome, Failure>> {
        Box::pin(ready(self.apply(batch)))
    }

    fn write_each(&self, mutations: Vec<Mutation>) -> BoxFuture<'_, Result<Vec<WriteOutcome>, Failure>> {
        Box::pin(ready(mutations.into_iter().map(|m| self.apply(Batch::new().and(m))).collect()))
    }

    fn fields(
        &self,
        hash: Bytes,
        prefix: Bytes,
        from: Option<Bytes>,
        limit: usize,
        _values: bool,
    ) -> BoxFuture<'_, Result<Vec<Found>, Failure>> {
        let mut found = self.in_prefix(&hash, &prefix);
        found.retain(|f| from.as_ref().is_none_or(|from| f.key.sort >= *from));
        found.truncate(limit);
        Box::pin(ready(Ok(found)))
    }

    fn drop_fields(&self, hash: Bytes, prefix: Bytes) -> BoxFuture<'_, Result<(), Failure>> {
        for found in self.in_prefix(&hash, &prefix) {
            self.records.lock().1.remove(&encoded(&found.key));
        }
        Box::pin(ready(Ok(())))
    }

    fn walk(&self, from: Option<Bytes>, limit: usize) -> BoxFuture<'_, Result<Walked, Failure>> {
        let state = self.records.lock();
        let behind = state.1.iter().filter(|(key, _)| from.as_ref().is_none_or(|from| *key >= from));
        let mut live = behind.filter_map(|(key, r)| self.live(Some(r)).map(|record| (key.clone(), record)));
        let page: Vec<_> =
            live.by_ref().take(limit).map(|(key, record)| Found { key: decoded(&key), record }).collect();
        let next = live.next().map(|(key, _)| key);
        Box::pin(ready(Ok((page, next))))
    }
}
