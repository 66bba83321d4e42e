//! Wire messages to the engine's words and back. Pure; whatever a client sends, the answer is a
//! command or a typed refusal.

use bytes::Bytes;
use undb_engine::command::{
    Action, Command, Condition, Expiry, Mutation, MutationResult, NewExpiry, Op, Outcome, Record, RejectCode,
    RequestId,
};
use undb_engine::tree::{Row, TREE_KEY_BYTES_MAX};
use undb_proto::{v1, wire_error};
use undb_raft::RaftError;
use undb_types::{BATCH_BYTES_MAX, BATCH_LEN_MAX, KeyRange, VALUE_BYTES_MAX};
use v1::ErrorCode;

/// What a write request becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// One command.
    One(Command),
    /// A loop of commands over a range.
    DeleteRange {
        /// First key to remove.
        start: Bytes,
        /// First key that stays; empty: none.
        end: Bytes,
    },
}

fn invalid(message: impl Into<String>) -> v1::Error {
    wire_error(ErrorCode::InvalidArgument, message)
}

fn too_large(message: impl Into<String>) -> v1::Error {
    wire_error(ErrorCode::TooLarge, message)
}

/// The command of a write request, checked against the bounds and the shard's range.
pub fn write_from_wire(
    request: v1::WriteRequest,
    id: Option<v1::RequestId>,
    range: &KeyRange,
) -> Result<Write, v1::Error> {
    let len = request.mutations.len();
    if len == 0 {
        return Err(invalid("a write needs at least one mutation"));
    }
    if len > BATCH_LEN_MAX {
        return Err(too_large(format!("batch of {len} mutations; at most {BATCH_LEN_MAX}")));
    }
    let mutations =
        request.mutations.into_iter().map(|m| mutation_from_wire(m, range)).collect::<Result<Vec<_>, _>>()?;
    if let Some(at) = mutations.iter().position(|m| matches!(m.op, Op::DeleteRange { .. })) {
        return delete_range(mutations, at, range);
    }
    let command = Command { request: id.and_then(request_id), action: Action::Write(mutations) };
    let bytes = undb_engine::command::encoded_len(&command);
    if len > 1 && bytes > BATCH_BYTES_MAX {
        return Err(too_large(format!("batch of {bytes} bytes; at most {BATCH_BYTES_MAX}")));
    }
    Ok(Write::One(command))
}

fn request_id(id: v1::RequestId) -> Option<RequestId> {
    let v1::RequestId { client, seq, first_attempt_ms } = id;
    (client != 0).then_some(RequestId { client, seq, first_attempt_ms })
}

fn delete_range(mut mutations: Vec<Mutation>, at: usize, range: &KeyRange) -> Result<Write, v1::Error> {
    if mutations.len() != 1 {
        return Err(invalid("delete_range must be alone in its request"));
    }
    let Mutation { key, condition, op, .. } = mutations.swap_remove(at);
    if condition.is_some() {
        return Err(invalid("delete_range takes no condition"));
    }
    let Op::DeleteRange { end } = op else { return Err(invalid("delete_range expected")) };
    let asked = KeyRange { start: key, end };
    if asked.is_empty() {
        return Err(invalid("delete_range ends before it starts"));
    }
    let KeyRange { start, end } = range.intersect(&asked);
    Ok(Write::DeleteRange { start, end })
}

fn mutation_from_wire(m: v1::Mutation, range: &KeyRange) -> Result<Mutation, v1::Error> {
    check_key(&m.key, range)?;
    let condition = m.condition.map(condition_from_wire).transpose()?;
    let op = match m.op.ok_or_else(|| invalid("a mutation says nothing to do"))? {
        v1::mutation::Op::Put(put) => put_from_wire(put)?,
        v1::mutation::Op::Delete(_) => Op::Delete,
        v1::mutation::Op::Increment(i) => Op::Increment { by: i.by, initial: i.initial, ttl_ms: i.ttl_ms },
        v1::mutation::Op::SetExpiry(e) => Op::SetExpiry(match (e.ttl_ms, e.expire_at_ms) {
            (0, 0) => NewExpiry::Never,
            (ttl, 0) => NewExpiry::TtlMs(ttl),
            (0, at) => NewExpiry::AtMs(at),
            _ => return Err(invalid("set_expiry takes ttl_ms or expire_at_ms, not both")),
        }),
        v1::mutation::Op::DeleteRange(d) => Op::DeleteRange { end: d.end },
        v1::mutation::Op::Check(_) => Op::Check,
    };
    Ok(Mutation { key: m.key, condition, return_previous: m.return_previous, op })
}

fn condition_from_wire(condition: v1::Condition) -> Result<Condition, v1::Error> {
    match condition.want {
        Some(v1::condition::Want::Absent(_)) => Ok(Condition::Absent),
        Some(v1::condition::Want::Present(_)) => Ok(Condition::Present),
        Some(v1::condition::Want::Version(version)) => Ok(Condition::Version(version)),
        Some(v1::condition::Want::Value(value)) => Ok(Condition::Value(value)),
        None => Err(invalid("a condition says nothing")),
    }
}

