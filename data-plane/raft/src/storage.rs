//! openraft's log of one group, on the store's shared log.
//!
//! Order matters more than anything here: the shared log keeps the order of `append`, `save_vote`
//! and `truncate_after` of one group, and openraft is told that an append is flushed only from the
//! log's own callback, after the sync.

use crate::codec;
use crate::error::log_io;
use crate::kinds::{Entry, Kinds, LogId, Vote, from_raft, to_raft};
use crate::room::{self, is_full};
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use tokio::sync::oneshot;
use undb_log::{Done, Log};
use undb_types::GroupId;

/// Most bytes of entries that one message to a follower carries; one entry may be larger.
const REPLICATE_BYTES_MAX: usize = 1 << 20;

/// One group's part of the store's log. Clones are the same log.
#[derive(Clone)]
pub(crate) struct GroupLog {
    log: Log,
    group: GroupId,
}

impl GroupLog {
    pub fn new(log: Log, group: GroupId) -> Self {
        Self { log, group }
    }

    pub fn has_voted(&self) -> bool {
        self.log.state(self.group).vote.is_some()
    }

    async fn read(&self, start: u64, end: u64, bytes_max: usize) -> io::Result<Vec<Entry>> {
        if start >= end {
            return Ok(Vec::new());
        }
        let (log, group) = (self.log.clone(), self.group);
        let entries = match log.read_cached(group, start..end, bytes_max) {
            Some(entries) => entries,
            None => blocking(move || log.read(group, start..end, bytes_max).map_err(log_io)).await?,
        };
        let decode = |e: undb_log::Entry| Ok(codec::decode_entry(to_raft(e.id), e.kind, e.payload)?);
        entries.into_iter().map(decode).collect()
    }
}

/// Runs what may block on a thread for it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Calls the log and waits for its callback.
pub(crate) async fn durable(call: impl FnOnce(Done)) -> io::Result<()> {
    let (tx, rx) = oneshot::channel();
    call(Box::new(move |result| {
        // Nobody waits any more: the group is being closed.
        let _ = tx.send(result);
    }));
    rx.await.map_err(|_| io::Error::other("the log was closed"))?
}

impl RaftLogReader<Kinds> for GroupLog {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, io::Error> {
        let start = match range.start_bound() {
            Bound::Included(i) => *i,
            Bound::Excluded(i) => i + 1,
            Bound::Unbounded => 0,
        };
        let state = self.log.state(self.group);
        let end = match range.end_bound() {
            Bound::Included(i) => i + 1,
            Bound::Excluded(i) => *i,
            Bound::Unbounded => u64::MAX,
        };
        let end = end.min(state.last.map_or(0, |id| id.index + 1));
        let start = start.max(state.purged.map_or(0, |id| id.index + 1));
        let mut entries = Vec::new();
        let mut next = start;
        // All of the range is asked for; the log may hand it out in pieces.
        while next < end {
            let piece = self.read(next, end, usize::MAX).await?;
            let Some(last) = piece.last() else { break };
            next = last.log_id.index + 1;
            entries.extend(piece);
        }
        Ok(entries)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<Entry>, io::Error> {
        self.read(start, end, REPLICATE_BYTES_MAX).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        let vote = self.log.state(self.group).vote;
        Ok(vote.map(codec::decode_vote).transpose()?)
    }
}

impl RaftLogStorage<Kinds> for GroupLog {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<Kinds>, io::Error> {
        let state = self.log.state(self.group);
        let last_purged_log_id = state.purged.map(to_raft);
        Ok(LogState { last_purged_log_id, last_log_id: state.last.map(to_raft).or(last_purged_log_id) })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let vote = codec::encode_vote(vote);
        durable(|done| self.log.save_vote(self.group, vote, done)).await
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        self.log.save_committed(self.group, committed.map(from_raft));
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        let state = self.log.state(self.group);
        // What was committed elsewhere but is not here any more cannot be applied again from here.
        Ok(state.committed.filter(|id| state.last.is_some_and(|last| id.index <= last.index)).map(to_raft))
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<Kinds>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encode = |entry: Entry| {
            let (kind, payload) = codec::encode_payload(&entry);
            undb_log::Entry { id: from_raft(entry.log_id), kind, payload }
        };
        let entries: Vec<_> = entries.into_iter().map(encode).collect();
        let (log, group) = (self.log.clone(), self.group);
        if !log.is_full() {
            log.append(group, entries, Box::new(move |result| callback.io_completed(result)));
            return Ok(());
        }
        // Only what openraft appends by itself gets here, see `room`. It waits: an error is for ever.
        let appended = loop {
            let entries = entries.clone();
            match durable(|done| log.append(group, entries, done)).await {
                Err(error) if is_full(&error) => tokio::time::sleep(room::RETRY).await,
                appended => break appended,
            }
        };
        callback.io_completed(appended);
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let last = last_log_id.map(from_raft);
        durable(|done| self.log.truncate_after(self.group, last, done)).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), io::Error> {
        durable(|done| self.log.purge(self.group, from_raft(log_id), done)).await
    }
}

#[cfg(test)]
mod tests;
