//! The way back of one request. It holds the request's place in its session and its bytes of the
//! store's budget until the answer has left the session's queue.

use crate::budget::Permit;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
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
    pub(super) served: Arc<AtomicU64>,
}

impl Reply {
    /// Sends the answer. The queue has a place for every slot, so this never waits.
    pub fn send(self, answer: Result<Answer, v1::Error>) {
        let answer = match answer {
            Ok(answer) => {
                self.served.fetch_add(1, Ordering::Relaxed);
                answer
            }
            Err(error) => Answer::Error(error),
        };
        let response = v1::KvResponse { id: self.id, result: Some(answer) };
        let outgoing = Outgoing { response, _slot: self.slot, _bytes: self.bytes };
        // The session may be gone; its client asks again.
        let _gone = self.queue.try_send(outgoing);
    }
}
