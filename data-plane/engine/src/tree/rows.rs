//! Rows out of an index: scans, and snapshots at P.

use super::entry::{Entry, SYSTEM_PREFIX, USER_PREFIX, system_key, user_key};
use super::index::{Pair, Range, View};
use super::shared::Shared;
use super::{Applied, Row, Rows, TreeSnapshot};
use crate::error::{EngineError, Result};
use crate::gc::pins::Pin;
use bytes::Bytes;
use std::ops::Bound;
use std::sync::Arc;
use undb_types::{KeyRange, prefix_end};

/// Bounds in the index.
pub type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The index bounds of a range of user keys.
pub fn user_bounds(range: &KeyRange) -> Bounds {
    let high = if range.end.is_empty() { vec![USER_PREFIX[0] + 1] } else { user_key(&range.end) };
    (Bound::Included(user_key(&range.start)), Bound::Excluded(high))
}

/// The index bounds of all user keys, from behind a key.
pub fn user_bounds_after(start_after: Option<&[u8]>) -> Bounds {
    let (low, high) = user_bounds(&KeyRange::all());
    (start_after.map_or(low, |key| Bound::Excluded(user_key(key))), high)
}

/// The index bounds of the system records with a prefix, from behind a key.
pub fn system_bounds(prefix: &[u8], start_after: Option<&[u8]>) -> Bounds {
    let first = system_key(prefix);
    let high = prefix_end(&first).to_vec();
    let low = match start_after.map(system_key) {
        Some(after) if after >= first => Bound::Excluded(after),
        _ => Bound::Included(first),
    };
    (low, Bound::Excluded(high))
}

/// Reads the first system records out of a range of pairs.
pub fn system_rows(pairs: Range, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
    let strip = |pair: Result<Pair>| {
        let (key, value) = pair?;
        let key = key.strip_prefix(&SYSTEM_PREFIX[..]).unwrap_or(&key);
        Ok((Bytes::copy_from_slice(key), Bytes::copy_from_slice(&value)))
    };
    pairs.take(limit).map(strip).collect()
}

/// Which end, and whether with values.
#[derive(Clone, Copy, Debug)]
pub struct RowOrder {
    /// From the last key on.
    pub reverse: bool,
    /// Read no values.
    pub keys_only: bool,
}

/// Rows of a range. Holds a pin, so that every pointer it meets can be read.
pub struct RowIter {
    /// The index entries.
    pub pairs: Range,
    /// Direction and depth.
    pub order: RowOrder,
    /// Where values are read.
    pub shared: Arc<Shared>,
    /// Keeps the files of the index and of the values.
    pub _holds: (Option<Pin>, Arc<super::index::Index>),
}

impl RowIter {
    fn row(&self, pair: Result<Pair>) -> Result<Row> {
        let (key, value) = pair?;
        let key = Bytes::copy_from_slice(user_part(&key)?);
        let entry = Entry::decode(&value)?;
        let value = match self.order.keys_only {
            true => None,
            false => Some(self.shared.values.read(&key, &entry)?),
        };
        Ok(Row { key, meta: entry.meta, value })
    }
}

/// The user key in an index key.
pub fn user_part(index_key: &[u8]) -> Result<&[u8]> {
    index_key.strip_prefix(&USER_PREFIX[..]).ok_or_else(|| EngineError::corrupt("index", "not a user key"))
}

impl Iterator for RowIter {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Self::Item> {
        let pair = if self.order.reverse { self.pairs.next_back() } else { self.pairs.next() }?;
        Some(self.row(pair))
    }
}

/// A view of an index at P.
pub struct IndexSnapshot {
    pub(super) applied: Applied,
    pub(super) view: View,
    pub(super) index: Arc<super::index::Index>,
    pub(super) shared: Arc<Shared>,
    // Dropped last: the view's pointers are readable as long as it is.
    pub(super) _pin: Pin,
}

impl TreeSnapshot for IndexSnapshot {
    fn applied(&self) -> Applied {
        self.applied.clone()
    }

    fn rows(&self, start_after: Option<&[u8]>) -> Result<Rows<'_>> {
        let (low, high) = user_bounds_after(start_after);
        Ok(Box::new(RowIter {
            pairs: self.view.range(low, high),
            order: RowOrder { reverse: false, keys_only: false },
            shared: Arc::clone(&self.shared),
            _holds: (None, Arc::clone(&self.index)),
        }))
    }

    fn system(&self, start_after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        let (low, high) = system_bounds(b"", start_after);
        system_rows(self.view.range(low, high), limit)
    }
}
