//! Commands to bytes.
//!
//! ```text
//! payload   version u8 = 1 | now_ms u64 | default_ttl_ms u64 | command count u32 | commands
//! command   flags u8 (1: has request id) | [client u64 | seq u64 | first_attempt_ms u64]
//!           | action u8 | 1 write: mutation count u32, mutations | 2 tick | 3 sweep: limit u32
//! mutation  op u8 | flags u8 (1: return previous, 2: has condition)
//!           | [condition u8: 1 absent | 2 present | 3 version u64 | 4 value bytes]
//!           | 1 put: expiry u8 [u64] | kind u32 | value record
//!           | 2 delete: key | 3 increment: key, by i64, initial i64, ttl_ms u64
//!           | 4 set expiry: key, expiry u8 [u64] | 5 delete range: key, end | 6 check: key
//! expiry    0 default (of set expiry: never) | 1 ttl_ms u64 | 2 keep | 3 at_ms u64
//! key, bytes  length u32 | bytes
//! ```
//! Little-endian. The value record is `record.rs`'s, so that an index pointer into the log verifies
//! by itself.

use super::wire::put_bytes;
use super::{Action, Command, Condition, EntryHeader, Expiry, Mutation, NewExpiry, Op};
use crate::record::encode_record;
use bytes::{BufMut, Bytes};

/// The version of the command format that this build writes, and the newest that it reads.
pub const FORMAT_VERSION: u8 = 1;

pub(super) const HAS_REQUEST: u8 = 1;
pub(super) const RETURN_PREVIOUS: u8 = 1;
pub(super) const HAS_CONDITION: u8 = 2;

/// The payload of a log entry that carries these commands.
pub fn encode(header: EntryHeader, commands: &[Command]) -> Bytes {
    let len = 21 + commands.iter().map(encoded_len).sum::<usize>();
    let mut out = Vec::with_capacity(len);
    out.put_u8(FORMAT_VERSION);
    out.put_u64_le(header.now_ms);
    out.put_u64_le(header.default_ttl_ms);
    out.put_u32_le(commands.len() as u32);
    for command in commands {
        put_command(&mut out, command);
    }
    out.into()
}

/// At least the bytes that this command takes in a payload: what a batcher counts by.
pub fn encoded_len(command: &Command) -> usize {
    const COMMAND: usize = 34;
    const MUTATION: usize = 48;
    let Action::Write(mutations) = &command.action else { return COMMAND };
    let bytes = mutations.iter().map(|m| {
        let condition = match &m.condition {
            Some(Condition::Value(value)) => value.len(),
            _ => 0,
        };
        let body = match &m.op {
            Op::Put { value, .. } => value.len(),
            Op::DeleteRange { end } => end.len(),
            _ => 0,
        };
        MUTATION + m.key.len() + condition + body
    });
    COMMAND + bytes.sum::<usize>()
}

fn put_command(out: &mut Vec<u8>, command: &Command) {
    out.put_u8(if command.request.is_some() { HAS_REQUEST } else { 0 });
    if let Some(request) = &command.request {
        out.put_u64_le(request.client);
        out.put_u64_le(request.seq);
        out.put_u64_le(request.first_attempt_ms);
    }
    match &command.action {
        Action::Write(mutations) => {
            out.put_u8(1);
            out.put_u32_le(mutations.len() as u32);
            for mutation in mutations {
                put_mutation(out, mutation);
            }
        }
        Action::Tick => out.put_u8(2),
        Action::Sweep { limit } => {
            out.put_u8(3);
            out.put_u32_le(*limit);
        }
    }
}

fn put_mutation(out: &mut Vec<u8>, mutation: &Mutation) {
    out.put_u8(match &mutation.op {
        Op::Put { .. } => 1,
        Op::Delete => 2,
        Op::Increment { .. } => 3,
        Op::SetExpiry(_) => 4,
        Op::DeleteRange { .. } => 5,
        Op::Check => 6,
    });
    let previous = if mutation.return_previous { RETURN_PREVIOUS } else { 0 };
    let condition = if mutation.condition.is_some() { HAS_CONDITION } else { 0 };
    out.put_u8(previous | condition);
    if let Some(condition) = &mutation.condition {
        put_condition(out, condition);
    }
    let key = &mutation.key;
    match &mutation.op {
        Op::Put { value, kind, expiry } => {
            put_expiry(out, *expiry);
            out.put_u32_le(*kind);
            encode_record(out, key, value);
        }
        Op::Delete | Op::Check => put_bytes(out, key),
        Op::Increment { by, initial, ttl_ms } => {
            put_bytes(out, key);
            out.put_i64_le(*by);
            out.put_i64_le(*initial);
            out.put_u64_le(*ttl_ms);
        }
        Op::SetExpiry(expiry) => {
            put_bytes(out, key);
            put_expiry(
                out,
                match *expiry {
                    NewExpiry::Never => Expiry::Default,
                    NewExpiry::TtlMs(ms) => Expiry::TtlMs(ms),
                    NewExpiry::AtMs(ms) => Expiry::AtMs(ms),
                },
            );
        }
        Op::DeleteRange { end } => {
            put_bytes(out, key);
            put_bytes(out, end);
        }
    }
}

fn put_condition(out: &mut Vec<u8>, condition: &Condition) {
    match condition {
        Condition::Absent => out.put_u8(1),
        Condition::Present => out.put_u8(2),
        Condition::Version(version) => {
            out.put_u8(3);
            out.put_u64_le(*version);
        }
        Condition::Value(value) => {
            out.put_u8(4);
            put_bytes(out, value);
        }
    }
}

fn put_expiry(out: &mut Vec<u8>, expiry: Expiry) {
    match expiry {
        Expiry::Default => out.put_u8(0),
        Expiry::TtlMs(ms) => {
            out.put_u8(1);
            out.put_u64_le(ms);
        }
        Expiry::Keep => out.put_u8(2),
        Expiry::AtMs(ms) => {
            out.put_u8(3);
            out.put_u64_le(ms);
        }
    }
}
