//! A model of the log: what must be there, as far as it was acknowledged.
//!
//! Calls are numbered. Each group keeps the state after each call, so that after a crash the log may be in
//! any state from the last acknowledged call on.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use undb_log::{Entry, Log, LogError};
use undb_types::{GroupId, LogId};
use undb_vfs::SimFs;

use super::{entry, group, id, read_all, wait};

/// One thing that is done to the log.
#[derive(Clone, Debug)]
pub enum Op {
    /// Appends so many entries of such a length behind the last.
    Append { group: u64, count: u64, len: usize },
    /// Replaces the last `back` entries by one of a new term.
    Replace { group: u64, back: u64 },
    /// Saves a vote that is larger than all before.
    Vote { group: u64 },
    /// Removes the last `back` entries.
    Truncate { group: u64, back: u64 },
    /// Purges so many entries from the front.
    Purge { group: u64, count: u64 },
    /// Saves the last entry as committed, lazily.
    Commit { group: u64 },
    /// Drops the group; later calls use a new replica of it.
    Drop { group: u64 },
    /// Deletes every segment that may be.
    Collect,
    /// Waits for all before.
    Flush,
    /// Closes and opens.
    Reopen,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    pub entries: BTreeMap<u64, Entry>,
    pub purged: Option<LogId>,
    pub vote: Option<Bytes>,
    pub committed: Option<LogId>,
}

impl Expected {
    fn last(&self) -> Option<LogId> {
        self.entries.values().next_back().map(|entry| entry.id).or(self.purged)
    }
}

#[derive(Default)]
pub struct Model {
    /// Per group its state after each call that changed it, oldest first: (call, state); `None`: dropped.
    history: BTreeMap<GroupId, Vec<(u64, Option<Expected>)>>,
    calls: u64,
    acked: Arc<AtomicU64>,
    term: u64,
    votes: u64,
    replica: BTreeMap<u64, u64>,
    /// Segments whose deletion was acknowledged.
    pub deleted: Vec<u64>,
}

impl Model {
    fn group(&self, n: u64) -> GroupId {
        let mut id = group(n);
        id.replica.0 += self.replica.get(&n).copied().unwrap_or(0);
        id
    }

    fn now(&self, group: GroupId) -> Expected {
        let states = self.history.get(&group);
        states.and_then(|states| states.last()).and_then(|(_, state)| state.clone()).unwrap_or_default()
    }

    fn changed(&mut self, group: GroupId, state: Option<Expected>) {
        self.calls += 1;
        self.history.entry(group).or_default().push((self.calls, state));
    }

    /// A callback that takes note of the acknowledgement of the current call.
    fn done(&self) -> undb_log::Done {
        let (call, acked) = (self.calls, self.acked.clone());
        Box::new(move |result| {
            if result.is_ok() {
                let before = acked.swap(call, Ordering::SeqCst);
                assert!(before <= call, "called back in order");
            }
        })
    }

    /// Does it to the log and to the model. Errors only from `Flush`, `Collect` and `Reopen`.
    pub fn run(&mut self, fs: &SimFs, dir: &Path, log: &mut Log, op: &Op) -> Result<(), LogError> {
        match *op {
            Op::Append { group, count, len } => {
                let g = self.group(group);
                let mut state = self.now(g);
                self.term = self.term.max(1);
                let from = state.last().map_or(0, |last| last.index + 1);
                let added: Vec<_> = (from..from + count).map(|i| entry(g, id(self.term, i), len)).collect();
                self.calls += 1;
                // An append that was not acknowledged may be there up to any of its entries.
                for entry in &added {
                    state.entries.insert(entry.id.index, entry.clone());
                    self.history.entry(g).or_default().push((self.calls, Some(state.clone())));
                }
                log.append(g, added, self.done());
            }
            Op::Replace { group, back } => {
                let g = self.group(group);
                let mut state = self.now(g);
                let Some(last) = state.last() else { return Ok(()) };
                self.term += 1;
                let first = state.entries.keys().next().copied().unwrap_or(last.index + 1);
                let at = (last.index + 1).saturating_sub(back).max(first);
                state.entries.split_off(&at);
                let new = entry(g, id(self.term, at), 100);
                state.entries.insert(at, new.clone());
                self.changed(g, Some(state));
                log.append(g, vec![new], self.done());
            }
            Op::Vote { group } => {
                let g = self.group(group);
                let mut state = self.now(g);
                self.votes += 1;
                let vote = Bytes::from(format!("{:08}", self.votes));
                state.vote = Some(vote.clone());
                self.changed(g, Some(state));
                log.save_vote(g, vote, self.done());
            }
            Op::Truncate { group, back } => {
                let g = self.group(group);
                let mut state = self.now(g);
                for _ in 0..back {
                    state.entries.pop_last();
                }
                let last = state.last();
                if !self.history.contains_key(&g) {
                    return Ok(());
                }
                self.changed(g, Some(state));
                log.truncate_after(g, last, self.done());
            }
            Op::Purge { group, count } => {
                let g = self.group(group);
                let mut state = self.now(g);
                let Some(upto) = state.entries.values().map(|entry| entry.id).take(count as usize).last()
                else {
                    return Ok(());
                };
                state.entries = state.entries.split_off(&(upto.index + 1));
                state.purged = Some(upto);
                self.changed(g, Some(state));
                log.purge(g, upto, self.done());
            }
            Op::Commit { group } => {
                let g = self.group(group);
                let mut state = self.now(g);
                if !self.history.contains_key(&g) || state.last().is_none() {
                    return Ok(());
                }
                state.committed = state.last();
                self.changed(g, Some(state.clone()));
                log.save_committed(g, state.committed);
            }
            Op::Drop { group } => {
                let g = self.group(group);
                if !self.history.contains_key(&g) {
                    return Ok(());
                }
                self.changed(g, None);
                log.drop_group(g, self.done());
                *self.replica.entry(group).or_default() += 1;
            }
            Op::Collect => {
                for segment in log.segments() {
                    if log.delete_segment(segment.id)? {
                        // Not `segment.sealed`: the writer may have sealed it since it was listed.
                        assert_eq!(segment.live_entries, 0);
                        self.deleted.push(segment.id);
                    }
                }
            }
            Op::Flush => {
                log.flush()?;
                self.acked.store(self.calls, Ordering::SeqCst);
            }
            Op::Reopen => {
                log.clone().close();
                if let Some(why) = log.poisoned() {
                    return Err(LogError::Poisoned(why));
                }
                self.acked.store(self.calls, Ordering::SeqCst);
                // A stand-in, so that the old log's lock is free.
                let elsewhere = tempfile::tempdir().expect("tempdir");
                let spare = super::open(&SimFs::new(elsewhere.path()), elsewhere.path())?;
                drop(std::mem::replace(log, spare));
                *log = super::open(fs, dir)?;
            }
        }
        Ok(())
    }

