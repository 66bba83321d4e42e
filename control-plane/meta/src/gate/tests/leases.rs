//! The lease as a record of metadata.

use super::*;
use undb_proto::v1::{DisruptionPhase as Phase, ErrorCode};

fn restart(stores: &[u64]) -> Question {
    let stores = stores.iter().copied().collect();
    Question { kind: DisruptionKind::Restart, stores, step: Step::Acquire }
}

fn at(state: &State) -> v1::GateDecision {
    v1::GateDecision { revision: state.revision(), at_ms: state.now_ms() }
}

fn grant(state: &mut State, stores: &[u64], holder: &str) -> v1::DisruptionLease {
    let op = acquire(&restart(stores), holder, at(state));
    let now_ms = state.now_ms();
    apply(state, now_ms, op).expect("free").disruption_lease.expect("a lease")
}

fn step(
    state: &mut State,
    now_ms: u64,
    lease: &v1::DisruptionLease,
    phase: Phase,
) -> Result<v1::DisruptionLease, crate::Reject> {
    let decision = Some(v1::GateDecision { revision: state.revision(), at_ms: now_ms });
    let (lease_id, token) = (lease.lease_id, lease.token);
    let renew = v1::RenewDisruption { lease_id, token, ttl_ms: 30_000, phase: phase as i32, decision };
    apply(state, now_ms, Op::RenewDisruption(renew)).map(|r| r.disruption_lease.expect("a lease"))
}

fn release(
    state: &mut State,
    now_ms: u64,
    lease: &v1::DisruptionLease,
    proven_up: &[u64],
) -> Result<v1::MetaResult, crate::Reject> {
    let decision = Some(v1::GateDecision { revision: state.revision(), at_ms: now_ms });
    let (lease_id, token) = (lease.lease_id, lease.token);
    let op = v1::ReleaseDisruption { lease_id, token, proven_up: proven_up.to_vec(), decision };
    apply(state, now_ms, Op::ReleaseDisruption(op))
}

#[test]
fn of_two_that_decide_at_one_revision_one_is_granted() {
    let mut state = cluster(3);
    let decision = at(&state);
    apply(&mut state, 10, acquire(&restart(&[1]), "a", decision)).expect("first");
    let second = apply(&mut state, 10, acquire(&restart(&[2]), "b", decision)).expect_err("decided before");
    assert_eq!(second.code, ErrorCode::Conflict);
    let now = at(&state);
    apply(&mut state, 10, acquire(&restart(&[2]), "b", now)).expect("decided again");
    let now = at(&state);
    let third = apply(&mut state, 10, acquire(&restart(&[2, 3]), "c", now)).expect_err("2 is taken");
    assert!(third.message.contains("store 2 is under disruption lease"), "{third}");
}

#[test]
fn a_decision_that_was_slow_to_arrive_grants_nothing() {
    let mut state = cluster(3);
    let decision = at(&state);
    let late = apply(
        &mut state,
        decision.at_ms + crate::DECISION_MS_MAX + 1,
        acquire(&restart(&[1]), "a", decision),
    );
    assert_eq!(late.expect_err("old").code, ErrorCode::Conflict);
}

#[test]
fn an_acquisition_that_is_repeated_finds_its_lease() {
    let mut state = cluster(3);
    let lease = grant(&mut state, &[1, 2], "a");
    let stale = v1::GateDecision::default();
    let again = apply(&mut state, 20, acquire(&restart(&[2, 1]), "a", stale)).expect("its own");
    assert_eq!(again.disruption_lease.as_ref(), Some(&lease));
}

