//! What a frame's directory says, one record after the other, in the order in which it happened.
//!
//! | type | record | fields behind the group (shard, replica: varints) |
//! |---|---|---|
//! | 1 | run of entries | term, leader, first index, count: varints; per entry: kind u8, len varint, crc32c u32 |
//! | 2 | vote | length varint, bytes |
//! | 3 | truncation | optional log id: the last entry that stays |
//! | 4 | purge | log id: the last entry that is gone |
//! | 5 | committed | optional log id |
//! | 6 | drop | none |
//! | 7 | checkpoint | optional log id purged; 0, or 1 with first live index and last log id; 0, or 1 with vote; optional log id committed |
//!
//! A log id is term, leader, index as varints; an optional one has a byte 0 or 1 in front. The checksum of an
//! entry is crc32c of its payload XOR the salt of the payload's place. A segment's first frame holds a
//! checkpoint of every group; it replaces all that was said before.

use bytes::Bytes;
use undb_types::{GroupId, LogId};

use super::wire::{self, Malformed, Reader};

const ENTRIES: u8 = 1;
const VOTE: u8 = 2;
const TRUNCATE: u8 = 3;
const PURGE: u8 = 4;
const COMMITTED: u8 = 5;
const DROP: u8 = 6;
const CHECKPOINT: u8 = 7;

/// Kind, length and checksum: what an entry takes at least.
const ENTRY_LEN_MIN: usize = 6;

/// One record of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Consecutive entries of one leader's term.
    Entries {
        /// Whose, and from where.
        start: RunStart,
        /// One for each, in order; their payloads lie back to back in the body.
        entries: Vec<EntryMeta>,
    },
    /// The group's vote.
    Vote(GroupId, Bytes),
    /// Entries behind this one never happened.
    Truncate(GroupId, Option<LogId>),
    /// Entries up to this one are not needed any more.
    Purge(GroupId, LogId),
    /// At least this much is committed.
    Committed(GroupId, Option<LogId>),
    /// The group is gone.
    Drop(GroupId),
    /// All there is to know about a group at this point, except its entries.
    Checkpoint(GroupId, Checkpoint),
}

/// The head of a run of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunStart {
    /// Whose.
    pub group: GroupId,
    /// Of every entry of the run.
    pub term: u64,
    /// Of every entry of the run.
    pub leader: u64,
    /// Of the first entry.
    pub index: u64,
}

/// An entry without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryMeta {
    /// Opaque.
    pub kind: u8,
    /// Of the payload.
    pub len: u32,
    /// Salted checksum of the payload.
    pub crc: u32,
}

/// A group's state at the head of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Entries up to here are gone.
    pub purged: Option<LogId>,
    /// The first index and the last entry that are there; `None`: no entries.
    pub live: Option<(u64, LogId)>,
    /// Opaque.
    pub vote: Option<Bytes>,
    /// At least this much is committed.
    pub committed: Option<LogId>,
}

/// Begins a run of `count` entries; [`put_entry`] must follow so often.
pub fn put_run_start(out: &mut Vec<u8>, start: &RunStart, count: usize) {
    out.push(ENTRIES);
    wire::put_group(out, start.group);
    for number in [start.term, start.leader, start.index, count as u64] {
        wire::put_varint(out, number);
    }
}

/// One entry of a run.
pub fn put_entry(out: &mut Vec<u8>, entry: EntryMeta) {
    out.push(entry.kind);
    wire::put_varint(out, u64::from(entry.len));
    out.extend_from_slice(&entry.crc.to_le_bytes());
}

impl Record {
    /// Appends this record to a directory.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, tag: u8, group: &GroupId| {
            out.push(tag);
            wire::put_group(out, *group);
        };
        match self {
            Record::Entries { start, entries } => {
                put_run_start(out, start, entries.len());
                entries.iter().for_each(|entry| put_entry(out, *entry));
            }
            Record::Vote(group, vote) => {
                head(out, VOTE, group);
                wire::put_bytes(out, vote);
            }
            Record::Truncate(group, last) => {
                head(out, TRUNCATE, group);
                wire::put_option_log_id(out, *last);
            }
            Record::Purge(group, upto) => {
                head(out, PURGE, group);
                wire::put_log_id(out, *upto);
            }
            Record::Committed(group, id) => {
                head(out, COMMITTED, group);
                wire::put_option_log_id(out, *id);
            }
            Record::Drop(group) => head(out, DROP, group),
            Record::Checkpoint(group, checkpoint) => {
                head(out, CHECKPOINT, group);
                checkpoint.encode(out);
            }
        }
    }

    /// The next record of a directory.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let tag = reader.u8("record type")?;
        let group = reader.group()?;
        match tag {
            ENTRIES => Self::decode_entries(group, reader),
            VOTE => Ok(Record::Vote(group, Bytes::copy_from_slice(reader.bytes("vote")?))),
            TRUNCATE => Ok(Record::Truncate(group, reader.option_log_id("truncation")?)),
            PURGE => Ok(Record::Purge(group, reader.log_id("purge")?)),
            COMMITTED => Ok(Record::Committed(group, reader.option_log_id("committed")?)),
            DROP => Ok(Record::Drop(group)),
            CHECKPOINT => Ok(Record::Checkpoint(group, Checkpoint::decode(reader)?)),
            _ => Err(Malformed("record type")),
        }
    }

    /// All records of a directory.
    pub fn decode_all(directory: &[u8]) -> Result<Vec<Self>, Malformed> {
        let mut reader = Reader(directory);
        let mut records = Vec::new();
        while !reader.is_empty() {
            records.push(Self::decode(&mut reader)?);
        }
        Ok(records)
    }

    fn decode_entries(group: GroupId, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (term, leader) = (reader.varint("term")?, reader.varint("leader")?);
        let index = reader.varint("first index")?;
        let count = usize::try_from(reader.varint("count")?).map_err(|_| Malformed("count"))?;
        // Bounds the allocation by the bytes that are there.
        let fits = count <= reader.0.len() / ENTRY_LEN_MIN && index.checked_add(count as u64).is_some();
        if count == 0 || !fits {
            return Err(Malformed("count"));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = reader.u8("entry kind")?;
            let len = u32::try_from(reader.varint("entry length")?).map_err(|_| Malformed("entry length"))?;
            entries.push(EntryMeta { kind, len, crc: reader.u32("entry checksum")? });
        }
        Ok(Record::Entries { start: RunStart { group, term, leader, index }, entries })
    }
}

impl Checkpoint {
    fn encode(&self, out: &mut Vec<u8>) {
        wire::put_option_log_id(out, self.purged);
        match self.live {
            None => out.push(0),
            Some((first, last)) => {
                out.push(1);
                wire::put_varint(out, first);
                wire::put_log_id(out, last);
            }
        }
        match &self.vote {
            None => out.push(0),
            Some(vote) => {
                out.push(1);
                wire::put_bytes(out, vote);
            }
        }
        wire::put_option_log_id(out, self.committed);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let purged = reader.option_log_id("purged")?;
        let live = match reader.u8("live range")? {
            0 => None,
            1 => {
                let first = reader.varint("first index")?;
                let last = reader.log_id("last entry")?;
                if last.index < first {
                    return Err(Malformed("live range"));
                }
                Some((first, last))
            }
            _ => return Err(Malformed("live range")),
        };
        let vote = match reader.u8("vote")? {
            0 => None,
            1 => Some(Bytes::copy_from_slice(reader.bytes("vote")?)),
            _ => return Err(Malformed("vote")),
        };
        Ok(Checkpoint { purged, live, vote, committed: reader.option_log_id("committed")? })
    }
}
