//! What a store does without being asked, in three loops that do not wait for each other:
//!
//! ```text
//! watch   free space, a poisoned log                                       (a tenth of a second)
//! tend    faults, who has started, log purge, expiry sweeps                (all replicas at once)
//! upkeep  flushes by memtable and by retained log, compaction, GC          (blocking, may take long)
//! ```

use crate::directory::ReplicaState;
use crate::error::StoreError;
use crate::replica::{Open, Replica};
use crate::stats::measure;
use crate::store::{Store, log_is_empty};
use futures::StreamExt;
use futures::stream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use undb_engine::EngineError;
use undb_engine::command::{Command, Outcome};
use undb_engine::shard::ShardError;
use undb_types::LogId;

/// Between looks at the log and the disk.
const WATCH_EVERY: Duration = Duration::from_millis(100);
/// Replicas tended at once.
const TEND_MAX: usize = 64;
/// Between steps of garbage collection that found nothing to do.
const GC_EVERY: Duration = Duration::from_secs(1);
/// Free space is measured at least this often.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// Sweeps of one shard in one pass.
const SWEEPS_MAX: usize = 16;
/// A sweep that is not committed by then is tried again in the next pass.
const SWEEP_DEADLINE: Duration = Duration::from_secs(5);
/// Fewer entries are not worth a purge.
const PURGE_STEP_ENTRIES: u64 = 256;

/// What decides how far a log may go. Pure input of `purge_target`.
#[derive(Clone, Copy, Debug)]
struct Retained {
    bytes: u64,
    purged: u64,
    last: u64,
    durable: u64,
}

/// Up to which index a log may be purged now: never past what is durable, leaving a tail for
/// followers that lag a little, as long as that tail fits into half of the budget.
fn purge_target(now: Retained, tail_entries: u64, budget: u64) -> Option<u64> {
    let entries = now.last.saturating_sub(now.purged).max(1);
    let entry_bytes = (now.bytes / entries).max(1);
    let tail = tail_entries.min(budget / 2 / entry_bytes);
    let target = now.durable.min(now.last.saturating_sub(tail));
    (target >= now.purged + PURGE_STEP_ENTRIES || (now.bytes > budget && target > now.purged))
        .then_some(target)
}

