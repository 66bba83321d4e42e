//! The right to have stores down: granted, kept alive, moved through its phases, and given back.
//!
//! ```text
//! Acquire --> DRAINING --(gate)--> SAFE_TO_STOP --> STOPPED --> CATCHING_UP --(proven up)--> gone
//!                 | live: may be     '-- nothing stopped, or again --^
//!                 '-> gone
//! ```
//! Whether shards bear it is decided by `gate` on what was observed, which is not part of the state.
//! What is checked here is that nothing has changed since that decision, and that it is not old.
//! Expiry changes nothing by itself: the stores go on counting as down.

use super::{Done, unchanged};
use crate::{Reject, State};
use undb_proto::v1::{self, DisruptionKind, DisruptionPhase as Phase, ErrorCode, StoreState};

/// A decision of the gate that is older says nothing about now, though no record changed.
pub const DECISION_MS_MAX: u64 = 5_000;
const TTL_MS_MAX: u64 = 10 * 60 * 1000;
const DURATION_MS_MAX: u64 = 7 * 24 * 3600 * 1000;
const STORES_MAX: usize = 1000;

impl State {
    /// Idempotent by holder, kind and stores: a proposer that lost the answer proposes again.
    pub(super) fn acquire_disruption(&mut self, op: v1::AcquireDisruption) -> Done {
        check_wish(&op)?;
        let kind = op.kind();
        let mut stores = op.stores;
        stores.sort_unstable();
        stores.dedup();
        let same = |l: &&v1::DisruptionLease| l.holder == op.holder && l.kind() == kind && l.stores == stores;
        if let Some(held) = self.disruption_leases.values().find(same) {
            return unchanged(lease_result(held.clone()));
        }
        for store_id in &stores {
            self.refuse_unless_free(*store_id)?;
        }
        self.check_decision(op.decision)?;
        let lease = v1::DisruptionLease {
            lease_id: self.cluster.next_id,
            token: self.next_revision(),
            kind: kind as i32,
            stores,
            holder: op.holder,
            granted_at_ms: self.now_ms,
            expires_at_ms: self.now_ms.saturating_add(op.ttl_ms),
            max_duration_ms: op.max_duration_ms,
            phase: Phase::Draining as i32,
            phase_since_ms: self.now_ms,
            revision: 0,
        };
        self.cluster.next_id += 1;
        let (result, mut change) = self.write_lease(lease)?;
        change.cluster = Some(self.cluster.clone());
        Ok((result, change))
    }

    /// The holder's heartbeat, and its word about how far it is; without a ttl only the latter.
    pub(super) fn renew_disruption(&mut self, op: v1::RenewDisruption) -> Done {
        if op.ttl_ms > TTL_MS_MAX {
            return Err(Reject::invalid("a disruption lease has a ttl of up to ten minutes"));
        }
        let mut lease = self.held_lease(op.lease_id, op.token)?.clone();
        let wanted = op.phase();
        let alive_until_ms = self.now_ms.saturating_add(op.ttl_ms);
        // A store that did not come back in time is stopped again to be mended, as when a bad image is
        // rolled back: the gate decides, and the lease has a ttl more for it.
        if wanted == Phase::SafeToStop && lease.phase() == Phase::CatchingUp {
            let needed_ms = alive_until_ms.saturating_sub(lease.granted_at_ms);
            lease.max_duration_ms = lease.max_duration_ms.max(needed_ms);
        }
        let ends_ms = lease.granted_at_ms.saturating_add(lease.max_duration_ms);
        lease.expires_at_ms = lease.expires_at_ms.max(alive_until_ms.min(ends_ms));
        if wanted != Phase::Unspecified && wanted != lease.phase() {
            self.check_step(&lease, wanted)?;
            if wanted == Phase::SafeToStop {
                self.check_decision(op.decision)?;
            }
            lease.phase = wanted as i32;
            lease.phase_since_ms = self.now_ms;
        }
        self.write_lease(lease)
    }

    /// Gone is gone: its stores count again, so each is proven up, or holds nothing, or was never
    /// allowed to stop. Repeated, it finds nothing and says so.
    pub(super) fn release_disruption(&mut self, op: v1::ReleaseDisruption) -> Done {
        if !self.disruption_leases.contains_key(&op.lease_id) {
            return unchanged(v1::MetaResult::default());
        }
        let lease = self.held_lease(op.lease_id, op.token)?;
        let cancelled = lease.phase() == Phase::Draining && self.now_ms < lease.expires_at_ms;
        // Somebody may be about to act on the yes; what its stores hold by then is another matter.
        if lease.phase() == Phase::SafeToStop {
            let message =
                "a lease that says SAFE_TO_STOP ends by way of CATCHING_UP; renew it with that phase";
            return Err(Reject::conflict(message));
        }
        let holding: Vec<u64> = lease.stores.iter().copied().filter(|id| self.holds_replicas(*id)).collect();
        if !cancelled && !holding.is_empty() {
            if lease.phase() != Phase::CatchingUp {
                let message =
                    "a lease ends after CATCHING_UP, with its stores proven up; renew it with that phase";
                return Err(Reject::conflict(message));
            }
            if let Some(store_id) = holding.iter().find(|id| !op.proven_up.contains(id)) {
                return Err(Reject::conflict(format!(
                    "store {store_id} is not proven up; it counts as down"
                )));
            }
            self.check_decision(op.decision)?;
        }
        self.disruption_leases.remove(&op.lease_id);
        let change = v1::MetaChange { deleted_disruption_leases: vec![op.lease_id], ..Default::default() };
        Ok((v1::MetaResult::default(), change))
    }

