//! The end of a store: leaders move away first, then sessions end, then what is in memory is flushed.
//! None of it is needed for safety; it makes a restart invisible to clients and quick to recover.

use crate::replica::Replica;
use crate::store::Store;
use futures::StreamExt;
use futures::stream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use undb_raft::{GroupStatus, RaftError};
use undb_runtime::Shutdown;

/// Leaders moved at once.
const MOVES_MAX: usize = 64;
const RETRY_AFTER: Duration = Duration::from_millis(50);
/// A voter that has been silent for longer takes nothing over; where all have, there is nothing to wait for.
const SILENT_AFTER: Duration = Duration::from_secs(2);

impl Store {
    /// Waits for the end to begin, then ends everything in order. `rpc` is begun when the sessions are
    /// over.
    pub(crate) async fn stop_in_order(self: Arc<Self>, rpc: Shutdown) {
        self.shutdown.begun().await;
        let began = Instant::now();
        let limit = Duration::from_millis(self.config.stop_deadline_ms).min(self.shutdown.remaining());
        self.stopping.store(true, Ordering::Relaxed);
        self.beat_now.notify_one();
        // Half of the time for leaders; flushing and closing need some too.
        let moved = self.move_leaders(began + limit / 2).await;
        tracing::info!(store = self.store_id, moved, "leaders moved away");
        self.closing.cancel();
        rpc.begin();
        self.host.shutdown().await;
        self.flush_all(began + limit.mul_f64(0.9)).await;
        let log = self.log.clone();
        if tokio::task::spawn_blocking(move || log.close()).await.is_err() {
            tracing::warn!(store = self.store_id, "log did not close");
        }
        // Connections that end slowly may keep this store in memory for a moment: its replicas and its
        // lock go now, so that the directory can be opened again.
        self.replicas.write().clear();
        drop(self.directory.lock().take());
        tracing::info!(store = self.store_id, "store ended");
    }

    async fn move_leaders(self: &Arc<Self>, until: Instant) -> usize {
        if self.log.poisoned().is_some() {
            return 0;
        }
        let moves = self.all().into_iter().map(|replica| async move { move_away(&replica, until).await });
        let moved: Vec<bool> = stream::iter(moves).buffer_unordered(MOVES_MAX).collect().await;
        moved.into_iter().filter(|moved| *moved).count()
    }

    async fn flush_all(self: &Arc<Self>, until: Instant) {
        let store = self.clone();
        let flush = tokio::task::spawn_blocking(move || {
            for replica in store.all() {
                let Ok(open) = replica.serving() else { continue };
                if Instant::now() >= until || store.log.poisoned().is_some() {
                    return;
                }
                if let Err(error) = open.machine.shard().flush() {
                    tracing::warn!(group = %replica.id, %error, "shard not flushed");
                }
            }
        });
        if timeout_at(until, flush).await.is_err() {
            tracing::warn!(store = self.store_id, "not everything was flushed in time; the log has it");
        }
    }
}

/// Hands one leadership over; true when it was ours and is not any more.
async fn move_away(replica: &Arc<Replica>, until: Instant) -> bool {
    let Ok(open) = replica.serving() else { return false };
    let mut had = false;
    while Instant::now() < until {
        let status = open.group.status();
        if !status.is_leader {
            return had;
        }
        had = true;
        let Some(to) = best_successor(&status) else { return false };
        match timeout_at(until, open.group.transfer_leader(to)).await {
            Ok(Ok(()) | Err(RaftError::NotLeader { .. })) => return true,
            Ok(Err(error)) => tracing::debug!(group = %replica.id, %error, "leader not moved yet"),
            Err(_) => return false,
        }
        tokio::time::sleep(RETRY_AFTER).await;
    }
    false
}

/// The voter that has most of the log, of those that answered lately.
fn best_successor(status: &GroupStatus) -> Option<u64> {
    let answers = |age: Option<Duration>| age.is_some_and(|age| age < SILENT_AFTER);
    let voters = status.peers.iter().filter(|p| status.voters.contains_key(&p.replica) && answers(p.ack_age));
    voters.max_by_key(|p| (p.matched, std::cmp::Reverse(p.ack_age))).map(|p| p.replica)
}