impl Store {
    /// The loop that must never be late.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut measured_at: Option<Instant> = None;
        let mut every = tokio::time::interval(WATCH_EVERY);
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.closing.cancelled() => return,
            }
            if let Some(why) = self.log.poisoned() {
                return self.fail(StoreError::Poisoned(why));
            }
            if self.disk.is_due() || measured_at.is_none_or(|at| at.elapsed() >= MEASURE_EVERY) {
                measured_at = Some(Instant::now());
                self.measure_disk().await;
            }
        }
    }

    /// The loop over replicas. One that waits for its quorum does not hold the others up.
    pub(crate) async fn tend(self: Arc<Self>) {
        let mut every = tokio::time::interval(Duration::from_millis(self.config.engine.maintain_ms));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.closing.cancelled() => return,
            }
            let tending = self.all().into_iter().map(|replica| {
                let store = self.clone();
                async move { store.tend_replica(&replica).await }
            });
            stream::iter(tending).buffer_unordered(TEND_MAX).collect::<Vec<()>>().await;
        }
    }

    async fn measure_disk(self: &Arc<Self>) {
        let store = self.clone();
        let measured = match tokio::task::spawn_blocking(move || measure(&store)).await {
            Ok(Ok(measured)) => measured,
            Ok(Err(error)) => return tracing::warn!(%error, "free space is not known"),
            Err(error) => return tracing::warn!(%error, "free space is not known"),
        };
        let reserve = self.config.reserve_bytes(measured.capacity);
        metrics::gauge!("undb_store_disk_free_bytes", "store" => self.label.clone())
            .set(measured.free as f64);
        metrics::gauge!("undb_store_request_memory_bytes", "store" => self.label.clone())
            .set(self.budget.used() as f64);
        if !self.disk.measured(measured, reserve) {
            return;
        }
        let (store, free) = (self.store_id, measured.free);
        match self.disk.is_full() {
            true => tracing::error!(store, free, reserve, "disk full: writes that add data are refused"),
            false => tracing::info!(store, free, reserve, "disk has room again"),
        }
    }

    async fn tend_replica(self: &Arc<Self>, replica: &Arc<Replica>) {
        let Ok(open) = replica.serving() else {
            return self.try_again(replica).await;
        };
        let status = open.group.status();
        if let Some(why) = &status.fatal {
            if let Some(poison) = self.log.poisoned() {
                return self.fail(StoreError::Poisoned(poison));
            }
            // A full disk is no damage: the replica comes back when there is room.
            let full = self.disk.is_full() || undb_full(why);
            replica.set_retry(full);
            return self.quarantine(replica, why);
        }
        self.note_started(replica).await;
        self.purge(replica, &open, &status).await;
        if status.is_leader && !self.is_stopping() {
            self.sweep(replica, &open).await;
        }
    }

    /// Writes down that a replica has begun, which its creation does where it is not cut off. A replica that
    /// is being created or destroyed is left to who does that: two writers of one descriptor get in each
    /// other's way, and a tombstone would be overwritten.
    async fn note_started(&self, replica: &Arc<Replica>) {
        let Ok(_one_at_a_time) = self.changing.try_lock() else { return };
        let is_here = self.replica(replica.id.shard.0).is_some_and(|there| Arc::ptr_eq(&there, replica));
        let state = replica.descriptor.lock().state;
        if is_here
            && state == ReplicaState::Created
            && !log_is_empty(&self.log, replica.id)
            && let Err(error) = self.mark_started(replica).await
        {
            tracing::warn!(group = %replica.id, error = error.message, "descriptor not written");
        }
    }

    /// Opens a replica again that a full disk stopped.
    async fn try_again(self: &Arc<Self>, replica: &Arc<Replica>) {
        if !replica.retry() || self.disk.is_full() || self.is_stopping() {
            return;
        }
        let _one_at_a_time = self.changing.lock().await;
        if self.replica(replica.id.shard.0).is_none_or(|there| !Arc::ptr_eq(&there, replica)) {
            return;
        }
        let descriptor = replica.descriptor.lock().clone();
        if self.host.close(replica.id).await.is_err() {
            return;
        }
        match self.open_parts(&descriptor).await {
            Ok(open) => {
                tracing::info!(group = %replica.id, "replica serves again");
                replica.reopen(open);
            }
            Err(why) => tracing::warn!(group = %replica.id, why, "replica not opened"),
        }
    }

    async fn purge(&self, replica: &Replica, open: &Open, status: &undb_raft::GroupStatus) {
        let Some(durable) = open.machine.shard().durable() else { return };
        let log = &self.config.log;
        let retained = Retained {
            bytes: self.log.retained_bytes(replica.id),
            purged: status.purged.map_or(0, |id| id.index),
            last: status.last_index.unwrap_or(0),
            durable: durable.index,
        };
        let wanted = self.purge_wanted.lock().remove(&replica.id).map(|id| id.index.min(durable.index));
        let index = match wanted {
            Some(index) if index > retained.purged => index,
            _ => match purge_target(retained, log.tail_entries, log.retained_bytes_per_shard) {
                Some(index) => index,
                None => return,
            },
        };
        if let Err(error) = open.group.purge_to_durable(LogId { index, ..durable }).await {
            tracing::debug!(group = %replica.id, %error, "log not purged yet");
        }
    }

    async fn sweep(&self, replica: &Replica, open: &Open) {
        for _ in 0..SWEEPS_MAX {
            let shard = open.machine.shard();
            match shard.sweep_due(self.clock.now_ms()) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::warn!(group = %replica.id, %error, "expiry index not read"),
            }
            let deadline = Instant::now() + SWEEP_DEADLINE;
            match open.writer.write(Command::sweep(), deadline).await {
                Ok(Outcome::Swept { removed, more }) => {
                    metrics::counter!("undb_store_swept_records_total", "store" => self.label.clone())
                        .increment(removed.into());
                    if !more {
                        return;
                    }
                }
                // Leadership moved, or the quorum is away: whoever leads next sweeps.
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// The slow loop.
    pub(crate) async fn upkeep(self: Arc<Self>) {
        let mut gc_at: Option<Instant> = None;
        let mut every = tokio::time::interval(Duration::from_millis(self.config.engine.maintain_ms));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = every.tick() => {}
                () = self.closing.cancelled() => return,
            }
            let store = self.clone();
            let gc = gc_at.is_none_or(|at| at.elapsed() >= GC_EVERY);
            match tokio::task::spawn_blocking(move || store.upkeep_pass(gc)).await {
                Ok(more) if gc => gc_at = (!more).then(Instant::now),
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "upkeep pass failed"),
            }
        }
    }

    /// One pass; true when garbage collection has more to do at once.
    fn upkeep_pass(self: &Arc<Self>, gc: bool) -> bool {
        let log = &self.config.log;
        let mut open: Vec<(Arc<Replica>, Arc<Open>)> =
            self.all().into_iter().filter_map(|r| r.serving().ok().map(|open| (r, open))).collect();
        // Whoever holds most of the log goes first.
        open.sort_by_key(|(replica, _)| std::cmp::Reverse(self.log.retained_bytes(replica.id)));
        let mut over = self.log.total_bytes().saturating_sub(log.retained_bytes);
        for (replica, open) in &open {
            if self.closing.is_cancelled() {
                return false;
            }
            let retained = self.log.retained_bytes(replica.id);
            let shard = open.machine.shard();
            let behind = shard.durable() < shard.applied().log_id;
            let must = behind && (retained > log.retained_bytes_per_shard / 2 || over > 0);
            over = over.saturating_sub(if must { retained } else { 0 });
            let result = if must { shard.flush().map(|_| ()) } else { Ok(()) };
            if let Err(error) = result.and_then(|()| shard.maintain().map(|_| ())) {
                self.upkeep_failed(replica, error);
            }
        }
        // What belongs to no single shard: memory and log over their budgets, directories to remove.
        if let Err(error) = self.engine.maintain() {
            tracing::warn!(store = self.store_id, %error, "engine upkeep failed");
        }
        if !gc {
            return false;
        }
        match self.engine.gc_step(self.clock.now_ms()) {
            Ok(report) => {
                self.take_gc_report(&report);
                report.moved_bytes > 0 || !report.deleted.is_empty()
            }
            Err(error) => {
                tracing::warn!(store = self.store_id, %error, "garbage collection step failed");
                false
            }
        }
    }

    fn take_gc_report(&self, report: &undb_engine::GcReport) {
        self.meters.relocated_bytes.fetch_add(report.moved_bytes, Ordering::Relaxed);
        let label = || self.label.clone();
        metrics::counter!("undb_store_gc_moved_bytes_total", "store" => label())
            .increment(report.moved_bytes);
        metrics::counter!("undb_store_gc_deleted_bytes_total", "store" => label())
            .increment(report.deleted_bytes);
        metrics::gauge!("undb_store_space_amplification_ratio", "store" => label())
            .set(report.space_amplification);
        if report.unreadable_values > 0 {
            let values = report.unreadable_values;
            tracing::error!(
                store = self.store_id,
                values,
                "values cannot be read: their replicas need repair"
            );
        }
        *self.purge_wanted.lock() = report.purge_wanted.iter().copied().collect();
    }

    fn upkeep_failed(self: &Arc<Self>, replica: &Arc<Replica>, error: ShardError) {
        match error {
            ShardError::Engine(EngineError::DiskFull { what }) => {
                tracing::warn!(group = %replica.id, what, "no space for upkeep");
                self.disk.close();
            }
            ShardError::Engine(EngineError::Gone(_)) => {}
            error => {
                if self.log.poisoned().is_none() {
                    self.quarantine(replica, &error.to_string());
                }
            }
        }
    }
}

