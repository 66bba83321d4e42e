//! Moving live values out of victims.
//!
//! ```text
//! survivors (index scan) ─▶ copies, sorted by group and key, in new data files ─▶ sync files, directory, manifest
//!   ─▶ swap of pointers where the old one is still current ─▶ flush of those trees ─▶ victims are dead
//! ```
//! A crash anywhere leaves the old pointers with the old files, or the new with the new: victims go only after the
//! flush. A file whose pointers never got in is dead and goes in a later step.

use super::codec::Codec;
use super::data_file::{DataHead, DataWriter, data_path};
use super::victim::Candidate;
use super::{GcReport, GcState};
use crate::engine::{Engine, skip_gone};
use crate::error::{EngineError, Result};
use crate::manifest::DataRecord;
use crate::tree::entry::{Entry, Pointer};
use crate::tree::separated::{IndexTree, Move};
use crate::tree::{Origin, SegmentRef, Tree};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use undb_types::GroupId;

/// Age classes of data files: 0 received or loaded, then one more per survived collection.
const CLASS_MAX: u8 = 4;
const SAMPLE_BYTES_MAX: usize = 1 << 20;
const SAMPLE_VALUE_BYTES_MAX: usize = 64 << 10;

/// A live value in a victim.
struct Survivor {
    group: GroupId,
    key: Bytes,
    entry: Entry,
    old: Pointer,
}

/// The copies of one class.
struct Copies<'a> {
    engine: &'a Engine,
    head: (u8, u64, Codec),
    open: Option<(u64, DataWriter)>,
    files: Vec<(u64, DataRecord)>,
}

impl Engine {
    /// Moves everything alive out of the victims.
    pub(super) fn relocate(
        &self,
        state: &mut GcState,
        victims: &[Candidate],
        now_ms: u64,
        report: &mut GcReport,
    ) -> Result<()> {
        for (class, victims) in self.by_class(victims) {
            let survivors = self.survivors(&victims)?;
            let codec = self.choose_codec(&survivors);
            let mut copies =
                Copies { engine: self, head: (class, now_ms, codec), open: None, files: Vec::new() };
            let copied = copies.copy(state, &survivors, report).and_then(|moves| {
                copies.close()?;
                Ok(moves)
            });
            let ids = copies.ids();
            let moved = copied.and_then(|moves| {
                self.shared.commit_data(&copies.files, |_| {})?;
                self.swap_and_flush(moves, report)
            });
            if moved.is_err() {
                copies.discard_uncommitted();
            }
            self.shared.finished(ids);
            moved?;
            tracing::debug!(class, victims = victims.len(), survivors = survivors.len(), "values moved");
        }
        Ok(())
    }

    fn by_class(&self, victims: &[Candidate]) -> BTreeMap<u8, BTreeSet<SegmentRef>> {
        let manifest = self.shared.manifest();
        let mut classes = BTreeMap::<u8, BTreeSet<SegmentRef>>::new();
        for victim in victims {
            let class = match victim.segment.origin {
                Origin::Log => 1,
                Origin::Data => {
                    manifest.data.get(&victim.segment.id).map_or(1, |d| (d.class + 1).min(CLASS_MAX))
                }
            };
            classes.entry(class).or_default().insert(victim.segment);
        }
        classes
    }

    fn survivors(&self, victims: &BTreeSet<SegmentRef>) -> Result<Vec<Survivor>> {
        let mut out = Vec::new();
        for (group, handle) in self.handles() {
            let Some(tree) = handle.index() else { continue };
            // The exact counts say which trees are worth a scan.
            if !tree.live().0.keys().any(|segment| victims.contains(segment)) {
                continue;
            }
            for (key, entry) in tree.survivors(|segment| victims.contains(&segment))? {
                if let Some(old) = entry.pointer() {
                    out.push(Survivor { group, key, entry, old });
                }
            }
        }
        Ok(out)
    }

