//! Writes: checked, then queued for an entry; a delete-range is a loop of entries.

use super::reply::Reply;
use crate::replica::{Open, Replica};
use crate::store::Store;
use crate::wire::{Write, outcome_to_wire, write_from_wire};
use crate::writer::{Ticket, Writer};
use bytes::Bytes;
use std::sync::Arc;
use tokio::time::Instant;
use undb_engine::command::{Action, Command, Mutation, Op, Outcome};
use undb_proto::v1::ErrorCode;
use undb_proto::{v1, wire_error};
use v1::kv_response::Result as Answer;

/// Queues a write; the caller pumps the writer.
pub fn submit(
    store: &Arc<Store>,
    replica: &Arc<Replica>,
    open: &Arc<Open>,
    request: v1::WriteRequest,
    id: Option<v1::RequestId>,
    deadline: Instant,
    reply: Reply,
) {
    match write_from_wire(request, id, &replica.range) {
        Err(error) => reply.send(Err(error)),
        Ok(Write::One(command)) => {
            let grows = grows(&command);
            let answer = Box::new(move |outcome: Result<Outcome, v1::Error>| {
                reply.send(outcome.and_then(outcome_to_wire).map(Answer::Write));
            });
            open.writer.submit(command, Ticket { answer, deadline, grows });
        }
        Ok(Write::DeleteRange { start, end }) => {
            let writer = open.writer.clone();
            store.tasks.spawn("kv delete range", async move {
                let removed = delete_range(&writer, start, end, deadline).await;
                reply.send(removed.map(Answer::Write));
            });
        }
    }
}

/// True when a command can make the data larger; others pass when the disk is full.
fn grows(command: &Command) -> bool {
    let Action::Write(mutations) = &command.action else { return false };
    mutations.iter().any(|m| matches!(m.op, Op::Put { .. } | Op::Increment { .. }))
}

/// Entries of bounded size until the range is empty. Each is atomic, the whole is not; asking again
/// goes on where an earlier attempt ended.
async fn delete_range(
    writer: &Writer,
    start: Bytes,
    end: Bytes,
    deadline: Instant,
) -> Result<v1::WriteResponse, v1::Error> {
    let mut removed = 0;
    let mut next = Some(start);
    while let Some(key) = next.take() {
        if Instant::now() >= deadline {
            let message = format!("{removed} records removed, and there are more");
            return Err(wire_error(ErrorCode::DeadlineExceeded, message));
        }
        let command = Command::write(vec![Mutation::new(key, Op::DeleteRange { end: end.clone() })]);
        match writer.write(command, deadline).await? {
            Outcome::Applied { mut results } if results.len() == 1 => {
                let result = results.remove(0);
                removed += result.number;
                next = result.next;
            }
            other => {
                outcome_to_wire(other)?;
                return Err(wire_error(ErrorCode::Internal, "a delete range was answered as something else"));
            }
        }
    }
    let result = v1::MutationResult { number: removed, existed: removed > 0, ..Default::default() };
    Ok(v1::WriteResponse { applied: true, failed: 0, results: vec![result] })
}
