//! Installing a snapshot: a new generation beside the old one, then one atomic switch of the manifest.
//!
//! A crash before the switch leaves the old generation; what was written is not in the manifest and is deleted at
//! the next open. A crash after it leaves the new one, and the old directory is deleted instead.

use super::entry::{Entry, Place, system_key, user_key};
use super::index::{Change, Index};
use super::ledger::{KeyChange, check_key};
use super::separated::{IndexTree, Rotated, Writer, state_records};
use super::{Applied, Item, Row};
use crate::error::{EngineError, Result};
use crate::gc::codec::Codec;
use crate::gc::data_file::{DataHead, DataWriter};
use crate::manifest::DataRecord;
use std::sync::Arc;

const CHANGES_PER_WRITE: usize = 1024;

/// Replaces the content of `tree`.
pub(super) fn install(
    tree: &IndexTree,
    applied: Applied,
    items: &mut dyn Iterator<Item = Result<Item>>,
) -> Result<()> {
    tree.check_usable()?;
    let shared = &tree.shared;
    let generation = shared.next_generation();
    let dir = shared.tree_dir(tree.group, generation);
    super::create_tree_dir(&*shared.fs, &dir)?;
    let mut build = Build::new(tree, Index::open(&dir, &shared.index)?);
    let built = build.add_all(items).and_then(|()| build.finish(applied.clone()));
    let data_ids: Vec<u64> = build.files.iter().map(|(id, _)| *id).collect();
    let Build { index, writer, files, .. } = build;
    // IMPORTANT: not before, since items come as slowly as a network, and flushes, maintenance and snapshots wait
    // for it; and over the whole switch, so that no flush of the old generation ends in the new one.
    let mut flushing = tree.flushing.lock();
    let switched = built.and_then(|()| {
        shared.commit_data(&files, |manifest| {
            if let Some(record) = manifest.trees.get_mut(&tree.group) {
                record.generation = generation;
            }
        })
    });
    if let Err(error) = switched {
        shared.finished(data_ids);
        shared.doom(dir, Arc::downgrade(&index) as _);
        return Err(error);
    }
    let old_dir = {
        let mut current = tree.writer.lock();
        *flushing = None;
        *tree.durable.write() = Rotated { log_id: applied.log_id, live: writer.ledger.live.clone() };
        *current = writer;
        *tree.applied.write() = applied;
        let old = std::mem::replace(&mut *tree.index.write(), index);
        let old_generation = std::mem::replace(&mut *tree.generation.lock(), generation);
        (shared.tree_dir(tree.group, old_generation), Arc::downgrade(&old))
    };
    shared.finished(data_ids);
    shared.doom(old_dir.0, old_dir.1 as _);
    Ok(())
}

/// A generation in the making.
struct Build<'a> {
    tree: &'a IndexTree,
    index: Arc<Index>,
    writer: Writer,
    changes: Vec<Change>,
    data: Option<(u64, DataWriter)>,
    files: Vec<(u64, DataRecord)>,
}

impl<'a> Build<'a> {
    fn new(tree: &'a IndexTree, index: Index) -> Self {
        let index = Arc::new(index);
        Build { tree, index, writer: Writer::default(), changes: Vec::new(), data: None, files: Vec::new() }
    }

    fn add_all(&mut self, items: &mut dyn Iterator<Item = Result<Item>>) -> Result<()> {
        for item in items {
            self.add(item?)?;
        }
        Ok(())
    }

    fn add(&mut self, item: Item) -> Result<()> {
        let change = match item {
            Item::System(key, value) => {
                check_key(&key)?;
                (system_key(&key), Some(value.to_vec()))
            }
            Item::Row(row) => self.row(row)?,
        };
        self.changes.push(change);
        if self.changes.len() >= CHANGES_PER_WRITE {
            self.write_changes()?;
        }
        Ok(())
    }

    fn row(&mut self, row: Row) -> Result<Change> {
        check_key(&row.key)?;
        let value = row.value.ok_or_else(|| EngineError::corrupt("snapshot", "row without a value"))?;
        let value_len =
            u32::try_from(value.len()).map_err(|_| EngineError::corrupt("snapshot", "huge value"))?;
        let meta = super::RecordMeta { value_len, ..row.meta };
        let place = if value_len >= self.tree.threshold().max(1) {
            let group = self.tree.group;
            Place::At(self.writer_of_data()?.append(group, &row.key, &value)?)
        } else {
            Place::Inline(value)
        };
        let entry = Entry { meta, place };
        let change = (user_key(&row.key), Some(entry.encode()));
        self.writer.ledger.record(&KeyChange { key: row.key, old: None, new: Some(entry) })?;
        Ok(change)
    }

    fn writer_of_data(&mut self) -> Result<&mut DataWriter> {
        let full = self.tree.shared.options.data_file_bytes;
        if self.data.as_ref().is_some_and(|(_, writer)| writer.bytes() >= full) {
            self.close_data()?;
        }
        if self.data.is_none() {
            let head = |id| DataHead { id, class: 0, created_ms: 0, codec: Codec::Raw };
            let (id, writer) = self.tree.shared.create_data(head)?;
            self.data = Some((id, writer));
        }
        let (_, writer) = self.data.as_mut().expect("just made");
        Ok(writer)
    }

    fn close_data(&mut self) -> Result<()> {
        let Some((id, writer)) = self.data.take() else { return Ok(()) };
        // Listed first: if the rest fails, the file is still released from its protection.
        self.files.push((id, DataRecord { bytes: 0, record_bytes: 0, created_ms: 0, class: 0 }));
        let size = writer.finish().map_err(|e| self.tree.shared.poison_unless_full(e))?;
        if let Some((_, record)) = self.files.last_mut() {
            (record.bytes, record.record_bytes) = (size.bytes, size.record_bytes);
        }
        Ok(())
    }

    fn write_changes(&mut self) -> Result<()> {
        self.index.write(std::mem::take(&mut self.changes));
        if self.index.active_bytes() >= self.tree.shared.options.memtable_bytes {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let step = |name| self.tree.shared.fs.step(name).map_err(|e| EngineError::io(name, e));
        step("engine.install.flush.begin")?;
        self.index.rotate();
        self.index.flush_sealed()?;
        step("engine.install.flush.end")
    }

    fn finish(&mut self, applied: Applied) -> Result<()> {
        self.write_changes()?;
        self.close_data()?;
        self.writer.applied = applied;
        self.index.write(state_records(&mut self.writer));
        self.flush()
    }
}