#[test]
fn a_lease_that_was_safe_to_stop_ends_only_with_every_store_proven_up() {
    let mut state = cluster(3);
    table(&mut state, "t", 2, &[vec![1, 2, 3]]);
    let lease = grant(&mut state, &[1], "a");
    step(&mut state, 10, &lease, Phase::Stopped).expect_err("not decided yet");
    step(&mut state, 10, &lease, Phase::SafeToStop).expect("decided");
    release(&mut state, 10, &lease, &[1]).expect_err("it may stop any moment");
    step(&mut state, 11, &lease, Phase::Stopped).expect("told");
    step(&mut state, 12, &lease, Phase::CatchingUp).expect("told");
    release(&mut state, 13, &lease, &[]).expect_err("not proven");
    step(&mut state, 14, &lease, Phase::Draining).expect_err("from there it could be cancelled");
    step(&mut state, 14, &lease, Phase::SafeToStop).expect("decided: it is stopped again");
    step(&mut state, 15, &lease, Phase::CatchingUp).expect("told");
    let wrong = v1::DisruptionLease { token: lease.token + 1, ..lease.clone() };
    assert_eq!(release(&mut state, 16, &wrong, &[1]).expect_err("another's").code, ErrorCode::Fenced);
    release(&mut state, 16, &lease, &[1]).expect("proven");
    assert_eq!(state.disruption_leases().count(), 0);
    release(&mut state, 17, &lease, &[]).expect("gone is gone");
    let next = grant(&mut state, &[1], "a");
    assert!(next.token > lease.token, "tokens only grow");
}

#[test]
fn a_drain_is_cancelled_while_the_lease_lives_and_an_expired_one_stays() {
    let mut state = cluster(3);
    table(&mut state, "t", 2, &[vec![1, 2, 3]]);
    let lease = grant(&mut state, &[1], "a");
    release(&mut state, 10, &lease, &[]).expect("nothing was stopped");
    let lease = grant(&mut state, &[1], "b");
    release(&mut state, lease.expires_at_ms, &lease, &[]).expect_err("expired, and not proven up");
    assert_eq!(state.disruption_leases().count(), 1);
    step(&mut state, lease.expires_at_ms, &lease, Phase::CatchingUp).expect("told");
    let now_ms = state.now_ms();
    release(&mut state, now_ms, &lease, &[1]).expect("proven");
}

#[test]
fn a_heartbeat_never_outlives_the_longest_duration_and_then_nothing_may_stop() {
    let mut state = cluster(3);
    let lease = grant(&mut state, &[1], "a");
    let ends_ms = lease.granted_at_ms + lease.max_duration_ms;
    let renewed = step(&mut state, ends_ms - 1, &lease, Phase::Unspecified).expect("its own");
    assert_eq!(renewed.expires_at_ms, ends_ms);
    step(&mut state, ends_ms, &lease, Phase::SafeToStop).expect_err("over");
}

#[test]
fn a_store_that_did_not_come_back_in_time_may_be_stopped_again() {
    let mut state = cluster(3);
    let lease = grant(&mut state, &[1], "a");
    step(&mut state, 10, &lease, Phase::SafeToStop).expect("decided");
    step(&mut state, 11, &lease, Phase::Stopped).expect("told");
    step(&mut state, 12, &lease, Phase::CatchingUp).expect("told");
    let late_ms = lease.granted_at_ms + lease.max_duration_ms + 5_000;
    let undecided = v1::RenewDisruption {
        lease_id: lease.lease_id,
        token: lease.token,
        ttl_ms: 30_000,
        phase: Phase::SafeToStop as i32,
        decision: None,
    };
    apply(&mut state, late_ms, Op::RenewDisruption(undecided)).expect_err("the gate decides");
    let again = step(&mut state, late_ms, &lease, Phase::SafeToStop).expect("decided");
    assert_eq!(again.phase(), Phase::SafeToStop);
    assert!(again.expires_at_ms > late_ms, "it lives, so that its holder can act on it");
    assert_eq!(again.granted_at_ms + again.max_duration_ms, again.expires_at_ms, "for one ttl");
}

#[test]
fn a_store_that_holds_nothing_any_more_needs_no_proof() {
    let mut state = cluster(3);
    let lease = grant(&mut state, &[3], "a");
    step(&mut state, 10, &lease, Phase::SafeToStop).expect("decided");
    step(&mut state, 10, &lease, Phase::Stopped).expect("told");
    release(&mut state, lease.expires_at_ms + 1, &lease, &[]).expect("it counts for nothing");
}

