//! An entry's overlay to one tree batch, with the expiry index and the counts kept in step.

use super::expiry::index_key;
use super::overlay::{Current, Slot, Value};
use super::state::State;
use crate::tree::{RecordMeta, TreeBatch, TreeOp};
use bytes::Bytes;
use std::collections::BTreeMap;

/// System records that an entry writes or removes.
pub(super) type SystemChanges = BTreeMap<Bytes, Option<Bytes>>;

pub(super) fn batch(slots: BTreeMap<Bytes, Slot>, mut system: SystemChanges, state: &mut State) -> TreeBatch {
    let mut ops = Vec::with_capacity(slots.len());
    for (key, slot) in slots {
        let now = slot.current.as_ref().map(|current| current.meta);
        count(state, &key, slot.stored, now);
        index(&mut system, &key, slot.stored, now);
        match (slot.stored, slot.current) {
            (None, None) => {}
            (Some(_), None) => ops.push(TreeOp::Delete { key }),
            (_, Some(Current { meta, value: Value::New(value, at) })) => {
                ops.push(TreeOp::Put { key, meta, value, at });
            }
            (stored, Some(Current { meta, value: Value::Stored })) => {
                if stored != Some(meta) {
                    ops.push(TreeOp::SetMeta { key, meta });
                }
            }
        }
    }
    TreeBatch { ops, system: system.into_iter().collect(), applied: Default::default() }
}

fn count(state: &mut State, key: &[u8], stored: Option<RecordMeta>, now: Option<RecordMeta>) {
    let bytes = |meta: RecordMeta| key.len() as u64 + u64::from(meta.value_len);
    let timed = |meta: RecordMeta| u64::from(meta.expire_at_ms != 0);
    if let Some(meta) = now {
        state.keys += 1;
        state.bytes += bytes(meta);
        state.timed_keys += timed(meta);
    }
    if let Some(meta) = stored {
        assert!(
            state.keys > 0 && state.bytes >= bytes(meta) && state.timed_keys >= timed(meta),
            "the counts {state:?} lack a record that the tree holds"
        );
        state.keys -= 1;
        state.bytes -= bytes(meta);
        state.timed_keys -= timed(meta);
    }
}

fn index(system: &mut SystemChanges, key: &Bytes, stored: Option<RecordMeta>, now: Option<RecordMeta>) {
    let expiry = |meta: Option<RecordMeta>| meta.map_or(0, |meta| meta.expire_at_ms);
    let (before, after) = (expiry(stored), expiry(now));
    if before == after {
        return;
    }
    if before != 0 {
        system.insert(index_key(before, key), None);
    }
    if after != 0 {
        system.insert(index_key(after, key), Some(key.clone()));
    }
}
