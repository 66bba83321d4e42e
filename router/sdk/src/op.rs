//! Keys, records, and what a write is made of.

use bytes::Bytes;
use std::time::Duration;
use undb_proto::v1;
use undb_types::{BATCH_BYTES_MAX, BATCH_LEN_MAX, KEY_BYTES_MAX, Partitioning, VALUE_BYTES_MAX, encode_key};

use crate::{Error, Result};

/// A key. All keys with one hash key live in one shard, ordered by sort key.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Decides the shard.
    pub hash: Bytes,
    /// Orders within the hash key; empty for plain keys.
    pub sort: Bytes,
}

impl Key {
    /// A key of two parts.
    pub fn new(hash: impl Into<Bytes>, sort: impl Into<Bytes>) -> Self {
        Self { hash: hash.into(), sort: sort.into() }
    }

    /// The encoded key.
    pub fn encode(&self, partitioning: Partitioning) -> Result<Bytes> {
        let size = self.hash.len() + self.sort.len();
        check_max("key bytes", size, KEY_BYTES_MAX)?;
        Ok(encode_key(partitioning, &self.hash, &self.sort))
    }
}

macro_rules! key_from {
    ($($ty:ty => |$v:ident| $bytes:expr),* $(,)?) => {$(
        impl From<$ty> for Key {
            fn from($v: $ty) -> Self {
                Self { hash: $bytes, sort: Bytes::new() }
            }
        }
    )*};
}
key_from! {
    Bytes => |v| v,
    Vec<u8> => |v| v.into(),
    String => |v| v.into(),
    &[u8] => |v| Bytes::copy_from_slice(v),
    &str => |v| Bytes::copy_from_slice(v.as_bytes()),
    &String => |v| Bytes::copy_from_slice(v.as_bytes()),
    &Bytes => |v| v.clone(),
}

impl From<&Key> for Key {
    fn from(key: &Key) -> Self {
        key.clone()
    }
}

impl<H: AsRef<[u8]>, S: AsRef<[u8]>> From<(H, S)> for Key {
    fn from((hash, sort): (H, S)) -> Self {
        Self { hash: Bytes::copy_from_slice(hash.as_ref()), sort: Bytes::copy_from_slice(sort.as_ref()) }
    }
}

/// A value and what is known about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The value; empty where only its metadata was asked for.
    pub value: Bytes,
    /// Changes with every write and never comes back: the token for compare-and-set.
    pub version: u64,
    /// When it vanishes, in ms since 1970; 0: never.
    pub expire_at_ms: u64,
    /// 0 for plain values; others belong to the data model of a proxy.
    pub kind: u32,
    /// Length of the value, also where the value was not asked for.
    pub value_len: u32,
}

impl From<v1::Record> for Record {
    fn from(r: v1::Record) -> Self {
        Self {
            value: r.value,
            version: r.version,
            expire_at_ms: r.expire_at_ms,
            kind: r.kind,
            value_len: r.value_len,
        }
    }
}

/// When a written record vanishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expiry {
    /// When the table's default says so, else never.
    #[default]
    Never,
    /// This long after the write.
    After(Duration),
    /// At this time, in ms since 1970.
    AtMs(u64),
    /// When the record that it replaces would have.
    Keep,
}

/// What must hold for a mutation, and so for its whole batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// No live record.
    Absent,
    /// A live record.
    Present,
    /// A live record with this version.
    Version(u64),
    /// A live record with this value.
    Value(Bytes),
}

impl From<Expect> for v1::Condition {
    fn from(expect: Expect) -> Self {
        use v1::condition::Want;
        let want = match expect {
            Expect::Absent => Want::Absent(v1::Empty {}),
            Expect::Present => Want::Present(v1::Empty {}),
            Expect::Version(v) => Want::Version(v),
            Expect::Value(v) => Want::Value(v),
        };
        v1::Condition { want: Some(want) }
    }
}

/// How to put.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// When it vanishes.
    pub expiry: Expiry,
    /// What must hold.
    pub expect: Option<Expect>,
    /// The record's kind.
    pub kind: u32,
    /// Answer with the record that was there before.
    pub return_previous: bool,
}

impl PutOptions {
    /// A plain put.
    pub fn new() -> Self {
        Self::default()
    }