    fn refuse_unless_free(&self, store_id: u64) -> Result<(), Reject> {
        match self.stores.get(&store_id) {
            None => return Err(Reject::new(ErrorCode::NotFound, format!("there is no store {store_id}"))),
            Some(store) if store.state() == StoreState::StoreRemoved => {
                let message = format!("store {store_id} is removed for ever");
                return Err(Reject::new(ErrorCode::Fenced, message));
            }
            Some(_) => {}
        }
        match self.disruption_leases.values().find(|l| l.stores.contains(&store_id)) {
            None => Ok(()),
            Some(other) => Err(Reject::conflict(format!(
                "store {store_id} is under disruption lease {} of {}",
                other.lease_id, other.holder
            ))),
        }
    }

    /// The compare-and-set: what the gate looked at is what there is.
    pub(super) fn check_decision(&self, decision: Option<v1::GateDecision>) -> Result<(), Reject> {
        let decision = decision.ok_or_else(|| Reject::invalid("the decision of the gate is missing"))?;
        if decision.revision != self.revision {
            let message = format!(
                "the gate decided at revision {}, metadata is at {}; decide again",
                decision.revision, self.revision
            );
            return Err(Reject::conflict(message));
        }
        let age_ms = self.now_ms.saturating_sub(decision.at_ms);
        if age_ms > DECISION_MS_MAX {
            let message = format!("the gate decided {age_ms} ms ago; decide again");
            return Err(Reject::conflict(message));
        }
        // How old it is cannot be told.
        let ahead_ms = decision.at_ms.saturating_sub(self.now_ms);
        if ahead_ms > DECISION_MS_MAX {
            let message = format!(
                "the gate's clock is {ahead_ms} ms ahead of the one of metadata; set the clocks of their machines"
            );
            return Err(Reject::conflict(message));
        }
        Ok(())
    }

    fn check_step(&self, lease: &v1::DisruptionLease, wanted: Phase) -> Result<(), Reject> {
        let from = lease.phase();
        let next = matches!(
            (from, wanted),
            (Phase::Draining, Phase::SafeToStop)
                | (Phase::SafeToStop, Phase::Stopped)
                | (Phase::SafeToStop | Phase::Stopped, Phase::CatchingUp)
                | (Phase::Draining, Phase::CatchingUp)
                | (Phase::CatchingUp, Phase::SafeToStop)
        );
        if !next {
            let message =
                format!("disruption lease {} cannot go from {from:?} to {wanted:?}", lease.lease_id);
            return Err(Reject::conflict(message));
        }
        if wanted == Phase::SafeToStop && self.now_ms >= lease.expires_at_ms {
            let message = format!("disruption lease {} has lasted its longest duration", lease.lease_id);
            return Err(Reject::conflict(message));
        }
        Ok(())
    }

    fn held_lease(&self, lease_id: u64, token: u64) -> Result<&v1::DisruptionLease, Reject> {
        let Some(lease) = self.disruption_leases.get(&lease_id) else {
            let message = format!("there is no disruption lease {lease_id}");
            return Err(Reject::new(ErrorCode::NotFound, message));
        };
        if lease.token != token {
            let message = format!("token {token} is not the one of disruption lease {lease_id}");
            return Err(Reject::new(ErrorCode::Fenced, message));
        }
        Ok(lease)
    }

    fn holds_replicas(&self, store_id: u64) -> bool {
        self.shards.values().any(|s| super::replicas(s).iter().any(|r| r.store_id == store_id))
    }

    fn write_lease(&mut self, mut lease: v1::DisruptionLease) -> Done {
        lease.revision = self.next_revision();
        self.disruption_leases.insert(lease.lease_id, lease.clone());
        let change = v1::MetaChange { disruption_leases: vec![lease.clone()], ..Default::default() };
        Ok((lease_result(lease), change))
    }
}

fn check_wish(op: &v1::AcquireDisruption) -> Result<(), Reject> {
    if op.holder.is_empty() || op.stores.is_empty() || op.stores.len() > STORES_MAX {
        return Err(Reject::invalid(format!("a disruption has a holder and 1 to {STORES_MAX} stores")));
    }
    if op.kind() == DisruptionKind::Unspecified {
        return Err(Reject::new(ErrorCode::NotSupported, "this build does not know this kind of disruption"));
    }
    if op.ttl_ms == 0 || op.ttl_ms > TTL_MS_MAX {
        return Err(Reject::invalid("a disruption lease has a ttl of up to ten minutes"));
    }
    if op.max_duration_ms < op.ttl_ms || op.max_duration_ms > DURATION_MS_MAX {
        return Err(Reject::invalid("a disruption lasts at least its ttl and at most seven days"));
    }
    Ok(())
}

fn lease_result(lease: v1::DisruptionLease) -> v1::MetaResult {
    v1::MetaResult { disruption_lease: Some(lease), ..Default::default() }
}
