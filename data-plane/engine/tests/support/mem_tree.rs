//! A tree in memory that loses what was not flushed: the simplest thing that keeps the contract of `Tree`.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use undb_engine::Result;
use undb_engine::tree::*;
use undb_types::{KeyRange, LogId};

#[derive(Clone, Default)]
struct Content {
    rows: BTreeMap<Bytes, (RecordMeta, Bytes)>,
    system: BTreeMap<Bytes, Bytes>,
    applied: Applied,
}

/// What survives.
#[derive(Default)]
pub struct MemDisk(Mutex<Content>);

pub struct MemTree {
    disk: Arc<MemDisk>,
    content: Mutex<Content>,
}

impl MemTree {
    pub fn open(disk: Arc<MemDisk>) -> MemTree {
        let content = Mutex::new(disk.0.lock().clone());
        MemTree { disk, content }
    }
}

fn row(key: &Bytes, (meta, value): &(RecordMeta, Bytes), keys_only: bool) -> Row {
    Row { key: key.clone(), meta: *meta, value: (!keys_only).then(|| value.clone()) }
}

impl Content {
    fn system_page(&self, prefix: &[u8], start_after: Option<&[u8]>, limit: usize) -> Vec<(Bytes, Bytes)> {
        let from = match start_after {
            Some(key) => Bound::Excluded(Bytes::copy_from_slice(key)),
            None => Bound::Included(Bytes::copy_from_slice(prefix)),
        };
        let records = self.system.range((from, Bound::Unbounded));
        let under = records.skip_while(|(k, _)| &k[..] < prefix).take_while(|(k, _)| k.starts_with(prefix));
        under.take(limit).map(|(k, v)| (k.clone(), v.clone())).collect()
    }
}

impl Tree for MemTree {
    fn applied(&self) -> Applied {
        self.content.lock().applied.clone()
    }

    fn durable(&self) -> Option<LogId> {
        self.disk.0.lock().applied.log_id
    }

    fn get(&self, key: &[u8]) -> Result<Option<Row>> {
        let content = self.content.lock();
        Ok(content.rows.get_key_value(key).map(|(key, record)| row(key, record, false)))
    }

    fn meta(&self, key: &[u8]) -> Result<Option<RecordMeta>> {
        Ok(self.content.lock().rows.get(key).map(|(meta, _)| *meta))
    }

    fn scan(&self, range: &KeyRange, reverse: bool, keys_only: bool) -> Result<Rows<'_>> {
        let content = self.content.lock();
        let inside = content.rows.iter().filter(|(key, _)| range.contains(key));
        let mut rows: Vec<_> = inside.map(|(key, record)| Ok(row(key, record, keys_only))).collect();
        if reverse {
            rows.reverse();
        }
        Ok(Box::new(rows.into_iter()))
    }

    fn system(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.content.lock().system.get(key).cloned())
    }

    fn scan_system(
        &self,
        prefix: &[u8],
        start_after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<(Bytes, Bytes)>> {
        Ok(self.content.lock().system_page(prefix, start_after, limit))
    }

    fn write(&self, batch: TreeBatch) -> Result<()> {
        let mut content = self.content.lock();
        for op in batch.ops {
            match op {
                TreeOp::Put { key, meta, value, .. } => {
                    content.rows.insert(key, (meta, value));
                }
                TreeOp::SetMeta { key, meta } => {
                    if let Some(record) = content.rows.get_mut(&key) {
                        record.0 = meta;
                    }
                }
                TreeOp::Delete { key } => {
                    content.rows.remove(&key);
                }
            }
        }
        for (key, value) in batch.system {
            match value {
                Some(value) => content.system.insert(key, value),
                None => content.system.remove(&key),
            };
        }
        content.applied = batch.applied;
        Ok(())
    }

    fn flush(&self) -> Result<Option<LogId>> {
        let content = self.content.lock();
        *self.disk.0.lock() = content.clone();
        Ok(content.applied.log_id)
    }

    fn snapshot(&self) -> Result<Arc<dyn TreeSnapshot>> {
        self.flush()?;
        Ok(Arc::new(MemSnapshot(self.content.lock().clone())))
    }

    fn install(&self, applied: Applied, items: &mut dyn Iterator<Item = Result<Item>>) -> Result<()> {
        let mut next = Content { applied, ..Default::default() };
        for item in items {
            match item? {
                Item::Row(Row { key, meta, value }) => {
                    next.rows.insert(key, (meta, value.unwrap_or_default()));
                }
                Item::System(key, value) => {
                    next.system.insert(key, value);
                }
            }
        }
        *self.content.lock() = next;
        self.flush()?;
        Ok(())
    }

    fn stats(&self) -> TreeStats {
        let content = self.content.lock();
        let live_bytes = content.rows.iter().map(|(key, (_, value))| (key.len() + value.len()) as u64).sum();
        TreeStats { keys: content.rows.len() as u64, live_bytes, ..Default::default() }
    }

    fn maintain(&self) -> Result<bool> {
        Ok(false)
    }
}

struct MemSnapshot(Content);

impl TreeSnapshot for MemSnapshot {
    fn applied(&self) -> Applied {
        self.0.applied.clone()
    }

    fn rows(&self, start_after: Option<&[u8]>) -> Result<Rows<'_>> {
        let from = match start_after {
            Some(key) => Bound::Excluded(Bytes::copy_from_slice(key)),
            None => Bound::Unbounded,
        };
        let rows = self.0.rows.range((from, Bound::Unbounded));
        Ok(Box::new(rows.map(|(key, record)| Ok(row(key, record, false)))))
    }

    fn system(&self, start_after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Bytes)>> {
        Ok(self.0.system_page(b"", start_after, limit))
    }
}