fn put_from_wire(put: v1::Put) -> Result<Op, v1::Error> {
    let len = put.value.len();
    if len > VALUE_BYTES_MAX {
        return Err(too_large(format!("value of {len} bytes; at most {VALUE_BYTES_MAX}")));
    }
    let expiry = match (put.ttl_ms, put.expire_at_ms, put.keep_ttl) {
        (0, 0, false) => Expiry::Default,
        (0, 0, true) => Expiry::Keep,
        (ttl, 0, false) => Expiry::TtlMs(ttl),
        (0, at, false) => Expiry::AtMs(at),
        _ => return Err(invalid("put takes one of ttl_ms, expire_at_ms and keep_ttl")),
    };
    Ok(Op::Put { value: put.value, kind: put.kind, expiry })
}

/// Refuses a key that is too long or lies in another shard.
pub fn check_key(key: &Bytes, range: &KeyRange) -> Result<(), v1::Error> {
    if key.is_empty() {
        return Err(invalid("an encoded key is never empty"));
    }
    if key.len() > TREE_KEY_BYTES_MAX {
        return Err(too_large(format!("encoded key of {} bytes; at most {TREE_KEY_BYTES_MAX}", key.len())));
    }
    if !range.contains(key) {
        return Err(wire_error(ErrorCode::EpochNotMatch, "the key lies outside of the shard"));
    }
    Ok(())
}

/// The answer to a write command.
pub fn outcome_to_wire(outcome: Outcome) -> Result<v1::WriteResponse, v1::Error> {
    match outcome {
        Outcome::Applied { results } => Ok(v1::WriteResponse {
            applied: true,
            failed: 0,
            results: results.into_iter().map(result_to_wire).collect(),
        }),
        Outcome::ConditionFailed { failed, current } => {
            let result = v1::MutationResult {
                version: current.as_ref().map_or(0, |r| r.meta.version),
                existed: current.is_some(),
                previous: current.map(record_to_wire),
                number: 0,
            };
            Ok(v1::WriteResponse { applied: false, failed, results: vec![result] })
        }
        Outcome::Rejected { code, message } => Err(wire_error(reject_code(code), message)),
        Outcome::TooOld { watermark_ms } => Err(wire_error(
            ErrorCode::TooOld,
            format!("requests first made up to {watermark_ms} ms are forgotten here"),
        )),
        Outcome::Forgotten => Err(wire_error(
            ErrorCode::TooOld,
            "an earlier attempt was applied, but its answer was too large to keep",
        )),
        Outcome::Done | Outcome::Swept { .. } => {
            Err(wire_error(ErrorCode::Internal, "a write was answered as something else"))
        }
    }
}

fn reject_code(code: RejectCode) -> ErrorCode {
    match code {
        RejectCode::NotAnInteger => ErrorCode::NotAnInteger,
        RejectCode::Overflow => ErrorCode::Overflow,
        RejectCode::WrongKind => ErrorCode::WrongKind,
        RejectCode::TooLarge => ErrorCode::TooLarge,
        RejectCode::Invalid | RejectCode::ClockAhead => ErrorCode::InvalidArgument,
    }
}

fn result_to_wire(result: MutationResult) -> v1::MutationResult {
    v1::MutationResult {
        version: result.version,
        existed: result.existed,
        previous: result.previous.map(record_to_wire),
        number: result.number,
    }
}

fn record_to_wire(record: Record) -> v1::Record {
    v1::Record {
        key: Bytes::new(),
        value: record.value.unwrap_or_default(),
        version: record.meta.version,
        expire_at_ms: record.meta.expire_at_ms,
        kind: record.meta.kind,
        value_len: record.meta.value_len,
    }
}

/// A row as a record; scans carry the key, gets do not.
pub fn row_to_wire(row: Row, key: Bytes) -> v1::Record {
    v1::Record {
        key,
        value: row.value.unwrap_or_default(),
        version: row.meta.version,
        expire_at_ms: row.meta.expire_at_ms,
        kind: row.meta.kind,
        value_len: row.meta.value_len,
    }
}

