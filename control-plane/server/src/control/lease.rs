//! The lease of cluster control: asked for by all, held by one, renewed at a third of its time.
//!
//! The holder trusts it for less time than metadata grants: from before the request was sent. Fencing
//! by epoch makes even a wrong trust harmless; this only keeps two from answering for long.

use super::Control;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use undb_proto::v1::{self, meta_command::Op};

/// Who we are to metadata, and whether we hold it.
pub(super) struct Lease {
    /// New with every process, so that an owner that restarts has another epoch.
    owner: String,
    address: String,
    ttl: Duration,
    // Leaf lock.
    held: Mutex<Option<(u64, Instant)>>,
    epoch: watch::Sender<Option<u64>>,
}

impl Lease {
    pub fn new(address: String, ttl_ms: u64) -> Self {
        let owner = format!("{address}/{}", crate::running::unique_id());
        let ttl = Duration::from_millis(ttl_ms);
        Self { owner, address, ttl, held: Mutex::default(), epoch: watch::Sender::default() }
    }

    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The epoch while the lease is held.
    pub fn held(&self) -> Option<u64> {
        let held = *self.held.lock();
        held.filter(|(_, until)| Instant::now() < *until).map(|(epoch, _)| epoch)
    }

    /// Follows who holds it: our epoch, or nobody of us.
    pub fn epochs(&self) -> watch::Receiver<Option<u64>> {
        self.epoch.subscribe()
    }

    fn set(&self, held: Option<(u64, Instant)>) {
        *self.held.lock() = held;
        let epoch = held.map(|(epoch, _)| epoch);
        let changed = self.epoch.send_if_modified(|known| std::mem::replace(known, epoch) != epoch);
        if changed {
            match epoch {
                Some(epoch) => tracing::info!(epoch, "control lease acquired"),
                None => tracing::warn!("control lease lost"),
            }
            metrics::gauge!("undb_control_lease_held").set(f64::from(u8::from(epoch.is_some())));
        }
    }
}

/// Acquires and renews; never returns. The others ask as often as the holder, which is how a takeover
/// begins.
pub(super) async fn keep(control: Control) {
    control.0.meta.ready().await;
    let lease = &control.0.lease;
    loop {
        let op = Op::AcquireControlLease(v1::AcquireControlLease {
            owner: lease.owner.clone(),
            address: lease.address.clone(),
            ttl_ms: u64::try_from(lease.ttl.as_millis()).unwrap_or(u64::MAX),
        });
        let asked = Instant::now();
        match control.0.meta.propose(0, op).await {
            Ok(result) => {
                let epoch = result.control_lease.map_or(0, |l| l.epoch);
                lease.set(Some((epoch, asked + lease.ttl)));
            }
            Err(error) => {
                // CONFLICT: somebody else holds it. Otherwise ours runs until its time is over.
                if error.code() == v1::ErrorCode::Conflict || lease.held().is_none() {
                    lease.set(None);
                }
                tracing::debug!(%error, "control lease not granted");
            }
        }
        tokio::time::sleep(lease.ttl / 3).await;
    }
}
