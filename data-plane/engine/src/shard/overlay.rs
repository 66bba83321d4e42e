//! What an entry has changed so far, over the tree: the command that runs, over the commands before it.

use super::expiry::expired;
use crate::error::EngineError;
use crate::tree::{RecordMeta, Row, Tree, ValueAt};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A key that the entry has touched.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// What the tree holds.
    pub stored: Option<RecordMeta>,
    /// What it will hold.
    pub current: Option<Current>,
}

/// A record as it will be.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub meta: RecordMeta,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// The tree's; it stays.
    Stored,
    /// A new one, and where the log has it.
    New(Bytes, Option<ValueAt>),
}

impl Slot {
    /// The record, unless it has expired.
    pub(super) fn live(&self, now_ms: u64) -> Option<&Current> {
        self.current.as_ref().filter(|current| !expired(current.meta.expire_at_ms, now_ms))
    }
}

#[derive(Debug, Default)]
pub(super) struct Overlay {
    /// Changes of the commands before.
    entry: BTreeMap<Bytes, Slot>,
    /// Changes of the command that runs.
    command: BTreeMap<Bytes, Slot>,
}

impl Overlay {
    /// The key as the command that runs sees it.
    pub(super) fn load(&self, tree: &dyn Tree, key: &[u8]) -> Result<Slot, EngineError> {
        if let Some(slot) = self.command.get(key).or_else(|| self.entry.get(key)) {
            return Ok(slot.clone());
        }
        // The empty key is where a delete-range may begin; no record has it.
        let stored = if key.is_empty() { None } else { tree.meta(key)? };
        Ok(Slot { stored, current: stored.map(|meta| Current { meta, value: Value::Stored }) })
    }

    pub(super) fn set(&mut self, key: Bytes, slot: Slot) {
        self.command.insert(key, slot);
    }

    /// The command's changes become the entry's.
    pub(super) fn commit(&mut self) {
        self.entry.append(&mut self.command);
    }

    /// The command changed nothing.
    pub(super) fn abort(&mut self) {
        self.command.clear();
    }

    /// The value of a record that `load` answered.
    pub(super) fn value(&self, tree: &dyn Tree, key: &[u8], current: &Current) -> Result<Bytes, EngineError> {
        if let Value::New(bytes, _) = &current.value {
            return Ok(bytes.clone());
        }
        match tree.get(key)? {
            Some(Row { value: Some(value), .. }) => Ok(value),
            _ => Err(EngineError::corrupt("tree", "a key has a record but no value")),
        }
    }

    /// The first `limit` keys from `start` to `end` (empty: no bound) that hold a record, expired or not.
    pub(super) fn keys(
        &self,
        tree: &dyn Tree,
        range: &undb_types::KeyRange,
        limit: usize,
    ) -> Result<Vec<Bytes>, EngineError> {
        let touched: BTreeMap<&Bytes, &Slot> = [&self.entry, &self.command]
            .into_iter()
            .flat_map(|layer| layer.range(range.start.clone()..))
            .filter(|(key, _)| range.contains(key))
            .collect();
        let mut keys: Vec<Bytes> = Vec::new();
        for row in tree.scan(range, false, true)? {
            let row = row?;
            if !touched.contains_key(&row.key) {
                keys.push(row.key);
            }
            if keys.len() == limit {
                break;
            }
        }
        keys.extend(touched.iter().filter(|(_, slot)| slot.current.is_some()).map(|(key, _)| (*key).clone()));
        keys.sort_unstable();
        keys.truncate(limit);
        Ok(keys)
    }

    /// Every key that the entry touched.
    pub(super) fn into_slots(self) -> BTreeMap<Bytes, Slot> {
        self.entry
    }
}
