//! The last changes, for watchers that were away for a moment.

use std::collections::VecDeque;
use undb_proto::v1;

/// Changes in order of revision, each one above the one before.
pub(super) struct Ring {
    changes: VecDeque<(u64, v1::MetaChange)>,
    len_max: usize,
    /// The revision before the first change kept.
    before: u64,
}

impl Ring {
    /// Nothing is kept from before `revision`.
    pub fn new(revision: u64, len_max: usize) -> Self {
        Self { changes: VecDeque::new(), len_max, before: revision }
    }

    /// Keeps a change, and lets the oldest go when there are too many.
    pub fn push(&mut self, revision: u64, change: v1::MetaChange) {
        self.changes.push_back((revision, change));
        if self.changes.len() > self.len_max
            && let Some((revision, _)) = self.changes.pop_front()
        {
            self.before = revision;
        }
    }

    /// Up to `max` changes after `revision`; `None` when some of them are gone, or never were.
    pub fn after(&self, revision: u64, max: usize) -> Option<Vec<(u64, v1::MetaChange)>> {
        let last = self.changes.back().map_or(self.before, |(r, _)| *r);
        if revision < self.before || revision > last {
            return None;
        }
        let from = self.changes.partition_point(|(r, _)| *r <= revision);
        Some(self.changes.iter().skip(from).take(max).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watcher_gets_what_it_missed_or_is_told_that_it_is_gone() {
        let mut ring = Ring::new(10, 3);
        assert_eq!(ring.after(10, 9), Some(vec![]));
        for revision in 11..=15 {
            ring.push(revision, v1::MetaChange::default());
        }
        let revisions = |from| ring.after(from, 9).map(|c| c.iter().map(|(r, _)| *r).collect::<Vec<_>>());
        assert_eq!(revisions(12), Some(vec![13, 14, 15]));
        assert_eq!(revisions(15), Some(vec![]));
        assert_eq!(revisions(11), None, "12 is gone");
        assert_eq!(revisions(16), None, "never was");
    }
}