    /// The log is exactly what the model says now.
    pub fn check_now(&self, log: &Log) {
        self.check(log, self.calls, self.calls);
    }

    /// After a crash: per group the log is in some state that it had at or after the last acknowledged call.
    /// That is then the state that the model goes on from.
    pub fn check_after_crash(&mut self, log: &Log) {
        self.check(log, self.acked.load(Ordering::SeqCst), self.calls);
        let segments = log.segments();
        for gone in &self.deleted {
            assert!(segments.iter().all(|segment| segment.id != *gone), "segment {gone} came back");
        }
        for (g, states) in &mut self.history {
            let seen = found(log, *g);
            let at = states.iter().rposition(|(_, state)| *state == seen);
            states.truncate(at.map_or(0, |at| at + 1));
        }
        self.acked.store(self.calls, Ordering::SeqCst);
    }

    fn check(&self, log: &Log, from: u64, to: u64) {
        let known = log.groups();
        for g in &known {
            assert!(self.history.contains_key(g), "group {g} is nobody's");
        }
        for (g, states) in &self.history {
            let seen = found(log, *g);
            let oldest = states.iter().rposition(|(call, _)| *call <= from);
            let mut allowed: Vec<Option<Expected>> = Vec::new();
            if oldest.is_none() {
                allowed.push(None);
            }
            let later = states[oldest.unwrap_or(0)..].iter().filter(|(call, _)| *call <= to);
            allowed.extend(later.map(|(_, state)| state.clone()));
            // What is saved lazily may be older, but is one that was saved.
            let blur = |state: &Option<Expected>| state.clone().map(|s| Expected { committed: None, ..s });
            let fits = if from == to {
                allowed.contains(&seen)
            } else {
                allowed.iter().map(blur).any(|state| state == blur(&seen))
            };
            assert!(
                fits,
                "group {g}: found {}\nallowed {:#?}",
                show(&seen),
                allowed.iter().map(show).collect::<Vec<_>>()
            );
        }
    }
}

fn show(state: &Option<Expected>) -> String {
    match state {
        None => "nothing".into(),
        Some(s) => format!(
            "entries {:?}..={:?} ({}), purged {:?}, vote {:?}, committed {:?}",
            s.entries.keys().next(),
            s.entries.values().next_back().map(|e| e.id),
            s.entries.len(),
            s.purged,
            s.vote,
            s.committed
        ),
    }
}

/// What the log has of a group.
fn found(log: &Log, g: GroupId) -> Option<Expected> {
    if !log.groups().contains(&g) {
        return None;
    }
    let state = log.state(g);
    let entries = read_all(log, g);
    for pair in entries.windows(2) {
        assert_eq!(pair[0].id.index + 1, pair[1].id.index, "no gaps");
    }
    for entry in &entries {
        assert_eq!(entry.payload, super::payload(g, entry.id, entry.payload.len()), "nobody else's bytes");
        let at = log.locate(g, entry.id.index).expect("located");
        assert_eq!(log.read_at(at.segment, at.offset, at.len as usize).expect("read"), entry.payload);
    }
    let expected = Expected {
        entries: entries.into_iter().map(|entry| (entry.id.index, entry)).collect(),
        purged: state.purged,
        vote: state.vote.clone(),
        committed: state.committed,
    };
    assert_eq!(state.last, expected.last());
    Some(expected)
}

/// Opens after a crash twice, checks both times, and shows that the log goes on working.
pub fn recover_and_check(model: &mut Model, dir: &Path) {
    let fs = SimFs::new(dir);
    let log = super::open(&fs, dir).unwrap_or_else(|error| panic!("recovery: {error}"));
    model.check_after_crash(&log);
    let first: Vec<_> = log.groups().into_iter().map(|g| (g, found(&log, g))).collect();
    drop(log);
    let log = super::open(&fs, dir).expect("second recovery");
    let second: Vec<_> = log.groups().into_iter().map(|g| (g, found(&log, g))).collect();
    assert_eq!(first, second, "reopening changes nothing");
    let g = group(999);
    wait(|done| log.append(g, super::entries(g, 1, 0..3, 50), done)).expect("goes on");
}
