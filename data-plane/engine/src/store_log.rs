//! What the engine asks of the store's log, with the engine's errors.

use crate::error::{EngineError, Result};
use bytes::Bytes;
use undb_log::{Log, LogError};
use undb_types::{GroupId, LogId};

/// A sealed segment of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSegment {
    /// Its id.
    pub id: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// Every group in it is past it.
    pub purgeable: bool,
    /// How long ago it was opened.
    pub age_ms: u64,
}

/// The log, as the engine sees it.
#[derive(Clone)]
pub struct StoreLog(Log);

fn log_error(error: LogError) -> EngineError {
    match error {
        LogError::DiskFull { .. } => EngineError::DiskFull { what: "writing the log".into() },
        other => EngineError::Log(other.to_string()),
    }
}

impl StoreLog {
    /// Wraps a log.
    pub fn new(log: Log) -> Self {
        Self(log)
    }

    /// Bytes of a segment.
    pub fn read(&self, segment: u64, offset: u64, len: u32) -> Result<Bytes> {
        self.0.read_at(segment, offset, len as usize).map_err(log_error)
    }

    /// Returns once the log holds everything up to `applied` durably. An entry that the log never held (it came
    /// by an installed snapshot) needs no wait: it cannot be applied again.
    pub fn wait_durable(&self, group: GroupId, applied: Option<LogId>) -> Result<()> {
        let Some(id) = applied else { return Ok(()) };
        match self.0.state(group).last {
            Some(last) if last.index >= id.index => self.0.wait_durable(group, id.index).map_err(log_error),
            _ => Ok(()),
        }
    }

    /// The sealed segments.
    pub fn sealed(&self) -> Vec<LogSegment> {
        let segment = |s: undb_log::SegmentInfo| LogSegment {
            id: s.id,
            bytes: s.bytes,
            purgeable: s.purgeable,
            age_ms: u64::try_from(s.age.as_millis()).unwrap_or(u64::MAX),
        };
        self.0.segments().into_iter().filter(|s| s.sealed).map(segment).collect()
    }

    /// All segments: id, bytes.
    pub fn all(&self) -> Vec<(u64, u64)> {
        self.0.segments().into_iter().map(|s| (s.id, s.bytes)).collect()
    }

    /// Deletes a segment, unless the log still needs it.
    pub fn delete(&self, segment: u64) -> Result<bool> {
        self.0.delete_segment(segment).map_err(log_error)
    }

    /// The segment of the first entry behind `applied`.
    pub fn segment_behind(&self, group: GroupId, applied: Option<LogId>) -> Option<u64> {
        let index = match applied {
            Some(id) => id.index + 1,
            None => self.0.state(group).purged.map_or(0, |id| id.index + 1),
        };
        self.0.locate(group, index).map(|at| at.segment)
    }

    /// Bytes that the log keeps for a group.
    pub fn retained_bytes(&self, group: GroupId) -> u64 {
        self.0.retained_bytes(group)
    }
}
