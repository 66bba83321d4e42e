//! Whether a store is ready: an orchestrator stops the next one only when this one is.
//!
//! Ready is who has been asked by cluster control to keep nothing, or has once had all that it keeps as far
//! as its groups were. Later it stays ready: a replica that is made for balance is not a reason to wait,
//! and whether another store may stop is for the availability gate to say. Who is stopping is not ready.

use crate::store::Store;
use std::sync::atomic::Ordering;

impl Store {
    /// `Err` says in a person's words why not.
    pub fn readiness(&self) -> Result<(), String> {
        if self.is_stopping() {
            return Err("the store is stopping".into());
        }
        if self.was_ready.load(Ordering::Relaxed) {
            return Ok(());
        }
        let replicas = self.all();
        if replicas.is_empty() && !self.registered.load(Ordering::Relaxed) {
            return Err("cluster control has not been reached yet".into());
        }
        let behind: Vec<_> = replicas.iter().filter(|r| !r.caught_up()).collect();
        let Some(first) = behind.first() else {
            self.was_ready.store(true, Ordering::Relaxed);
            return Ok(());
        };
        let why = first.fault().map(|fault| format!("; replica {}: {fault}", first.id)).unwrap_or_default();
        Err(format!("{} of {} replicas have not caught up yet{why}", behind.len(), replicas.len()))
    }
}
