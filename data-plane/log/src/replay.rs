//! What a sequence of records adds up to. Pure.
//!
//! Lenient about what is missing: segments are deleted one by one, so an old one may speak of entries whose
//! neighbours are gone. The newest checkpoint says what must be there; [`Replay::finish`] insists on it.

use std::collections::BTreeMap;

use undb_types::{GroupId, LogId};

use crate::format::{Checkpoint, FRAME_HEADER_LEN, Record, salt};
use crate::group::{Group, Location};
use crate::scan::ScannedFrame;

#[derive(Default)]
pub(crate) struct Replay {
    groups: BTreeMap<GroupId, Replayed>,
}

#[derive(Default)]
struct Replayed {
    state: Checkpoint,
    entries: BTreeMap<u64, Location>,
}

/// An entry that must be there and is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub group: GroupId,
    pub index: u64,
    /// Where a neighbour lies, to name a place.
    pub near: Option<(u64, u64)>,
}

impl Replay {
    /// Applies a frame of a segment of log `log_id`. `first`: it is the segment's first.
    pub fn frame(&mut self, log_id: u64, frame: &ScannedFrame, first: bool) {
        if first {
            // A checkpoint names every group that exists. Entries stay: they are judged by their range.
            let named: Vec<_> = frame
                .records
                .iter()
                .filter_map(|record| match record {
                    Record::Checkpoint(group, _) => Some(*group),
                    _ => None,
                })
                .collect();
            self.groups.retain(|group, _| named.contains(group));
        }
        let mut offset = frame.header.offset + FRAME_HEADER_LEN as u64;
        for record in &frame.records {
            self.record(log_id, frame.header.segment, record, &mut offset);
        }
    }

    fn record(&mut self, log_id: u64, segment: u64, record: &Record, offset: &mut u64) {
        match record {
            Record::Entries { start, entries } => {
                let group = self.groups.entry(start.group).or_default();
                group.truncate_from(start.index);
                for (i, entry) in entries.iter().enumerate() {
                    let index = start.index + i as u64;
                    let crc = entry.crc ^ salt(log_id, segment, *offset);
                    let (term, leader) = (start.term, start.leader);
                    let at = Location {
                        segment,
                        offset: *offset,
                        len: entry.len,
                        crc,
                        term,
                        leader,
                        kind: entry.kind,
                    };
                    group.push(index, at);
                    *offset += u64::from(entry.len);
                }
            }
            Record::Vote(group, vote) => {
                self.groups.entry(*group).or_default().state.vote = Some(vote.clone());
            }
            Record::Truncate(group, last) => {
                let from = last.map_or(0, |last| last.index.saturating_add(1));
                self.groups.entry(*group).or_default().truncate_from(from);
            }
            Record::Purge(group, upto) => self.groups.entry(*group).or_default().purge(*upto),
            Record::Committed(group, id) => self.groups.entry(*group).or_default().state.committed = *id,
            Record::Drop(group) => {
                self.groups.remove(group);
            }
            Record::Checkpoint(group, state) => self.groups.entry(*group).or_default().restore(state),
        }
    }

    /// Per group, the floor below which entries do not count.
    pub fn floors(&self) -> BTreeMap<GroupId, Option<u64>> {
        self.groups
            .iter()
            .map(|(group, replayed)| (*group, replayed.state.purged.map(|id| id.index)))
            .collect()
    }

    /// The groups as they are, if every entry that must be there is.
    pub fn finish(self) -> Result<BTreeMap<GroupId, Group>, Missing> {
        let mut groups = BTreeMap::new();
        for (id, replayed) in self.groups {
            groups.insert(id, replayed.finish(id)?);
        }
        Ok(groups)
    }
}

impl Replayed {
    fn last(&self) -> Option<LogId> {
        self.entries.last_key_value().map(|(index, at)| at.log_id(*index))
    }

    fn push(&mut self, index: u64, at: Location) {
        let first = self.state.live.map_or(index, |(first, _)| first);
        self.state.live = Some((first, at.log_id(index)));
        self.entries.insert(index, at);
    }

    fn truncate_from(&mut self, index: u64) {
        self.entries.split_off(&index);
        if let Some((first, last)) = self.state.live
            && last.index >= index
        {
            // Without the entry before, its term is not known here; it is never asked for.
            let before = LogId { index: index.saturating_sub(1), ..LogId::default() };
            self.state.live = (index > first).then(|| (first, self.last().unwrap_or(before)));
        }
    }

    fn purge(&mut self, upto: LogId) {
        if self.state.purged.is_some_and(|purged| purged.index >= upto.index) {
            return;
        }
        self.state.purged = Some(upto);
        let after = upto.index.saturating_add(1);
        self.entries = self.entries.split_off(&after);
        self.state.live = match self.state.live {
            Some((first, last)) if last.index > upto.index => Some((first.max(after), last)),
            _ => None,
        };
    }

    fn restore(&mut self, state: &Checkpoint) {
        self.state = state.clone();
        match state.live {
            None => self.entries.clear(),
            Some((first, last)) => {
                self.entries = self.entries.split_off(&first);
                self.entries.split_off(&last.index.saturating_add(1));
            }
        }
    }

    fn finish(self, id: GroupId) -> Result<Group, Missing> {
        let mut group = Group {
            purged: self.state.purged,
            vote: self.state.vote,
            committed: self.state.committed,
            ..Group::default()
        };
        group.first = group.purged.map_or(0, |purged| purged.index + 1);
        let Some((first, last)) = self.state.live else { return Ok(group) };
        group.first = first;
        let near = self.entries.first_key_value().map(|(_, at)| (at.segment, at.offset));
        let mut expected = first;
        for (index, at) in self.entries {
            if index != expected {
                return Err(Missing { group: id, index: expected, near });
            }
            group.live_bytes += u64::from(at.len);
            group.entries.push_back(at);
            expected += 1;
        }
        let agrees = group.entries.back().is_some_and(|at| at.log_id(last.index) == last || last.term == 0);
        if expected != last.index + 1 || !agrees {
            return Err(Missing { group: id, index: last.index, near });
        }
        group.durable = Some(last.index);
        Ok(group)
    }
}
