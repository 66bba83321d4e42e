//! The writes of one shard: queued, put together into entries, proposed, answered.
//!
//! ```text
//! submit -> Batcher --(fewer than N entries in flight)--> propose -> outcomes -> each one's answer
//! ```
//! An answer says NOT_LEADER, SERVER_BUSY or DISK_FULL only when the command was certainly not
//! proposed; whatever is not certain is AMBIGUOUS.

use crate::batcher::{Batch, Batcher, Bounds};
use crate::disk::{Admission, DiskGate};
use crate::meters::Meters;
use crate::wire::raft_error;
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::time::Instant;
use undb_engine::command::{Command, EntryHeader, Outcome, decode_outcomes, encode};
use undb_proto::v1::ErrorCode;
use undb_proto::{v1, wire_error};
use undb_raft::{Group, RaftError};
use undb_runtime::{Clock, Tasks};

/// What a command becomes.
pub type Answer = Result<Outcome, v1::Error>;

/// One waiting command's way back and the time until which somebody waits.
pub struct Ticket {
    /// Called once.
    pub answer: Box<dyn FnOnce(Answer) + Send>,
    /// Behind it nobody waits.
    pub deadline: Instant,
    /// It may make the data larger: refused when the disk is full.
    pub grows: bool,
}

/// The write path of one shard. Clones share it.
#[derive(Clone)]
pub struct Writer {
    inner: Arc<Inner>,
}

struct Inner {
    group: Group,
    clock: Clock,
    tasks: Tasks,
    disk: Arc<DiskGate>,
    meters: Arc<Meters>,
    default_ttl_ms: u64,
    in_flight_max: usize,
    // Leaf lock.
    state: Mutex<State>,
}

struct State {
    batcher: Batcher<Ticket>,
    in_flight: usize,
}

/// What a writer needs from its store.
#[derive(Clone)]
pub struct WriterParts {
    /// Time for the entries.
    pub clock: Clock,
    /// Where its proposals run.
    pub tasks: Tasks,
    /// Whether there is room.
    pub disk: Arc<DiskGate>,
    /// Counts and times.
    pub meters: Arc<Meters>,
    /// Bounds of an entry and the queue.
    pub bounds: Bounds,
    /// Entries that wait for their commit at once.
    pub in_flight_max: usize,
}

impl Writer {
    /// Nothing waits. `default_ttl_ms` is the table's.
    pub fn new(group: Group, parts: WriterParts, default_ttl_ms: u64) -> Self {
        let state = State { batcher: Batcher::new(parts.bounds), in_flight: 0 };
        Self {
            inner: Arc::new(Inner {
                group,
                clock: parts.clock,
                tasks: parts.tasks,
                disk: parts.disk,
                meters: parts.meters,
                default_ttl_ms,
                in_flight_max: parts.in_flight_max,
                state: Mutex::new(state),
            }),
        }
    }

    /// Queues a command; call `pump` after the last of several.
    pub fn submit(&self, command: Command, ticket: Ticket) {
        let inner = &self.inner;
        if ticket.grows {
            match inner.disk.admit(undb_engine::command::encoded_len(&command) as u64) {
                Admission::Let => {}
                Admission::Unsure => return (ticket.answer)(Err(busy("free space is being measured", 50))),
                Admission::Full => return (ticket.answer)(Err(disk_full())),
            }
        }
        let refused = inner.state.lock().batcher.push(command, ticket);
        if let Err(ticket) = refused {
            (ticket.answer)(Err(busy("too many writes wait for this shard", 50)));
        }
    }

    /// Starts as many entries as may be in flight.
    pub fn pump(&self) {
        loop {
            let batch = {
                let mut state = self.inner.state.lock();
                if state.in_flight >= self.inner.in_flight_max {
                    return;
                }
                let Some(batch) = state.batcher.next() else { return };
                state.in_flight += 1;
                batch
            };
            let writer = self.clone();
            self.inner.tasks.spawn("propose", async move {
                writer.inner.send(batch).await;
                writer.inner.state.lock().in_flight -= 1;
                writer.pump();
            });
        }
    }

    /// One command that adds no data; answers when it is applied. Dropping it leaves
    /// the outcome unknown.
    pub async fn write(&self, command: Command, deadline: Instant) -> Answer {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let answer = Box::new(move |answer| {
            let _gone = sender.send(answer);
        });
        self.submit(command, Ticket { answer, deadline, grows: false });
        self.pump();
        receiver.await.unwrap_or_else(|_| Err(ambiguous("the store is stopping")))
    }

    /// Answers all that wait; for a replica that is closed.
    pub fn refuse_all(&self, error: &v1::Error) {
        let waiting = self.inner.state.lock().batcher.drain();
        for ticket in waiting {
            (ticket.answer)(Err(error.clone()));
        }
    }
}

impl Inner {
    async fn send(&self, batch: Batch<Ticket>) {
        let now = Instant::now();
        let (mut commands, mut tickets) = (Vec::new(), Vec::new());
        for (command, ticket) in batch.commands.into_iter().zip(batch.tokens) {
            if ticket.deadline <= now {
                let late =
                    wire_error(ErrorCode::DeadlineExceeded, "the deadline was over before it was proposed");
                (ticket.answer)(Err(late));
                continue;
            }
            commands.push(command);
            tickets.push(ticket);
        }
        let Some(until) = tickets.iter().map(|t| t.deadline).max() else { return };
        self.meters.entry_commands.record(commands.len() as f64);
        let header = EntryHeader { now_ms: self.clock.now_ms(), default_ttl_ms: self.default_ttl_ms };
        let proposed = tokio::time::timeout_at(until, self.group.propose(encode(header, &commands))).await;
        self.meters.commit_seconds.record(now.elapsed().as_secs_f64());
        drop(commands);
        let answers = self.answers(proposed, tickets.len());
        for (ticket, answer) in tickets.into_iter().zip(answers) {
            (ticket.answer)(answer);
        }
    }

    fn answers(
        &self,
        proposed: Result<Result<(undb_types::LogId, Bytes), RaftError>, tokio::time::error::Elapsed>,
        count: usize,
    ) -> Vec<Answer> {
        let all = |error: v1::Error| vec![Err(error); count];
        let response = match proposed {
            Err(_) => {
                return all(wire_error(ErrorCode::DeadlineExceeded, "not committed in time; it may yet be"));
            }
            // It may have been appended before the group stopped.
            Ok(Err(RaftError::Fatal(why))) => return all(ambiguous(&format!("the replica stopped: {why}"))),
            Ok(Err(error)) => return all(raft_error(error)),
            Ok(Ok((_, response))) => response,
        };
        match decode_outcomes(&response) {
            Ok(outcomes) if outcomes.outcomes.len() == count => {
                outcomes.outcomes.into_iter().map(Ok).collect()
            }
            // Applied before: its outcomes are gone.
            Ok(_) => all(ambiguous("it was applied, but its outcome is not known any more")),
            Err(error) => all(wire_error(ErrorCode::Internal, error.to_string())),
        }
    }
}

/// A refusal that names the time after which another attempt makes sense.
pub fn busy(why: &str, retry_after_ms: u32) -> v1::Error {
    v1::Error { retry_after_ms, ..wire_error(ErrorCode::ServerBusy, why) }
}

fn ambiguous(why: &str) -> v1::Error {
    wire_error(ErrorCode::Ambiguous, why)
}

fn disk_full() -> v1::Error {
    wire_error(
        ErrorCode::DiskFull,
        "the disk of the leader is full; deletes still work: remove data, or add space or stores",
    )
}
