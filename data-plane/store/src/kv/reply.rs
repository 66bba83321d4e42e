//! The way back of one request. It holds the request's place in its session and its bytes of the
//! store's budget until the answer has left the session's queue.

use crate::budget::Permit;
use crate::meters::{Kind, Meters};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::Instant;
use undb_proto::v1;
use v1::kv_response::Result as Answer;

/// An answer on its way out.
pub struct Outgoing {
    /// What is sent.
    pub response: v1::KvResponse,
    _slot: OwnedSemaphorePermit,
    _bytes: Permit,
}

/// Answers one request, once.
pub struct Reply {
    pub(super) id: u64,
    pub(super) queue: mpsc::Sender<Outgoing>,
    pub(super) slot: OwnedSemaphorePermit,
    pub(super) bytes: Permit,
    pub(super) kind: Kind,
    pub(super) began: Instant,
    pub(super) meters: Arc<Meters>,
}

impl Reply {
    /// Sends the answer. The queue has a place for every slot, so this never waits.
    pub fn send(self, answer: Result<Answer, v1::Error>) {
        let answer = match answer {
            Ok(answer) => {
                self.meters.served(self.kind, self.began.elapsed());
                answer
            }
            Err(error) => {
                self.meters.refused(self.kind, error.code());
                Answer::Error(error)
            }
        };
        let response = v1::KvResponse { id: self.id, result: Some(answer) };
        let outgoing = Outgoing { response, _slot: self.slot, _bytes: self.bytes };
        // The session may be gone; its client asks again.
        let _gone = self.queue.try_send(outgoing);
    }
}