    /// Vanishes after `ttl`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.expiry = Expiry::After(ttl);
        self
    }

    /// Vanishes as said.
    pub fn expiry(mut self, expiry: Expiry) -> Self {
        self.expiry = expiry;
        self
    }

    /// Only if there is no record.
    pub fn if_absent(self) -> Self {
        self.when(Expect::Absent)
    }

    /// Only if there is a record.
    pub fn if_present(self) -> Self {
        self.when(Expect::Present)
    }

    /// Only if this holds.
    pub fn when(mut self, expect: Expect) -> Self {
        self.expect = Some(expect);
        self
    }

    /// With a kind.
    pub fn kind(mut self, kind: u32) -> Self {
        self.kind = kind;
        self
    }

    /// Answer with the record that was there before.
    pub fn return_previous(mut self) -> Self {
        self.return_previous = true;
        self
    }
}

/// One change of one key.
#[derive(Clone, Debug)]
pub struct Mutation {
    pub(crate) key: Key,
    pub(crate) expect: Option<Expect>,
    pub(crate) return_previous: bool,
    pub(crate) op: v1::mutation::Op,
}

impl Mutation {
    fn new(key: impl Into<Key>, op: v1::mutation::Op) -> Self {
        Self { key: key.into(), expect: None, return_previous: false, op }
    }

    /// Write a value.
    pub fn put(key: impl Into<Key>, value: impl Into<Bytes>) -> Self {
        Self::put_with(key, value, PutOptions::default())
    }

    /// Write a value, with options.
    pub fn put_with(key: impl Into<Key>, value: impl Into<Bytes>, options: PutOptions) -> Self {
        let mut put = v1::Put { value: value.into(), kind: options.kind, ..Default::default() };
        match options.expiry {
            Expiry::Never => {}
            Expiry::After(ttl) => put.ttl_ms = ttl_ms(ttl),
            Expiry::AtMs(at) => put.expire_at_ms = at.max(1),
            Expiry::Keep => put.keep_ttl = true,
        }
        let mut mutation = Self::new(key, v1::mutation::Op::Put(put));
        mutation.expect = options.expect;
        mutation.return_previous = options.return_previous;
        mutation
    }

    /// Remove the record, if there is one.
    pub fn delete(key: impl Into<Key>) -> Self {
        Self::new(key, v1::mutation::Op::Delete(v1::Delete {}))
    }

    /// Add to a decimal i64; an absent record counts as 0.
    pub fn increment(key: impl Into<Key>, by: i64) -> Self {
        Self::increment_from(key, by, 0, None)
    }

    /// Add to a decimal i64; an absent record counts as `initial` and then lives for `ttl`.
    pub fn increment_from(key: impl Into<Key>, by: i64, initial: i64, ttl: Option<Duration>) -> Self {
        let ttl_ms = ttl.map(ttl_ms).unwrap_or(0);
        Self::new(key, v1::mutation::Op::Increment(v1::Increment { by, initial, ttl_ms }))
    }

    /// Set or remove the expiry of a record that exists. `Keep` and `Never` both remove it.
    pub fn set_expiry(key: impl Into<Key>, expiry: Expiry) -> Self {
        let mut set = v1::SetExpiry::default();
        match expiry {
            Expiry::Never | Expiry::Keep => {}
            Expiry::After(ttl) => set.ttl_ms = ttl_ms(ttl),
            Expiry::AtMs(at) => set.expire_at_ms = at.max(1),
        }
        Self::new(key, v1::mutation::Op::SetExpiry(set))
    }

    /// Change nothing; only the condition counts.
    pub fn check(key: impl Into<Key>, expect: Expect) -> Self {
        Self::new(key, v1::mutation::Op::Check(v1::Empty {})).when(expect)
    }

    /// Only if this holds; else nothing of the batch is applied.
    pub fn when(mut self, expect: Expect) -> Self {
        self.expect = Some(expect);
        self
    }

    /// Answer with the record that was there before.
    pub fn return_previous(mut self) -> Self {
        self.return_previous = true;
        self
    }

