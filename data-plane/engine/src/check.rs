//! The engine's invariants as code: index entries, live counts, files and manifest agree.

use crate::engine::{Engine, Handle};
use crate::error::{EngineError, Result};
use crate::gc::data_file::{DataReader, parse_data_name};
use crate::manifest::Manifest;
use crate::tree::entry::Entry;
use crate::tree::separated::IndexTree;
use crate::tree::shared::{TREES_DIR, tree_name};
use crate::tree::{Origin, SegmentRef};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use undb_types::GroupId;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Keys seen.
    pub keys: u64,
    /// Keys whose value lies outside of the index.
    pub pointers: u64,
    /// What is wrong; empty: nothing.
    pub problems: Vec<String>,
}

/// Unreadable values that are listed per tree.
const PROBLEMS_MAX: usize = 100;

/// How much a check reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Index,
    Values,
}

impl Engine {
    /// Compares index, counts, manifest and files. Reads no values.
    pub fn check(&self) -> Result<CheckReport> {
        self.check_to(Depth::Index)
    }

    /// As `check`, and reads every value and every data file.
    pub fn scrub(&self) -> Result<CheckReport> {
        self.check_to(Depth::Values)
    }

    fn check_to(&self, depth: Depth) -> Result<CheckReport> {
        // Files must not come and go under the comparison.
        let _gc = self.gc.lock();
        let mut report = CheckReport::default();
        let manifest = self.shared.manifest();
        let damaged = self.damaged().into_iter().map(|(group, why)| format!("{group}: {why}"));
        report.problems.extend(damaged);
        for (group, handle) in self.handles() {
            match handle {
                Handle::Index(tree, _) => self.check_index(group, &tree, &manifest, depth, &mut report)?,
                Handle::Sled(tree) => {
                    let (kept, counted) = tree.recount()?;
                    report.keys += counted.keys;
                    if kept != counted {
                        report.problems.push(format!("{group}: counts {kept:?}, rows {counted:?}"));
                    }
                }
            }
        }
        self.check_files(&manifest, depth, &mut report)?;
        Ok(report)
    }

    fn check_index(
        &self,
        group: GroupId,
        tree: &IndexTree,
        manifest: &Manifest,
        depth: Depth,
        report: &mut CheckReport,
    ) -> Result<()> {
        let log_ids: BTreeSet<u64> = self.shared.log.all().into_iter().map(|(id, _)| id).collect();
        let mut problems = Vec::new();
        let mut dangling = BTreeMap::<SegmentRef, u64>::new();
        let mut pointers = 0;
        let _pin = self.shared.pins.pin();
        let (kept, counted) = tree.recount(|key: &Bytes, entry: &Entry| {
            let Some(pointer) = entry.pointer() else { return };
            pointers += 1;
            let there = match pointer.segment.origin {
                Origin::Log => log_ids.contains(&pointer.segment.id),
                Origin::Data => manifest.data.contains_key(&pointer.segment.id),
            };
            if !there {
                *dangling.entry(pointer.segment).or_default() += 1;
            } else if depth == Depth::Values
                && problems.len() < PROBLEMS_MAX
                && let Err(error) = self.shared.values.read_uncached(key, pointer, entry.meta.value_len)
            {
                problems.push(format!("{group}: {error}"));
            }
        })?;
        report.keys += counted.counts.keys;
        report.pointers += pointers;
        report.problems.append(&mut problems);
        for (segment, count) in dangling {
            report.problems.push(format!("{group}: {count} pointers into {segment:?}, which is not there"));
        }
        if kept.counts != counted.counts {
            report.problems.push(format!("{group}: counts {:?}, index {:?}", kept.counts, counted.counts));
        }
        if kept.live != counted.live {
            report.problems.push(format!("{group}: live bytes {:?}, index {:?}", kept.live, counted.live));
        }
        Ok(())
    }

    fn check_files(&self, manifest: &Manifest, depth: Depth, report: &mut CheckReport) -> Result<()> {
        let failed = |e| EngineError::io("list the engine's files", e);
        let unfinished = self.shared.unfinished.lock().clone();
        let data_dir = self.shared.data_dir();
        let on_disk: BTreeSet<u64> = self
            .shared
            .fs
            .list(&data_dir)
            .map_err(failed)?
            .iter()
            .filter_map(|name| parse_data_name(name))
            .collect();
        for id in on_disk.iter().filter(|id| !manifest.data.contains_key(id) && !unfinished.contains(id)) {
            report.problems.push(format!("data file {id} is not in the manifest"));
        }
        for id in manifest.data.keys() {
            if !on_disk.contains(id) {
                report.problems.push(format!("data file {id} is missing"));
            } else if depth == Depth::Values
                && let Err(error) =
                    DataReader::open(&*self.shared.fs, &data_dir, *id).and_then(|r| r.verify())
            {
                report.problems.push(format!("data file {id}: {error}"));
            }
        }
        let dirs = self.shared.fs.list(&self.shared.dir.join(TREES_DIR)).map_err(failed)?;
        for (group, record) in &manifest.trees {
            if !dirs.contains(&tree_name(*group, record.generation)) {
                report.problems.push(format!("{group}: its directory is missing"));
            }
        }
        Ok(())
    }
}
