//! What comes between a decision and what it is about.

use super::*;
use undb_proto::v1::{DisruptionPhase as Phase, ErrorCode};

fn granted(state: &mut State, stores: &[u64]) -> v1::DisruptionLease {
    let question = Question {
        kind: DisruptionKind::Restart,
        stores: stores.iter().copied().collect(),
        step: Step::Acquire,
    };
    let decision = v1::GateDecision { revision: state.revision(), at_ms: state.now_ms() };
    let now_ms = state.now_ms();
    let done = apply(state, now_ms, acquire(&question, &format!("{stores:?}"), decision));
    done.expect("free").disruption_lease.expect("a lease")
}

fn step(state: &mut State, lease: &v1::DisruptionLease, phase: Phase) {
    let decision = Some(v1::GateDecision { revision: state.revision(), at_ms: state.now_ms() });
    let (lease_id, token) = (lease.lease_id, lease.token);
    let op = v1::RenewDisruption { lease_id, token, ttl_ms: 30_000, phase: phase as i32, decision };
    let now_ms = state.now_ms();
    apply(state, now_ms, Op::RenewDisruption(op)).expect("its next phase");
}

/// A shard that has no replicas yet; its record.
fn unplaced(state: &mut State) -> v1::ShardRecord {
    let first_id = apply(state, 1, Op::AllocateIds(v1::AllocateIds { count: 2 })).expect("ids").first_id;
    let record = v1::TableRecord {
        table_id: first_id,
        name: "late".into(),
        spec_json: "late".into(),
        replication: 3,
        options: Some(v1::TableOptions::default()),
        store_cluster: DEFAULT_NAME.into(),
        ..Default::default()
    };
    let shards = crate::plan::first_shards(first_id, first_id + 1, &[]);
    let create = v1::CreateTable { table: Some(record), shards };
    apply(state, 1, Op::CreateTable(create)).expect("new");
    state.shard(first_id + 1).expect("created").clone()
}

fn placed(state: &mut State, mut record: v1::ShardRecord, stores: &[u64]) -> Op {
    let count = stores.len() as u32;
    let first_id = apply(state, 1, Op::AllocateIds(v1::AllocateIds { count })).expect("ids").first_id;
    let voter = |(store_id, replica_id): (&u64, u64)| v1::Replica {
        replica_id,
        store_id: *store_id,
        role: v1::Role::Voter as i32,
    };
    record.shard.as_mut().expect("whole").replicas = stores.iter().zip(first_id..).map(voter).collect();
    Op::PutShards(v1::PutShards { shards: vec![record] })
}

/// Two stores that shared nothing may both be about to stop. A plan from before their leases must not make
/// them the majority of a new shard.
#[test]
fn a_shard_begins_on_no_store_that_may_be_stopped() {
    let mut state = cluster(5);
    let record = unplaced(&mut state);
    for id in [1, 2] {
        let lease = granted(&mut state, &[id]);
        step(&mut state, &lease, Phase::SafeToStop);
    }
    let late = placed(&mut state, record.clone(), &[1, 2, 3]);
    let refused = apply(&mut state, 2, late).expect_err("they may be stopped any moment");
    assert_eq!(refused.code, ErrorCode::Conflict);
    let elsewhere = placed(&mut state, record, &[3, 4, 5]);
    apply(&mut state, 2, elsewhere).expect("they stay");
}

/// Its holder may have been told yes, and be about to open its budget.
#[test]
fn a_lease_that_says_yes_does_not_end_because_its_store_is_empty() {
    let mut state = cluster(3);
    let lease = granted(&mut state, &[1]);
    step(&mut state, &lease, Phase::SafeToStop);
    let op = v1::ReleaseDisruption { lease_id: lease.lease_id, token: lease.token, ..Default::default() };
    apply(&mut state, 2, Op::ReleaseDisruption(op.clone())).expect_err("it may be stopped any moment");
    step(&mut state, &lease, Phase::CatchingUp);
    apply(&mut state, 2, Op::ReleaseDisruption(op)).expect("it holds nothing");
}

#[test]
fn a_decision_by_a_clock_that_is_far_ahead_grants_nothing_for_its_age_is_not_known() {
    let mut state = cluster(3);
    let stores = BTreeSet::from([1]);
    let question = Question { kind: DisruptionKind::Restart, stores, step: Step::Acquire };
    let revision = state.revision();
    let ahead = |ms| v1::GateDecision { revision, at_ms: 1_000 + ms };
    let far = acquire(&question, "a", ahead(crate::DECISION_MS_MAX + 1));
    assert_eq!(apply(&mut state, 1_000, far).expect_err("ahead").code, ErrorCode::Conflict);
    apply(&mut state, 1_000, acquire(&question, "a", ahead(crate::DECISION_MS_MAX))).expect("near enough");
}
