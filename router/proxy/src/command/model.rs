//! How strings and hashes lie in a table.
//!
//! ```text
//! string   (key, "")                       kind 0: the value
//! hash     (key, "")                       kind 1: 01 | generation u64 BE | fields u64 BE
//! field    (key, 01 | generation | field)  kind 2: the value
//! ```
//! A new hash gets a new generation, so dropping one is one write however many fields it has; fields of
//! generations that no meta record names are garbage, removed after the drop and, should that have
//! been cut short, before the next hash is made under the key.
//!
//! Source: Kvrocks' encoding of complex types (metadata with a version that its subkeys carry).

use super::{ATTEMPTS_MAX, Context};
use crate::Failure;
use bytes::{BufMut, Bytes, BytesMut};
use std::time::Duration;
use undb_sdk::{Batch, Expect, Expiry, Key, Mutation, PutOptions, Record, WriteOutcome};

/// Kind of a hash's meta record.
pub const KIND_HASH: u32 = 1;
/// Kind of a field.
pub const KIND_FIELD: u32 = 2;
const FIELD: u8 = 1;
const META_VERSION: u8 = 1;

/// The key of a string, or of a hash's meta record.
pub fn top(key: &Bytes) -> Key {
    Key::new(key.clone(), Bytes::new())
}

/// What the meta record of a hash says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash {
    /// Its fields' keys carry it.
    pub generation: u64,
    /// How many fields.
    pub len: u64,
}

impl Hash {
    /// One that was never used under any key.
    pub fn fresh() -> Self {
        Self { generation: rand::random(), len: 0 }
    }

    /// The meta record's value.
    pub fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(17);
        out.put_u8(META_VERSION);
        out.put_u64(self.generation);
        out.put_u64(self.len);
        out.freeze()
    }

    /// From a record of kind 1.
    pub fn decode(value: &[u8]) -> Result<Self, Failure> {
        match value {
            [META_VERSION, rest @ ..] if rest.len() == 16 => {
                let (generation, len) = rest.split_at(8);
                let number = |b: &[u8]| b.iter().fold(0, |n, b| n << 8 | u64::from(*b));
                Ok(Self { generation: number(generation), len: number(len) })
            }
            _ => Err(Failure::new("ERR the hash was written by a newer version of the proxy")),
        }
    }

    /// What the sort keys of its fields begin with.
    pub fn prefix(self) -> Bytes {
        let mut out = BytesMut::with_capacity(9);
        out.put_u8(FIELD);
        out.put_u64(self.generation);
        out.freeze()
    }

    /// A field's key.
    pub fn field(self, key: &Bytes, field: &[u8]) -> Key {
        let mut sort = BytesMut::from(&self.prefix()[..]);
        sort.extend_from_slice(field);
        Key::new(key.clone(), sort.freeze())
    }
}

/// What the sort keys of all fields of all generations begin with.
pub fn any_field() -> Bytes {
    Bytes::from_static(&[FIELD])
}

/// What the sort keys of all fields beside this one begin with.
pub fn generation_prefix(sort: &Bytes) -> Bytes {
    sort.slice(..sort.len().min(9))
}

/// The field's name in a field's sort key.
pub fn field_name(sort: &Bytes) -> Bytes {
    sort.slice(sort.len().min(9)..)
}

/// What lies under a key.
#[derive(Clone, Debug)]
pub enum Item {
    /// Nothing.
    Absent,
    /// A string.
    Text(Record),
    /// A hash.
    Hash(Hash, Record),
}

impl Item {
    /// From its top record.
    pub fn from_record(record: Option<Record>) -> Result<Self, Failure> {
        match record {
            None => Ok(Item::Absent),
            Some(record) if record.kind == KIND_HASH => Ok(Item::Hash(Hash::decode(&record.value)?, record)),
            Some(record) => Ok(Item::Text(record)),
        }
    }

    /// What must still hold for a write that was decided on this.
    pub fn unchanged(&self) -> Expect {
        match self {
            Item::Absent => Expect::Absent,
            Item::Text(record) | Item::Hash(_, record) => Expect::Version(record.version),
        }
    }

    /// The string, or none; a hash is the wrong type.
    pub fn text(self) -> Result<Option<Record>, Failure> {
        match self {
            Item::Absent => Ok(None),
            Item::Text(record) => Ok(Some(record)),
            Item::Hash(..) => Err(Failure::WRONG_TYPE),
        }
    }

    /// The hash, or none; a string is the wrong type.
    pub fn hash(&self) -> Result<Option<Hash>, Failure> {
        match self {
            Item::Absent => Ok(None),
            Item::Hash(hash, _) => Ok(Some(*hash)),
            Item::Text(_) => Err(Failure::WRONG_TYPE),
        }
    }
}

impl Context {
    /// What lies under a key, with its value.
    pub async fn item(&self, key: &Bytes) -> Result<Item, Failure> {
        let mut found = self.keys.get(vec![top(key)], true).await?;
        Item::from_record(found.pop().flatten())
    }

    /// The top records without their values.
    pub async fn heads(&self, keys: &[Bytes]) -> Result<Vec<Option<Record>>, Failure> {
        self.keys.get(keys.iter().map(top).collect(), false).await
    }

    /// Removes the fields of a generation that nothing names any more. Best effort: what is left is
    /// removed before the next hash is made under the key.
    pub async fn drop_generation(&self, key: &Bytes, hash: Hash) {
        if let Err(failure) = self.keys.drop_fields(key.clone(), hash.prefix()).await {
            tracing::debug!(reason = %failure.0, "fields of a dropped hash are left to be swept");
        }
    }

    /// Reads, decides and writes until nobody else came between. `decide` gives what to write (nothing:
    /// only the answer) and the answer.
    pub async fn update<T>(
        &self,
        key: &Bytes,
        mut decide: impl FnMut(Item) -> Result<(Option<Mutation>, T), Failure>,
    ) -> Result<T, Failure> {
        let mut item = self.item(key).await?;
        for attempt in 0..ATTEMPTS_MAX {
            let dropped = item.clone();
            let expect = item.unchanged();
            let (mutation, answer) = decide(item)?;
            let Some(mutation) = mutation else { return Ok(answer) };
            if let WriteOutcome::Applied(_) = self.keys.write(Batch::new().and(mutation.when(expect))).await?
            {
                if let Item::Hash(hash, _) = dropped {
                    self.drop_generation(key, hash).await;
                }
                return Ok(answer);
            }
            back_off(attempt).await;
            item = self.item(key).await?;
        }
        Err(Failure::CONTENDED)
    }
}

/// Waits a little, longer after each loss, so that many writers of one key let each other pass.
pub async fn back_off(attempt: u32) {
    if attempt > 1 {
        let ceiling_us = 200u64 << attempt.min(8);
        tokio::time::sleep(Duration::from_micros(rand::random_range(0..ceiling_us))).await;
    }
}

/// A put of a string that keeps or sets an expiry.
pub fn put_text(key: &Bytes, value: impl Into<Bytes>, expiry: Expiry) -> Mutation {
    Mutation::put_with(top(key), value, PutOptions::new().expiry(expiry))
}