    /// The key that it changes.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Its wire form, for those who build a cluster of their own under test.
    pub fn encode(self, partitioning: Partitioning) -> Result<v1::Mutation> {
        if let v1::mutation::Op::Put(put) = &self.op {
            check_max("value bytes", put.value.len(), VALUE_BYTES_MAX)?;
        }
        Ok(v1::Mutation {
            key: self.key.encode(partitioning)?,
            condition: self.expect.map(Into::into),
            return_previous: self.return_previous,
            op: Some(self.op),
        })
    }
}

/// At least 1 ms: 0 on the wire means "no expiry".
fn ttl_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// Mutations that happen together or not at all. They must share a shard, which one hash key ensures.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub(crate) mutations: Vec<Mutation>,
}

impl Batch {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// And this.
    pub fn and(mut self, mutation: Mutation) -> Self {
        self.mutations.push(mutation);
        self
    }

    /// And this, in place.
    pub fn push(&mut self, mutation: Mutation) {
        self.mutations.push(mutation);
    }

    /// How many mutations.
    pub fn len(&self) -> usize {
        self.mutations.len()
    }

    /// True without mutations.
    pub fn is_empty(&self) -> bool {
        self.mutations.is_empty()
    }

    /// As it is sent: for gateways that check, and for tests that stand in for a store.
    pub fn encode(self, partitioning: Partitioning) -> Result<Vec<v1::Mutation>> {
        check_max("batch mutations", self.mutations.len(), BATCH_LEN_MAX)?;
        let one = self.mutations.len() == 1;
        let encoded: Vec<_> =
            self.mutations.into_iter().map(|m| m.encode(partitioning)).collect::<Result<_>>()?;
        let size = encoded.iter().map(mutation_bytes).sum();
        if !one {
            check_max("batch bytes", size, BATCH_BYTES_MAX)?;
        }
        Ok(encoded)
    }
}

impl FromIterator<Mutation> for Batch {
    fn from_iter<T: IntoIterator<Item = Mutation>>(mutations: T) -> Self {
        Self { mutations: mutations.into_iter().collect() }
    }
}

/// What a mutation adds to a request, roughly.
pub(crate) fn mutation_bytes(mutation: &v1::Mutation) -> usize {
    let value = match &mutation.op {
        Some(v1::mutation::Op::Put(put)) => put.value.len(),
        _ => 0,
    };
    mutation.key.len() + value
}

fn check_max(what: &'static str, size: usize, max: usize) -> Result<()> {
    if size > max { Err(Error::TooLarge { what, size, max }) } else { Ok(()) }
}

/// What a mutation did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Of the record after the write; 0: there is none.
    pub version: u64,
    /// A live record was there before.
    pub existed: bool,
    /// The record before, where it was asked for.
    pub previous: Option<Record>,
    /// Increment: the new number. Delete-range: records removed.
    pub number: i64,
}

impl From<v1::MutationResult> for Change {
    fn from(r: v1::MutationResult) -> Self {
        Self {
            version: r.version,
            existed: r.existed,
            previous: r.previous.map(Into::into),
            number: r.number,
        }
    }
}

/// What a write came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Everything happened; one change a mutation, in order.
    Applied(Vec<Change>),
    /// A condition did not hold and nothing happened.
    ConditionFailed {
        /// Which mutation, from 0.
        index: usize,
        /// The record that is there; its value only where the mutation has `return_previous`.
        current: Option<Record>,
    },
}

impl WriteOutcome {
    /// True when everything happened.
    pub fn is_applied(&self) -> bool {
        matches!(self, WriteOutcome::Applied(_))
    }

    /// The change of the only (or first) mutation, if it happened.
    pub fn change(self) -> Option<Change> {
        match self {
            WriteOutcome::Applied(changes) => changes.into_iter().next(),
            WriteOutcome::ConditionFailed { .. } => None,
        }
    }

    /// From the wire. `None`: the answer does not fit the question.
    pub fn from_wire(response: v1::WriteResponse, sent: usize) -> Option<Self> {
        if response.applied {
            let changes: Vec<Change> = response.results.into_iter().map(Into::into).collect();
            return (changes.len() == sent).then_some(WriteOutcome::Applied(changes));
        }
        let index = response.failed as usize;
        let mut results = response.results;
        let at = if results.len() == 1 { 0 } else { index };
        let current = if at < results.len() { results.swap_remove(at).previous } else { None };
        Some(WriteOutcome::ConditionFailed { index, current: current.map(Into::into) })
    }
}
