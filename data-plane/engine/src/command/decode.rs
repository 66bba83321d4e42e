//! Bytes to commands, and where in the bytes each value record lies. The layout is in `encode.rs`.

use super::encode::{FORMAT_VERSION, HAS_CONDITION, HAS_REQUEST, RETURN_PREVIOUS};
use super::wire::{FormatError, Reader};
use super::{Action, Command, Condition, EntryHeader, Expiry, Mutation, NewExpiry, Op, RequestId};
use crate::record::decode_record;
use bytes::Bytes;

const WHAT: &str = "command entry";
const COMMAND_BYTES_MIN: usize = 2;
const MUTATION_BYTES_MIN: usize = 6;

/// What a payload says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// What the leader said about the whole entry.
    pub header: EntryHeader,
    /// In order of execution.
    pub commands: Vec<DecodedCommand>,
}

/// A command and the places of its value records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedCommand {
    /// The command.
    pub command: Command,
    /// For each mutation, where in the payload its value record begins; none unless it is a put.
    pub records: Vec<Option<u32>>,
}

/// Reads a payload; values share its memory.
pub fn decode(payload: &Bytes) -> Result<Decoded, FormatError> {
    let mut reader = Reader::new(WHAT, payload);
    reader.version(FORMAT_VERSION)?;
    let header = EntryHeader { now_ms: reader.u64()?, default_ttl_ms: reader.u64()? };
    let count = reader.count("command count", COMMAND_BYTES_MIN)?;
    let mut commands = Vec::with_capacity(count);
    for _ in 0..count {
        commands.push(read_command(&mut reader)?);
    }
    reader.end()?;
    Ok(Decoded { header, commands })
}

fn read_command(reader: &mut Reader<'_>) -> Result<DecodedCommand, FormatError> {
    let request = match reader.u8()? {
        0 => None,
        HAS_REQUEST => {
            Some(RequestId { client: reader.u64()?, seq: reader.u64()?, first_attempt_ms: reader.u64()? })
        }
        other => return Err(reader.bad("command flags", other.into(), 1)),
    };
    let mut records = Vec::new();
    let action = match reader.u8()? {
        1 => {
            let count = reader.count("mutation count", MUTATION_BYTES_MIN)?;
            let mut mutations = Vec::with_capacity(count);
            records.reserve_exact(count);
            for _ in 0..count {
                let (mutation, record) = read_mutation(reader)?;
                mutations.push(mutation);
                records.push(record);
            }
            Action::Write(mutations)
        }
        2 => Action::Tick,
        3 => Action::Sweep { limit: reader.u32()? },
        other => return Err(reader.bad("action", other.into(), 1)),
    };
    Ok(DecodedCommand { command: Command { request, action }, records })
}

fn read_mutation(reader: &mut Reader<'_>) -> Result<(Mutation, Option<u32>), FormatError> {
    let op = reader.u8()?;
    let flags = reader.u8()?;
    if flags & !(RETURN_PREVIOUS | HAS_CONDITION) != 0 {
        return Err(reader.bad("mutation flags", flags.into(), 1));
    }
    let condition = if flags & HAS_CONDITION != 0 { Some(read_condition(reader)?) } else { None };
    let return_previous = flags & RETURN_PREVIOUS != 0;
    let mut place = None;
    let (key, op) = match op {
        1 => {
            let expiry = read_expiry(reader)?;
            let kind = reader.u32()?;
            let at = reader.at();
            let (key, value) = read_record(reader)?;
            place = Some(at as u32);
            (key, Op::Put { value, kind, expiry })
        }
        2 => (reader.bytes()?, Op::Delete),
        3 => {
            let key = reader.bytes()?;
            (key, Op::Increment { by: reader.i64()?, initial: reader.i64()?, ttl_ms: reader.u64()? })
        }
        4 => {
            let key = reader.bytes()?;
            let expiry = match read_expiry(reader)? {
                Expiry::Default => NewExpiry::Never,
                Expiry::TtlMs(ms) => NewExpiry::TtlMs(ms),
                Expiry::AtMs(ms) => NewExpiry::AtMs(ms),
                Expiry::Keep => return Err(reader.bad("new expiry", 2, 1)),
            };
            (key, Op::SetExpiry(expiry))
        }
        5 => {
            let key = reader.bytes()?;
            (key, Op::DeleteRange { end: reader.bytes()? })
        }
        6 => (reader.bytes()?, Op::Check),
        other => return Err(reader.bad("operation", other.into(), 1)),
    };
    Ok((Mutation { key, condition, return_previous, op }, place))
}

fn read_condition(reader: &mut Reader<'_>) -> Result<Condition, FormatError> {
    match reader.u8()? {
        1 => Ok(Condition::Absent),
        2 => Ok(Condition::Present),
        3 => Ok(Condition::Version(reader.u64()?)),
        4 => Ok(Condition::Value(reader.bytes()?)),
        other => Err(reader.bad("condition", other.into(), 1)),
    }
}

fn read_expiry(reader: &mut Reader<'_>) -> Result<Expiry, FormatError> {
    match reader.u8()? {
        0 => Ok(Expiry::Default),
        1 => Ok(Expiry::TtlMs(reader.u64()?)),
        2 => Ok(Expiry::Keep),
        3 => Ok(Expiry::AtMs(reader.u64()?)),
        other => Err(reader.bad("expiry", other.into(), 1)),
    }
}

fn read_record(reader: &mut Reader<'_>) -> Result<(Bytes, Bytes), FormatError> {
    let at = reader.at();
    let record = decode_record(&reader.rest()).map_err(|_| reader.bad_record(at))?;
    reader.take(record.len)?;
    Ok((record.key, record.value))
}