#[test]
fn leases_travel_in_images_and_changes_and_an_older_image_has_none() {
    let mut state = cluster(3);
    let mut mirror = State::from_image(state.image()).expect("our own");
    let op = acquire(&restart(&[1]), "a", at(&state));
    let command = |state: &State, op| v1::MetaCommand {
        now_ms: 10,
        control_lease: state.control_lease().epoch,
        op: Some(op),
    };
    let granted = state.apply(command(&state, op)).expect("free");
    mirror.absorb(granted.revision, granted.change);
    assert_eq!(mirror.image().disruption_leases, state.image().disruption_leases);
    assert_eq!(State::decode(&state.encode()).expect("our own"), state);
    let lease = granted.result.disruption_lease.expect("a lease");
    let op = v1::ReleaseDisruption { lease_id: lease.lease_id, token: lease.token, ..Default::default() };
    let released = state.apply(command(&state, Op::ReleaseDisruption(op))).expect("cancelled");
    mirror.absorb(released.revision, released.change);
    assert_eq!(mirror.disruption_leases().count(), 0);
    let older = v1::MetaImage { disruption_leases: Vec::new(), ..state.image() };
    assert_eq!(State::from_image(older).expect("older").disruption_leases().count(), 0);
}

#[test]
fn a_store_is_proven_up_only_by_words_from_after_its_return() {
    let mut state = cluster(3);
    let shard = table(&mut state, "t", 2, &[vec![1, 2, 3]])[0];
    let lease = grant(&mut state, &[1], "a");
    step(&mut state, 900_000, &lease, Phase::SafeToStop).expect_err("over");
    let lease = step(&mut state, 900_000, &lease, Phase::CatchingUp).expect("told");
    // The lease's phase began at 900_000; with the skew, words count from 902_000, here 102_000.
    let seen = |reports: [u64; 2], match_index: u64, heard: u64, serving: bool| {
        let mut seen = Observations::new(50_000);
        for at_ms in reports {
            let mut report = healthy(&state, shard, 2, at_ms);
            let first = *report.voters.first().expect("three");
            report.peers.insert(first, Progress { match_index, ack_ms_ago: 10 });
            seen.leader_heard(shard, report, &settings());
        }
        seen.store_heard(1, store_seen(heard, serving));
        seen
    };
    let now = Now { monotonic_ms: 104_000, wall_ms: 904_000 };
    let proven = |seen: &Observations| {
        matches!(proven_up(&state, seen, &settings(), now, &lease), Decision::Granted(_))
    };
    assert!(proven(&seen([102_100, 103_000], 5000, 103_000, true)));
    assert!(!proven(&seen([101_900, 103_000], 5000, 103_000, true)), "a report from before");
    assert!(!proven(&seen([102_100, 103_000], 5000, 101_000, true)), "a heartbeat from before");
    assert!(!proven(&seen([102_100, 103_000], 5000, 103_000, false)));
    assert!(!proven(&seen([102_100, 103_000], 3000, 103_000, true)), "it lags");
    assert!(!proven(&Observations::new(50_000)));
    let restarted = Now { monotonic_ms: 1_500, wall_ms: 990_000 };
    let seen = seen([200, 1_200], 5000, 1_200, true);
    let proof = proven_up(&state, &seen, &settings(), restarted, &lease);
    assert!(matches!(proof, Decision::Granted(_)), "a decider that began later: {proof:?}");
}

#[test]
fn a_word_without_a_ttl_moves_the_lease_on_and_does_not_keep_it_alive() {
    let mut state = cluster(3);
    let lease = grant(&mut state, &[1], "a");
    let (lease_id, token, decision) = (lease.lease_id, lease.token, Some(at(&state)));
    let phase = Phase::SafeToStop as i32;
    let renew = v1::RenewDisruption { lease_id, token, ttl_ms: 0, phase, decision };
    let now_ms = state.now_ms() + 100;
    let moved = apply(&mut state, now_ms, Op::RenewDisruption(renew)).expect("held").disruption_lease;
    let moved = moved.expect("a lease");
    assert_eq!((moved.phase(), moved.expires_at_ms), (Phase::SafeToStop, lease.expires_at_ms));
}
