//! What a batch changes, and the exact counts it leaves.
//!
//! Garbage is counted here, at apply time, by looking the old entry up; compaction counts nothing.

use super::entry::{Counts, Entry, Place, Pointer};
use super::{Origin, RecordMeta, SegmentRef, TREE_KEY_BYTES_MAX, TreeOp, ValueAt};
use crate::error::{EngineError, Result};
use crate::record::record_len;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What becomes of one key.
#[derive(Clone, Debug)]
pub struct KeyChange {
    /// The key.
    pub key: Bytes,
    /// Before.
    pub old: Option<Entry>,
    /// After.
    pub new: Option<Entry>,
}

/// Folds operations into one change per key, in order of first touch.
pub fn fold(
    ops: Vec<TreeOp>,
    threshold: u32,
    mut lookup: impl FnMut(&[u8]) -> Result<Option<Entry>>,
) -> Result<Vec<KeyChange>> {
    let mut changes: Vec<KeyChange> = Vec::with_capacity(ops.len());
    let mut place_of: HashMap<Bytes, usize> = HashMap::with_capacity(ops.len());
    for op in ops {
        let key = op.key().clone();
        check_key(&key)?;
        let at = match place_of.get(&key) {
            Some(&at) => at,
            None => {
                let old = lookup(&key)?;
                changes.push(KeyChange { key: key.clone(), new: old.clone(), old });
                place_of.insert(key, changes.len() - 1);
                changes.len() - 1
            }
        };
        let change = &mut changes[at];
        match op {
            TreeOp::Put { key, meta, value, at } => {
                change.new = Some(entry_of(&key, meta, value, at, threshold));
            }
            TreeOp::SetMeta { meta, .. } => {
                if let Some(entry) = &mut change.new {
                    entry.meta = RecordMeta { value_len: entry.meta.value_len, ..meta };
                }
            }
            TreeOp::Delete { .. } => change.new = None,
        }
    }
    changes.retain(|change| change.old != change.new);
    Ok(changes)
}

/// Refuses a key that the index cannot hold.
pub fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > TREE_KEY_BYTES_MAX {
        return Err(EngineError::KeyLength { len: key.len(), max: TREE_KEY_BYTES_MAX });
    }
    Ok(())
}

fn entry_of(key: &[u8], meta: RecordMeta, value: Bytes, at: Option<ValueAt>, threshold: u32) -> Entry {
    let value_len = u32::try_from(value.len()).expect("values are bounded far below 4 GiB");
    let meta = RecordMeta { value_len, ..meta };
    let place = match at {
        // An empty value has nothing to point at.
        Some(at) if value_len >= threshold.max(1) => Place::At(Pointer {
            segment: SegmentRef { origin: Origin::Log, id: at.segment },
            offset: at.offset,
            record_len: u32::try_from(record_len(key.len(), value.len())).expect("bounded likewise"),
        }),
        _ => Place::Inline(value),
    };
    Entry { meta, place }
}

/// Exact counts of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Keys and bytes.
    pub counts: Counts,
    /// Live record bytes by segment; no zeroes.
    pub live: BTreeMap<SegmentRef, u64>,
    /// Segments whose live bytes changed since they were last written down.
    pub touched: BTreeSet<SegmentRef>,
}

impl Ledger {
    /// Counts what a change does. An error means that the counts were wrong before.
    pub fn record(&mut self, change: &KeyChange) -> Result<()> {
        let bytes = |entry: &Entry| change.key.len() as u64 + u64::from(entry.meta.value_len);
        if let Some(old) = &change.old {
            self.counts.keys = less(self.counts.keys, 1)?;
            self.counts.live_bytes = less(self.counts.live_bytes, bytes(old))?;
            if let Some(pointer) = old.pointer() {
                self.release(pointer)?;
            }
        }
        if let Some(new) = &change.new {
            self.counts.keys += 1;
            self.counts.live_bytes += bytes(new);
            if let Some(pointer) = new.pointer() {
                *self.live.entry(pointer.segment).or_default() += u64::from(pointer.record_len);
                self.touched.insert(pointer.segment);
            }
        }
        Ok(())
    }

