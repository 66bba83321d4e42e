//! One step of garbage collection: delete what is dead, then move what is alive if the space budget asks for it.

use super::victim::{Candidate, SpaceBudget, choose};
use super::{GcReport, GcState};
use crate::engine::{Engine, skip_gone};
use crate::error::{EngineError, Result};
use crate::gc::data_file::data_path;
use crate::tree::{Origin, SegmentRef};
use std::collections::BTreeMap;

/// A file of values, and what is alive in it.
#[derive(Clone, Copy, Debug)]
struct FileState {
    segment: SegmentRef,
    bytes: u64,
    record_bytes: u64,
    age_ms: u64,
    /// Nobody but live values needs it.
    collectable: bool,
    live_now: u64,
    live_durable: u64,
}

impl FileState {
    fn is_dead(&self) -> bool {
        self.collectable && self.live_now == 0 && self.live_durable == 0
    }
}

impl Engine {
    /// Deletes dead files; above the space budget also does one job of moving live values.
    pub fn gc_step(&self, now_ms: u64) -> Result<GcReport> {
        let mut state = self.gc.lock();
        let mut report = GcReport::default();
        self.shared.check_poison()?;
        self.shared.sweep_doomed()?;
        // IMPORTANT: nobody knows what a damaged tree points to, so no value may go before it is dropped.
        if !self.damaged().is_empty() {
            self.conclude(now_ms, &mut report);
            return Ok(report);
        }
        self.delete_dead(&mut state, now_ms, &mut report)?;
        let files = self.survey(now_ms);
        let mut budget = self.budget(files.iter().filter(|f| f.collectable));
        if budget.excess_bytes() > 0 && self.flush_dying(&files)? {
            self.delete_dead(&mut state, now_ms, &mut report)?;
            budget = self.budget(self.survey(now_ms).iter().filter(|f| f.collectable));
        }
        if budget.excess_bytes() > 0 {
            let candidates = self.candidates(&state, now_ms);
            let victims = choose(candidates, budget, self.shared.options.relocate_bytes_max);
            if !victims.is_empty() {
                self.relocate(&mut state, &victims, now_ms, &mut report)?;
                self.delete_dead(&mut state, now_ms, &mut report)?;
            }
        }
        self.conclude(now_ms, &mut report);
        Ok(report)
    }

    fn conclude(&self, now_ms: u64, report: &mut GcReport) {
        let files = self.survey(now_ms);
        let total = self.budget(files.iter());
        report.space_amplification = total.amplification();
        report.excess_bytes = total.excess_bytes();
        if report.excess_bytes > 0 && files.iter().any(|f| !f.collectable) {
            let durable = self.handles().into_iter().filter_map(|(g, h)| Some((g, h.tree().durable()?)));
            report.purge_wanted = durable.filter(|(g, _)| self.shared.log.retained_bytes(*g) > 0).collect();
        }
    }

    fn survey(&self, now_ms: u64) -> Vec<FileState> {
        // IMPORTANT: the files first, then the trees. A file that is finished has all the pointers it will ever
        // get, so from here on its live bytes only fall.
        let unfinished = self.shared.unfinished.lock().clone();
        let manifest = self.shared.manifest();
        let sealed = self.shared.log.sealed();
        let (mut now, mut durable) = (BTreeMap::new(), BTreeMap::new());
        for (_, handle) in self.handles() {
            let Some(tree) = handle.index() else { continue };
            let (tree_now, tree_durable) = tree.live();
            for (sum, part) in [(&mut now, tree_now), (&mut durable, tree_durable)] {
                part.into_iter().for_each(|(segment, bytes)| *sum.entry(segment).or_insert(0) += bytes);
            }
        }
        let state =
            |segment: SegmentRef, bytes: u64, record_bytes: u64, age_ms: u64, collectable: bool| FileState {
                segment,
                bytes,
                record_bytes,
                age_ms,
                collectable,
                live_now: now.get(&segment).copied().unwrap_or(0),
                live_durable: durable.get(&segment).copied().unwrap_or(0),
            };
        let logs = sealed.iter().map(|s| {
            state(SegmentRef { origin: Origin::Log, id: s.id }, s.bytes, s.bytes, s.age_ms, s.purgeable)
        });
        let data = manifest.data.iter().map(|(id, d)| {
            let age_ms = now_ms.saturating_sub(d.created_ms);
            state(
                SegmentRef { origin: Origin::Data, id: *id },
                d.bytes,
                d.record_bytes,
                age_ms,
                !unfinished.contains(id),
            )
        });
        logs.chain(data).collect()
    }

    fn budget<'a>(&self, files: impl Iterator<Item = &'a FileState>) -> SpaceBudget {
        let amplification_max = self.shared.options.space_amplification_max;
        let start = SpaceBudget { file_bytes: 0, live_bytes: 0, amplification_max };
        files.fold(start, |sum, file| SpaceBudget {
            file_bytes: sum.file_bytes + file.bytes,
            live_bytes: sum.live_bytes + file.live_now,
            ..sum
        })
    }

    fn candidates(&self, state: &GcState, now_ms: u64) -> Vec<Candidate> {
        let fit = |f: &FileState| f.collectable && f.live_now > 0 && !state.unreadable.contains(&f.segment);
        let candidate = |f: FileState| Candidate {
            segment: f.segment,
            bytes: f.bytes,
            record_bytes: f.record_bytes,
            live_bytes: f.live_now,
            age_ms: f.age_ms,
        };
        self.survey(now_ms).into_iter().filter(fit).map(candidate).collect()
    }

    /// Flushes the trees whose durable state alone keeps files alive. True when one was flushed.
    fn flush_dying(&self, files: &[FileState]) -> Result<bool> {
        let dying: Vec<SegmentRef> = files
            .iter()
            .filter(|f| f.collectable && f.live_now == 0 && f.live_durable > 0)
            .map(|f| f.segment)
            .collect();
        let mut flushed = false;
        for (_, handle) in self.handles() {
            let Some(tree) = handle.index() else { continue };
            let (_, durable) = tree.live();
            if dying.iter().any(|segment| durable.contains_key(segment)) {
                flushed |= skip_gone(handle.tree().flush())?.is_some();
            }
        }
        Ok(flushed)
    }

    fn delete_dead(&self, state: &mut GcState, now_ms: u64, report: &mut GcReport) -> Result<()> {
        let mut data = Vec::new();
        for file in self.survey(now_ms).into_iter().filter(FileState::is_dead) {
            let moment = *state.dying.entry(file.segment).or_insert_with(|| self.shared.pins.moment());
            if !self.shared.pins.passed(moment) {
                continue;
            }
            match file.segment.origin {
                Origin::Data => data.push((file.segment, file.bytes)),
                Origin::Log if self.shared.log.delete(file.segment.id)? => {
                    report.record_deleted(state, file.segment, file.bytes);
                }
                Origin::Log => {}
            }
        }
        if data.is_empty() {
            return Ok(());
        }
        // IMPORTANT: out of the manifest first. A file that it names and that is not there would be corruption.
        self.shared.change_manifest(|manifest| {
            data.iter().for_each(|(segment, _)| {
                manifest.data.remove(&segment.id);
            });
        })?;
        for (segment, bytes) in data {
            self.shared.values.forget(segment.id);
            let path = data_path(&self.shared.data_dir(), segment.id);
            self.shared.fs.remove_file(&path).map_err(|e| EngineError::io("delete a data file", e))?;
            report.record_deleted(state, segment, bytes);
        }
        Ok(())
    }
}
