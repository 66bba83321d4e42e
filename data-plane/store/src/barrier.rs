//! One barrier serves all reads that wait for it.
//!
//! ## Invariants
//! - A read is served by a barrier that *began after the read came*: one that is under way may have
//!   fixed its position before a write that the reader already saw acknowledged.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::oneshot;
use undb_raft::{Barrier, Group, RaftError};
use undb_runtime::Tasks;

/// The barrier of one group.
pub struct BarrierGate {
    inner: Arc<Inner>,
}

struct Inner {
    group: Group,
    kind: Barrier,
    tasks: Tasks,
    // Leaf lock.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: bool,
    waiting: Vec<oneshot::Sender<Result<(), RaftError>>>,
}

impl BarrierGate {
    /// No reads yet.
    pub fn new(group: Group, kind: Barrier, tasks: Tasks) -> Self {
        Self { inner: Arc::new(Inner { group, kind, tasks, state: Mutex::default() }) }
    }

    /// After `Ok` what is applied here is as new as everything acknowledged before the call. Cancel safe.
    pub async fn pass(&self) -> Result<(), RaftError> {
        let (sender, receiver) = oneshot::channel();
        let idle = {
            let mut state = self.inner.state.lock();
            state.waiting.push(sender);
            !std::mem::replace(&mut state.running, true)
        };
        if idle {
            let inner = self.inner.clone();
            self.inner.tasks.spawn("read barrier", async move { inner.drive().await });
        }
        receiver.await.unwrap_or(Err(RaftError::Closed))
    }
}

impl Inner {
    async fn drive(&self) {
        loop {
            let waiting = {
                let mut state = self.state.lock();
                if state.waiting.is_empty() {
                    state.running = false;
                    return;
                }
                std::mem::take(&mut state.waiting)
            };
            let passed = self.group.barrier(self.kind).await;
            for reader in waiting {
                // A reader that went away needs no answer.
                let _gone = reader.send(passed.clone());
            }
        }
    }
}