    fn release(&mut self, pointer: Pointer) -> Result<()> {
        let before = self.live.get(&pointer.segment).copied().unwrap_or(0);
        let after = less(before, pointer.record_len.into())?;
        if after == 0 {
            self.live.remove(&pointer.segment);
        } else {
            self.live.insert(pointer.segment, after);
        }
        self.touched.insert(pointer.segment);
        Ok(())
    }
}

fn less(count: u64, by: u64) -> Result<u64> {
    count.checked_sub(by).ok_or_else(|| EngineError::corrupt("live counts", format!("{count} less {by}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &'static [u8], value: &'static [u8], at: Option<u64>) -> TreeOp {
        let at = at.map(|offset| ValueAt { segment: 1, offset });
        let (key, value) = (Bytes::from_static(key), Bytes::from_static(value));
        TreeOp::Put { key, meta: RecordMeta { version: 9, ..Default::default() }, value, at }
    }

    #[test]
    fn the_last_operation_on_a_key_wins_and_set_meta_keeps_the_value() {
        let meta = RecordMeta { version: 10, expire_at_ms: 5, kind: 0, value_len: 999 };
        let ops = vec![
            put(b"a", b"first", None),
            put(b"a", b"last", None),
            TreeOp::SetMeta { key: Bytes::from_static(b"a"), meta },
            put(b"b", b"x", None),
            TreeOp::Delete { key: Bytes::from_static(b"b") },
            TreeOp::SetMeta { key: Bytes::from_static(b"absent"), meta },
        ];
        let changes = fold(ops, 100, |_| Ok(None)).expect("fold");
        assert_eq!(changes.len(), 1);
        let entry = changes[0].new.as_ref().expect("a put");
        assert_eq!(entry.place, Place::Inline(Bytes::from_static(b"last")));
        assert_eq!(entry.meta, RecordMeta { value_len: 4, ..meta });
    }

    #[test]
    fn values_from_the_threshold_on_stay_where_they_are() {
        for (threshold, pointed) in [(0, true), (4, true), (5, true), (6, false), (u32::MAX, false)] {
            let changes = fold(vec![put(b"a", b"value", Some(7))], threshold, |_| Ok(None)).expect("fold");
            let entry = changes[0].new.as_ref().expect("a put");
            assert_eq!(entry.pointer().is_some(), pointed, "threshold {threshold}");
        }
        let changes = fold(vec![put(b"a", b"", Some(7))], 0, |_| Ok(None)).expect("fold");
        assert!(changes[0].new.as_ref().expect("a put").pointer().is_none(), "an empty value is inline");
    }

    #[test]
    fn counts_follow_overwrites_and_deletes_exactly() {
        let mut ledger = Ledger::default();
        let first = fold(vec![put(b"a", b"value", Some(0))], 1, |_| Ok(None)).expect("fold");
        ledger.record(&first[0]).expect("count");
        let segment = SegmentRef { origin: Origin::Log, id: 1 };
        assert_eq!(ledger.live.get(&segment), Some(&18));
        assert_eq!(ledger.counts, Counts { keys: 1, live_bytes: 6 });
        let delete = vec![TreeOp::Delete { key: Bytes::from_static(b"a") }];
        let gone = fold(delete, 1, |_| Ok(first[0].new.clone())).expect("fold");
        ledger.record(&gone[0]).expect("count");
        assert!(ledger.live.is_empty() && ledger.touched.contains(&segment));
        assert_eq!(ledger.counts, Counts::default());
        assert!(ledger.record(&gone[0]).is_err(), "a second release is noticed");
    }

    #[test]
    fn empty_and_oversized_keys_are_refused() {
        for key in [Bytes::new(), Bytes::from(vec![b'k'; TREE_KEY_BYTES_MAX + 1])] {
            let refused = fold(vec![TreeOp::Delete { key }], 1, |_| Ok(None));
            assert!(matches!(refused, Err(EngineError::KeyLength { .. })));
        }
        let longest = Bytes::from(vec![b'k'; TREE_KEY_BYTES_MAX]);
        assert!(fold(vec![TreeOp::Delete { key: longest }], 1, |_| Ok(None)).is_ok());
    }
}