/// A group's refusal. `Ambiguous` and `Deadline` of a proposal are unknown outcomes.
pub fn raft_error(error: RaftError) -> v1::Error {
    let message = error.to_string();
    match error {
        RaftError::NotLeader { leader, term } => {
            let (leader_replica_id, leader_store_id) = leader.unwrap_or_default();
            let error = wire_error(ErrorCode::NotLeader, message);
            v1::Error { leader_replica_id, leader_store_id, term, ..error }
        }
        RaftError::Busy => v1::Error { retry_after_ms: 20, ..wire_error(ErrorCode::ServerBusy, message) },
        RaftError::Ambiguous => wire_error(ErrorCode::Ambiguous, message),
        RaftError::Deadline(_) => wire_error(ErrorCode::DeadlineExceeded, message),
        RaftError::Refused(_) => wire_error(ErrorCode::Conflict, message),
        RaftError::Closed | RaftError::Fatal(_) => wire_error(ErrorCode::Unavailable, message),
        other => wire_error(ErrorCode::Internal, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range() -> KeyRange {
        KeyRange { start: Bytes::from_static(b"b"), end: Bytes::from_static(b"m") }
    }

    fn mutation(key: &'static [u8], op: v1::mutation::Op) -> v1::Mutation {
        v1::Mutation { key: key.into(), condition: None, return_previous: false, op: Some(op) }
    }

    fn code(result: Result<Write, v1::Error>) -> ErrorCode {
        result.expect_err("refused").code()
    }

    fn write(mutations: Vec<v1::Mutation>) -> Result<Write, v1::Error> {
        write_from_wire(v1::WriteRequest { mutations }, None, &range())
    }

    fn put(ttl_ms: u64, keep_ttl: bool, expire_at_ms: u64) -> v1::mutation::Op {
        v1::mutation::Op::Put(v1::Put { value: Bytes::new(), kind: 0, ttl_ms, keep_ttl, expire_at_ms })
    }

    #[test]
    fn keys_outside_of_the_shard_are_an_epoch_error() {
        let op = || v1::mutation::Op::Delete(v1::Delete {});
        assert_eq!(code(write(vec![mutation(b"a", op())])), ErrorCode::EpochNotMatch);
        assert_eq!(code(write(vec![mutation(b"c", op()), mutation(b"m", op())])), ErrorCode::EpochNotMatch);
        assert!(write(vec![mutation(b"b", op())]).is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(code(write(vec![])), ErrorCode::InvalidArgument);
        assert_eq!(code(write(vec![mutation(b"c", put(1, true, 0))])), ErrorCode::InvalidArgument);
        assert_eq!(code(write(vec![mutation(b"c", put(1, false, 1))])), ErrorCode::InvalidArgument);
        let silent = v1::Mutation { key: Bytes::from_static(b"c"), ..Default::default() };
        assert_eq!(code(write(vec![silent])), ErrorCode::InvalidArgument);
    }

    #[test]
    fn batches_are_bounded_by_count_and_bytes_and_one_large_value_is_not() {
        let op = || v1::mutation::Op::Delete(v1::Delete {});
        let many = (0..=BATCH_LEN_MAX).map(|_| mutation(b"c", op())).collect();
        assert_eq!(code(write(many)), ErrorCode::TooLarge);
        let large =
            |len: usize| v1::mutation::Op::Put(v1::Put { value: vec![0; len].into(), ..Default::default() });
        assert!(write(vec![mutation(b"c", large(VALUE_BYTES_MAX))]).is_ok());
        assert_eq!(code(write(vec![mutation(b"c", large(VALUE_BYTES_MAX + 1))])), ErrorCode::TooLarge);
        let two = vec![mutation(b"c", large(BATCH_BYTES_MAX)), mutation(b"d", op())];
        assert_eq!(code(write(two)), ErrorCode::TooLarge);
    }

    #[test]
    fn a_delete_range_is_cut_to_the_shard() {
        let op = v1::mutation::Op::DeleteRange(v1::DeleteRange { end: Bytes::new() });
        let Ok(Write::DeleteRange { start, end }) = write(vec![mutation(b"c", op)]) else {
            panic!("a delete range")
        };
        assert_eq!((&start[..], &end[..]), (&b"c"[..], &b"m"[..]));
    }

    #[test]
    fn a_request_id_of_client_zero_is_none() {
        let request = || v1::WriteRequest { mutations: vec![mutation(b"c", put(0, false, 0))] };
        let id = |client| Some(v1::RequestId { client, seq: 1, first_attempt_ms: 5 });
        let Ok(Write::One(command)) = write_from_wire(request(), id(0), &range()) else { panic!("one") };
        assert_eq!(command.request, None);
        let Ok(Write::One(command)) = write_from_wire(request(), id(9), &range()) else { panic!("one") };
        assert_eq!(command.request, Some(RequestId { client: 9, seq: 1, first_attempt_ms: 5 }));
    }

    #[test]
    fn a_failed_condition_answers_the_record_that_failed_it() {
        let meta = undb_engine::tree::RecordMeta { version: 8, ..Default::default() };
        let current = Some(Record { meta, value: None });
        let response = outcome_to_wire(Outcome::ConditionFailed { failed: 2, current }).expect("a response");
        assert!(!response.applied);
        assert_eq!(response.failed, 2);
        assert_eq!(response.results[0].previous.as_ref().map(|r| r.version), Some(8));
    }
}
