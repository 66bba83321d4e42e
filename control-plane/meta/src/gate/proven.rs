//! That the stores of a lease are back, so that it may end.

use super::{BLOCKING_MAX, Blocking, Decision, Denial, Gate, Observations, Question, Reason, Settings};
use crate::State;
use crate::plan::Now;
use crate::state::shard_of;
use undb_proto::v1::{self, DisruptionPhase, Role};

/// Are the stores of a lease that says CATCHING_UP up, with every voter on them caught up, by words that
/// were said after it said so? Older ones may be from before the stop.
pub fn proven_up(
    state: &State,
    observations: &Observations,
    settings: &Settings,
    now: Now,
    lease: &v1::DisruptionLease,
) -> Decision {
    let question = Question::stop(lease);
    let gate = Gate::new(state, observations, settings, now, &question);
    if lease.phase() != DisruptionPhase::CatchingUp {
        let refusal = format!("disruption lease {} does not say CATCHING_UP", lease.lease_id);
        return Decision::Denied(Denial { refusal, ..Denial::default() });
    }
    // The lease's time is of another clock.
    let phase_since_ms = lease.phase_since_ms.saturating_add(settings.clock_skew_ms);
    if now.wall_ms < phase_since_ms {
        let refusal = "too soon after the lease said CATCHING_UP".into();
        return Decision::Denied(Denial { refusal, ..Denial::default() });
    }
    // A decider that began later has heard nothing but later words.
    let after_ms = now.monotonic_ms.saturating_sub(now.wall_ms - phase_since_ms);
    let mut blocking: Vec<Blocking> = Vec::new();
    for record in state.shards() {
        let voters = shard_of(record).replicas.iter().filter(|r| r.role() == Role::Voter);
        let mut here = voters.filter(|r| question.stores.contains(&r.store_id));
        let back = here.try_for_each(|r| gate.check_back(record, r, after_ms));
        blocking.extend(back.err().map(|cause| gate.describe(record, cause)));
    }
    if blocking.is_empty() {
        return Decision::Granted(v1::GateDecision { revision: state.revision(), at_ms: now.wall_ms });
    }
    let blocking_count = blocking.len();
    blocking.truncate(BLOCKING_MAX);
    Decision::Denied(Denial { refusal: String::new(), blocking, blocking_count })
}

impl Gate<'_> {
    fn check_back(
        &self,
        record: &v1::ShardRecord,
        replica: &v1::Replica,
        after_ms: u64,
    ) -> Result<(), super::Cause> {
        let (store_id, replica_id) = (replica.store_id, replica.replica_id);
        self.check_serves(store_id, replica_id)?;
        if self.seen.store(store_id).is_none_or(|s| s.at_ms < after_ms) {
            return Err((Reason::StoreSilent(store_id), None));
        }
        let led = self.leader(record)?;
        let before = led.seen.before.as_ref().map_or(0, |b| b.at_ms);
        if before < after_ms || led.report.stores.get(&replica_id) != Some(&store_id) {
            return Err((Reason::StaleObservation, Some(led.report.at_ms)));
        }
        if !self.caught_up(&led, replica_id) {
            let since = led.seen.behind_since.get(&replica_id).copied();
            return Err((Reason::ReplicaLagging(replica_id), since));
        }
        Ok(())
    }
}