    fn choose_codec(&self, survivors: &[Survivor]) -> Codec {
        let total_bytes: u64 = survivors.iter().map(|s| u64::from(s.entry.meta.value_len)).sum();
        let mean_bytes = (total_bytes / survivors.len().max(1) as u64).max(1);
        let wanted = (SAMPLE_BYTES_MAX as u64 / mean_bytes).clamp(1, 4096) as usize;
        let step = (survivors.len() / wanted).max(1);
        let mut samples = Vec::new();
        let mut left = SAMPLE_BYTES_MAX;
        for survivor in survivors.iter().step_by(step) {
            // What cannot be read is met again, and reported, when it is copied.
            let Ok(value) = self.value(survivor) else { continue };
            let value = &value[..value.len().min(SAMPLE_VALUE_BYTES_MAX)];
            if value.is_empty() {
                continue;
            }
            samples.push(value.to_vec());
            left = left.saturating_sub(value.len());
            if left == 0 {
                break;
            }
        }
        Codec::choose(&samples, total_bytes)
    }

    fn value(&self, survivor: &Survivor) -> Result<Bytes> {
        self.shared.values.read_uncached(&survivor.key, survivor.old, survivor.entry.meta.value_len)
    }

    fn swap_and_flush(&self, moves: BTreeMap<GroupId, Vec<Move>>, report: &mut GcReport) -> Result<()> {
        let trees: BTreeMap<GroupId, Arc<IndexTree>> =
            self.handles().into_iter().filter_map(|(g, h)| Some((g, Arc::clone(h.index()?)))).collect();
        for (group, moves) in moves {
            let Some(tree) = trees.get(&group) else { continue };
            let swapped = skip_gone(tree.swap(&moves))?.unwrap_or(0);
            report.moved_values += swapped as u64;
            report.outdated_values += (moves.len() - swapped) as u64;
            skip_gone(tree.flush())?;
        }
        Ok(())
    }
}

impl Copies<'_> {
    fn copy(
        &mut self,
        state: &mut GcState,
        survivors: &[Survivor],
        report: &mut GcReport,
    ) -> Result<BTreeMap<GroupId, Vec<Move>>> {
        let mut moves = BTreeMap::<GroupId, Vec<Move>>::new();
        for survivor in survivors {
            let value = match self.engine.value(survivor) {
                Ok(value) => value,
                Err(EngineError::Corrupt { what, detail }) => {
                    // Its file stays, for repair; it is not chosen again.
                    tracing::error!(segment = ?survivor.old.segment, what, detail, "unreadable value");
                    state.unreadable.insert(survivor.old.segment);
                    report.unreadable_values += 1;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let new = self.writer()?.append(survivor.group, &survivor.key, &value)?;
            report.moved_bytes += u64::from(new.record_len);
            let (key, version, old) = (survivor.key.clone(), survivor.entry.meta.version, survivor.old);
            moves.entry(survivor.group).or_default().push(Move { key, version, old, new });
        }
        Ok(moves)
    }

    fn writer(&mut self) -> Result<&mut DataWriter> {
        let full = self.engine.shared.options.data_file_bytes;
        if self.open.as_ref().is_some_and(|(_, writer)| writer.bytes() >= full) {
            self.close()?;
        }
        if self.open.is_none() {
            let (class, created_ms, codec) = self.head.clone();
            self.open =
                Some(self.engine.shared.create_data(|id| DataHead { id, class, created_ms, codec })?);
        }
        let (_, writer) = self.open.as_mut().expect("just made");
        Ok(writer)
    }

    fn close(&mut self) -> Result<()> {
        let Some((id, writer)) = self.open.take() else { return Ok(()) };
        let (class, created_ms, _) = self.head;
        self.files.push((id, DataRecord { bytes: 0, record_bytes: 0, created_ms, class }));
        let size = writer.finish().map_err(|e| self.engine.shared.poison_unless_full(e))?;
        if let Some((_, record)) = self.files.last_mut() {
            (record.bytes, record.record_bytes) = (size.bytes, size.record_bytes);
        }
        Ok(())
    }

    fn ids(&self) -> Vec<u64> {
        self.files.iter().map(|(id, _)| *id).chain(self.open.iter().map(|(id, _)| *id)).collect()
    }

    /// After a failure: frees the space of copies that nobody can point at. What stays is deleted at the next open.
    fn discard_uncommitted(&self) {
        let manifest = self.engine.shared.manifest();
        for id in self.ids().into_iter().filter(|id| !manifest.data.contains_key(id)) {
            if let Err(error) =
                self.engine.shared.fs.remove_file(&data_path(&self.engine.shared.data_dir(), id))
            {
                tracing::warn!(id, %error, "abandoned data file stays until the next open");
            }
        }
    }
}
