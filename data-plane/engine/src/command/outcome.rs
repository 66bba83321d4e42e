//! What became of each command of an entry, and its binary format.
//!
//! ```text
//! outcomes  version u8 = 1 | now_ms u64 | count u32 | outcomes
//! outcome   1 applied: result count u32, results | 2 condition failed: failed u32, has u8 [record]
//!           | 3 rejected: code u16, message | 4 too old: watermark_ms u64 | 5 forgotten | 6 done
//!           | 7 swept: removed u32, more u8
//! result    version u64 | flags u8 (1: existed, 2: previous, 4: next) | number i64 | [record] | [next]
//! record    version u64 | expire_at_ms u64 | kind u32 | value_len u32 | has u8 [value]
//! ```

use super::wire::{FormatError, Reader, put_bytes};
use crate::tree::RecordMeta;
use bytes::{BufMut, Bytes};

/// The version of the outcomes format that this build writes, and the newest that it reads.
pub const OUTCOMES_FORMAT_VERSION: u8 = 1;

const WHAT: &str = "outcomes";
const EXISTED: u8 = 1;
const PREVIOUS: u8 = 2;
const NEXT: u8 = 4;

/// The answer to one entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// The replicated time as of the entry.
    pub now_ms: u64,
    /// One per command, in order. Empty when the entry had been applied before.
    pub outcomes: Vec<Outcome>,
}

/// The answer to one command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was done (by this entry, or by an earlier attempt with the same request id).
    Applied {
        /// One per mutation, in order.
        results: Vec<MutationResult>,
    },
    /// Nothing was done.
    ConditionFailed {
        /// The first mutation whose condition did not hold.
        failed: u32,
        /// The record that failed it; its value only where the mutation has `return_previous`.
        current: Option<Record>,
    },
    /// Nothing was done, and the same command would fail again as long as the record stays so.
    Rejected {
        /// Why.
        code: RejectCode,
        /// For people.
        message: String,
    },
    /// Not run: its first attempt is older than what this shard remembers, so an earlier attempt may
    /// have been applied. Ambiguous to the client, unless it knows that there was no earlier attempt.
    TooOld {
        /// Attempts first made up to here are forgotten.
        watermark_ms: u64,
    },
    /// An earlier attempt was applied, but its answer was too large to keep.
    Forgotten,
    /// A tick.
    Done,
    /// A sweep.
    Swept {
        /// Records removed.
        removed: u32,
        /// More are expired already.
        more: bool,
    },
}

/// Why a command was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RejectCode {
    /// Increment of a value that is not an i64 in decimal.
    NotAnInteger = 1,
    /// Increment beyond an i64.
    Overflow = 2,
    /// Increment of a record whose kind is not 0.
    WrongKind = 3,
    /// A key, value or batch beyond its bound.
    TooLarge = 4,
    /// A command that makes no sense, a delete-range with company for example.
    Invalid = 5,
    /// The client's clock is too far ahead for its request ids to be remembered long enough.
    ClockAhead = 6,
}

impl RejectCode {
    fn from_u16(code: u16) -> Option<Self> {
        use RejectCode::*;
        [NotAnInteger, Overflow, WrongKind, TooLarge, Invalid, ClockAhead]
            .into_iter()
            .find(|c| *c as u16 == code)
    }
}

/// The answer to one mutation of an applied command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MutationResult {
    /// Of the record after the command; 0: there is none.
    pub version: u64,
    /// A live record was there before.
    pub existed: bool,
    /// That record, when it was asked for.
    pub previous: Option<Record>,
    /// Increment: the new number. Delete-range: live records removed.
    pub number: i64,
    /// Delete-range: where to go on; none: the range is empty now.
    pub next: Option<Bytes>,
}

/// A record in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Version, expiry, kind, length.
    pub meta: RecordMeta,
    /// The value; none: it was not asked for.
    pub value: Option<Bytes>,
}

/// Outcomes to bytes.
pub fn encode_outcomes(outcomes: &Outcomes) -> Bytes {
    let mut out = Vec::with_capacity(13 + 32 * outcomes.outcomes.len());
    out.put_u8(OUTCOMES_FORMAT_VERSION);
    out.put_u64_le(outcomes.now_ms);
    out.put_u32_le(outcomes.outcomes.len() as u32);
    for outcome in &outcomes.outcomes {
        put_outcome(&mut out, outcome);
    }
    out.into()
}

