//! The expiry index: one system record per record that expires, ordered by when.
//!
//! ```text
//! 'x' | expire_at_ms u64 BE | xxh3_128(key) BE  ->  key
//! ```
//! The hash keeps index keys short however long the key is; the value says which key is meant.

use crate::command::FormatError;
use bytes::{BufMut, Bytes};

/// What the keys of the index begin with.
pub(super) const PREFIX: &[u8] = b"x";

pub(super) fn index_key(expire_at_ms: u64, key: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(25);
    out.put_slice(PREFIX);
    out.put_u64(expire_at_ms);
    out.put_u128(xxhash_rust::xxh3::xxh3_128(key));
    out.into()
}

/// When the record behind an index key expires.
pub(super) fn expire_at_ms(index_key: &[u8]) -> Result<u64, FormatError> {
    let what = "expiry index key";
    let bytes = index_key.get(PREFIX.len()..).and_then(|rest| rest.first_chunk::<8>());
    bytes.map(|b| u64::from_be_bytes(*b)).ok_or(FormatError::Short { what, at: index_key.len() })
}

/// True when a record with this expiry is gone at `now_ms`.
pub(super) fn expired(expire_at_ms: u64, now_ms: u64) -> bool {
    expire_at_ms != 0 && expire_at_ms <= now_ms
}