/// What a fatal status says when the disk was full.
fn undb_full(why: &str) -> bool {
    ["disk full", "no space left", "No space left", "quota exceeded"].iter().any(|text| why.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retained(bytes: u64, purged: u64, last: u64, durable: u64) -> Retained {
        Retained { bytes, purged, last, durable }
    }

    #[test]
    fn a_log_is_never_purged_past_what_is_durable() {
        assert_eq!(purge_target(retained(1 << 30, 0, 10_000, 500), 0, 1 << 20), Some(500));
        assert_eq!(purge_target(retained(1 << 30, 500, 10_000, 500), 0, 1 << 20), None);
    }

    #[test]
    fn a_tail_stays_for_followers_as_long_as_it_is_cheap() {
        assert_eq!(purge_target(retained(10_000, 0, 10_000, 10_000), 1000, 1 << 30), Some(9000));
        let large_entries = retained(10_000 << 20, 0, 10_000, 10_000);
        assert_eq!(purge_target(large_entries, 1000, 128 << 20), Some(10_000 - 64));
    }

    #[test]
    fn small_steps_wait_unless_the_budget_is_exceeded() {
        assert_eq!(purge_target(retained(1000, 0, 100, 100), 0, 1 << 30), None);
        assert_eq!(purge_target(retained(1000, 0, 100, 100), 0, 500), Some(100));
    }
}
