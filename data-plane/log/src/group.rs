//! One group's log in memory: where its entries are, what it voted, what is durable.
//!
//! ```text
//!        purged          first                cached_from       last
//!   ...----|               |--------------------|===============|
//!          gone             locations            and payloads
//! ```
//! ## Invariants
//! - `entries` is contiguous; its first index is `first`, and if `purged` is set that is the next one
//!   (or larger, after an install that skipped).
//! - The cache is a suffix of `entries`.

use std::collections::VecDeque;

use bytes::Bytes;
use undb_types::LogId;

use crate::format::Checkpoint;
use crate::{EntryLocation, GroupState};

/// Where an entry is, and what is needed to give it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub segment: u64,
    pub offset: u64,
    pub len: u32,
    /// Of the payload, without salt.
    pub crc: u32,
    pub term: u64,
    pub leader: u64,
    pub kind: u8,
}

impl Location {
    pub fn public(&self) -> EntryLocation {
        EntryLocation { segment: self.segment, offset: self.offset, len: self.len }
    }

    pub fn log_id(&self, index: u64) -> LogId {
        LogId { term: self.term, leader: self.leader, index }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub purged: Option<LogId>,
    pub first: u64,
    pub entries: VecDeque<Location>,
    pub cache: VecDeque<Bytes>,
    pub vote: Option<Bytes>,
    pub committed: Option<LogId>,
    /// Highest index known durable.
    pub durable: Option<u64>,
    /// (frame_seq, index): once the frame is durable, so is the index.
    pub pending: VecDeque<(u64, u64)>,
    /// Payload bytes of `entries`.
    pub live_bytes: u64,
}

impl Group {
    pub fn last(&self) -> Option<LogId> {
        match self.entries.back() {
            Some(entry) => Some(entry.log_id(self.end() - 1)),
            None => self.purged,
        }
    }

    /// The index behind the last entry.
    pub fn end(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    pub fn cached_from(&self) -> u64 {
        self.end() - self.cache.len() as u64
    }

    /// True when an entry may be appended at `index`: it follows the last or replaces one that is there.
    pub fn accepts(&self, index: u64) -> bool {
        if !self.entries.is_empty() {
            return self.first <= index && index <= self.end();
        }
        // An empty log begins anywhere, but not at what was purged.
        self.purged.is_none_or(|purged| index == purged.index + 1)
    }

    pub fn get(&self, index: u64) -> Option<&Location> {
        self.entries.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    pub fn cached(&self, index: u64) -> Option<&Bytes> {
        self.cache.get(usize::try_from(index.checked_sub(self.cached_from())?).ok()?)
    }

    pub fn push(&mut self, index: u64, at: Location, payload: Bytes) {
        if self.entries.is_empty() {
            self.first = index;
        }
        debug_assert_eq!(index, self.end(), "appends are contiguous");
        self.live_bytes += u64::from(at.len);
        self.entries.push_back(at);
        self.cache.push_back(payload);
    }

    /// Removes entries from `index` on; calls `gone` for each.
    pub fn truncate_from(&mut self, index: u64, mut gone: impl FnMut(&Location)) {
        while self.end() > index && !self.entries.is_empty() {
            if let Some(entry) = self.entries.pop_back() {
                self.live_bytes -= u64::from(entry.len);
                gone(&entry);
            }
            self.cache.pop_back();
        }
        match index.checked_sub(1) {
            None => {
                self.durable = None;
                self.pending.clear();
            }
            Some(last) => {
                self.durable = self.durable.map(|durable| durable.min(last));
                self.pending.iter_mut().for_each(|(_, index)| *index = (*index).min(last));
            }
        }
    }

    /// Removes entries up to `upto`; calls `gone` for each. False: they were gone before.
    pub fn purge(&mut self, upto: LogId, mut gone: impl FnMut(&Location)) -> bool {
        if self.purged.is_some_and(|purged| purged.index >= upto.index) {
            return false;
        }
        while self.first <= upto.index {
            let Some(entry) = self.entries.pop_front() else { break };
            self.live_bytes -= u64::from(entry.len);
            gone(&entry);
            self.first += 1;
            while self.cache.len() > self.entries.len() {
                self.cache.pop_front();
            }
        }
        self.purged = Some(upto);
        if self.entries.is_empty() {
            self.first = upto.index + 1;
        }
        true
    }

    /// Takes note that all frames up to `seq` are durable.
    pub fn durable_through(&mut self, seq: u64) {
        while let Some((frame, index)) = self.pending.front().copied() {
            if frame > seq {
                break;
            }
            self.pending.pop_front();
            self.durable = self.durable.max(Some(index));
        }
    }

    pub fn state(&self) -> GroupState {
        GroupState {
            purged: self.purged,
            last: self.last(),
            vote: self.vote.clone(),
            committed: self.committed,
        }
    }

    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            purged: self.purged,
            live: self.entries.back().map(|entry| (self.first, entry.log_id(self.end() - 1))),
            vote: self.vote.clone(),
            committed: self.committed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u64) -> LogId {
        LogId { term: 1, leader: 1, index }
    }

    fn at(offset: u64) -> Location {
        Location { segment: 1, offset, len: 1, crc: 0, term: 1, leader: 1, kind: 0 }
    }

    fn filled(from: u64, to: u64) -> Group {
        let mut group = Group::default();
        for index in from..to {
            group.push(index, at(index), Bytes::from_static(b"x"));
            group.pending.push_back((index, index));
        }
        group
    }

    #[test]
    fn truncated_entries_are_not_durable_when_their_frame_is() {
        let mut group = filled(5, 10);
        group.durable_through(6);
        assert_eq!(group.durable, Some(6));
        group.truncate_from(8, |_| {});
        group.push(8, at(100), Bytes::new());
        group.pending.push_back((20, 8));
        group.durable_through(9);
        assert_eq!(group.durable, Some(7));
        group.durable_through(20);
        assert_eq!(group.durable, Some(8));
    }

    #[test]
    fn a_purge_beyond_the_end_moves_the_start() {
        let mut group = filled(0, 4);
        let mut gone = 0;
        assert!(group.purge(id(9), |_| gone += 1));
        assert_eq!((gone, group.last(), group.end(), group.live_bytes), (4, Some(id(9)), 10, 0));
        assert!(group.accepts(10) && !group.accepts(11) && !group.accepts(9));
        assert!(!group.purge(id(3), |_| {}));
    }

    #[test]
    fn an_append_may_replace_but_not_skip() {
        let group = filled(3, 6);
        let accepted: Vec<_> = (0..9).filter(|index| group.accepts(*index)).collect();
        assert_eq!(accepted, [3, 4, 5, 6]);
        assert!(Group::default().accepts(77));
    }

    #[test]
    fn the_cache_is_a_suffix() {
        let mut group = filled(0, 6);
        group.cache.pop_front();
        group.cache.pop_front();
        assert_eq!(group.cached_from(), 2);
        assert!(group.cached(1).is_none() && group.cached(2).is_some());
        group.purge(id(3), |_| {});
        assert_eq!((group.cached_from(), group.cache.len()), (4, 2));
        group.truncate_from(5, |_| {});
        assert!(group.cached(4).is_some() && group.cached(5).is_none());
    }
}
