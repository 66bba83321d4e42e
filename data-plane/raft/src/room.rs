//! What happens while the disk is full.
//!
//! A refused append would be fatal for its group, so nothing that can wait reaches openraft: a leader
//! refuses commands, a follower refuses entries (its leader backs off). What openraft appends by itself,
//! such as a new leader's first entry, waits. The log takes its reserve again only when it is asked for
//! an append, so somebody asks now and then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use undb_log::{Log, LogError};
use undb_types::GroupId;

/// How often a full disk is tried again.
pub(crate) const RETRY: Duration = Duration::from_millis(500);

/// Clones are the same.
#[derive(Clone)]
pub(crate) struct Room {
    log: Log,
    trying: Arc<AtomicBool>,
}

impl Room {
    pub fn new(log: Log) -> Self {
        Self { log, trying: Arc::default() }
    }

    /// False while the log takes no entries.
    pub fn is_there(&self, group: GroupId) -> bool {
        if !self.log.is_full() {
            return true;
        }
        if !self.trying.swap(true, Ordering::AcqRel) {
            let Self { log, trying } = self.clone();
            tokio::spawn(async move {
                let asked =
                    tokio::task::spawn_blocking(move || log.append(group, Vec::new(), Box::new(|_| ())));
                if let Err(error) = asked.await {
                    tracing::warn!(%error, "trying a full disk failed");
                }
                tokio::time::sleep(RETRY).await;
                trying.store(false, Ordering::Release);
            });
        }
        false
    }
}

/// True for the refusal that ends when there is room.
pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(LogError::of(error), Some(LogError::DiskFull { .. }))
}