/// Bytes to outcomes.
pub fn decode_outcomes(bytes: &Bytes) -> Result<Outcomes, FormatError> {
    let mut reader = Reader::new(WHAT, bytes);
    reader.version(OUTCOMES_FORMAT_VERSION)?;
    let now_ms = reader.u64()?;
    let count = reader.count("outcome count", 1)?;
    let outcomes = (0..count).map(|_| read_outcome(&mut reader)).collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(Outcomes { now_ms, outcomes })
}

pub(crate) fn put_outcome(out: &mut Vec<u8>, outcome: &Outcome) {
    match outcome {
        Outcome::Applied { results } => {
            out.put_u8(1);
            out.put_u32_le(results.len() as u32);
            results.iter().for_each(|result| put_result(out, result));
        }
        Outcome::ConditionFailed { failed, current } => {
            out.put_u8(2);
            out.put_u32_le(*failed);
            out.put_u8(current.is_some().into());
            current.iter().for_each(|record| put_record(out, record));
        }
        Outcome::Rejected { code, message } => {
            out.put_u8(3);
            out.put_u16_le(*code as u16);
            put_bytes(out, message.as_bytes());
        }
        Outcome::TooOld { watermark_ms } => {
            out.put_u8(4);
            out.put_u64_le(*watermark_ms);
        }
        Outcome::Forgotten => out.put_u8(5),
        Outcome::Done => out.put_u8(6),
        Outcome::Swept { removed, more } => {
            out.put_u8(7);
            out.put_u32_le(*removed);
            out.put_u8((*more).into());
        }
    }
}

fn put_result(out: &mut Vec<u8>, result: &MutationResult) {
    out.put_u64_le(result.version);
    let previous = if result.previous.is_some() { PREVIOUS } else { 0 };
    let next = if result.next.is_some() { NEXT } else { 0 };
    out.put_u8(u8::from(result.existed) | previous | next);
    out.put_i64_le(result.number);
    if let Some(record) = &result.previous {
        put_record(out, record);
    }
    if let Some(next) = &result.next {
        put_bytes(out, next);
    }
}

fn put_record(out: &mut Vec<u8>, record: &Record) {
    out.put_u64_le(record.meta.version);
    out.put_u64_le(record.meta.expire_at_ms);
    out.put_u32_le(record.meta.kind);
    out.put_u32_le(record.meta.value_len);
    out.put_u8(record.value.is_some().into());
    if let Some(value) = &record.value {
        put_bytes(out, value);
    }
}

pub(crate) fn read_outcome(reader: &mut Reader<'_>) -> Result<Outcome, FormatError> {
    match reader.u8()? {
        1 => {
            let count = reader.count("result count", 17)?;
            let results = (0..count).map(|_| read_result(reader)).collect::<Result<_, _>>()?;
            Ok(Outcome::Applied { results })
        }
        2 => {
            let failed = reader.u32()?;
            let current = if reader.flag("record flag")? { Some(read_record(reader)?) } else { None };
            Ok(Outcome::ConditionFailed { failed, current })
        }
        3 => {
            let code = u16::from(reader.u8()?) | u16::from(reader.u8()?) << 8;
            let code = RejectCode::from_u16(code).ok_or_else(|| reader.bad("reject code", code.into(), 2))?;
            let message = String::from_utf8_lossy(&reader.bytes()?).into_owned();
            Ok(Outcome::Rejected { code, message })
        }
        4 => Ok(Outcome::TooOld { watermark_ms: reader.u64()? }),
        5 => Ok(Outcome::Forgotten),
        6 => Ok(Outcome::Done),
        7 => Ok(Outcome::Swept { removed: reader.u32()?, more: reader.flag("more flag")? }),
        other => Err(reader.bad("outcome", other.into(), 1)),
    }
}

fn read_result(reader: &mut Reader<'_>) -> Result<MutationResult, FormatError> {
    let version = reader.u64()?;
    let flags = reader.u8()?;
    if flags & !(EXISTED | PREVIOUS | NEXT) != 0 {
        return Err(reader.bad("result flags", flags.into(), 1));
    }
    let number = reader.i64()?;
    let previous = if flags & PREVIOUS != 0 { Some(read_record(reader)?) } else { None };
    let next = if flags & NEXT != 0 { Some(reader.bytes()?) } else { None };
    Ok(MutationResult { version, existed: flags & EXISTED != 0, previous, number, next })
}

fn read_record(reader: &mut Reader<'_>) -> Result<Record, FormatError> {
    let meta = RecordMeta {
        version: reader.u64()?,
        expire_at_ms: reader.u64()?,
        kind: reader.u32()?,
        value_len: reader.u32()?,
    };
    let value = if reader.flag("value flag")? { Some(reader.bytes()?) } else { None };
    Ok(Record { meta, value })
}
