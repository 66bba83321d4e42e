//! From heartbeats to observations.

use super::*;
use undb_meta::DEFAULT_NAME;
use undb_proto::v1::meta_command::Op;

const LEASE: u64 = 1;

fn apply(state: &mut State, op: Op) -> v1::MetaResult {
    let control_lease = state.control_lease().epoch;
    state.apply(v1::MetaCommand { now_ms: 1, control_lease, op: Some(op) }).expect("applied").result
}

/// Stores 1 to 3, and no shard.
fn cluster() -> State {
    let mut state = State::default();
    apply(&mut state, Op::InitCluster(v1::InitCluster { cluster_id: "c".into() }));
    let lease = v1::AcquireControlLease { owner: "c".into(), address: "c".into(), ttl_ms: 1000 };
    apply(&mut state, Op::AcquireControlLease(lease));
    let record = v1::StoreClusterRecord { name: DEFAULT_NAME.into(), ..Default::default() };
    apply(&mut state, Op::PutStoreCluster(v1::PutStoreCluster { store_cluster: Some(record) }));
    for id in 1..=3 {
        let register = v1::RegisterStore {
            uuid: format!("u{id}"),
            address: format!("h{id}:1"),
            store_cluster: DEFAULT_NAME.into(),
            empty: true,
            ..Default::default()
        };
        apply(&mut state, Op::RegisterStore(register));
    }
    state
}

fn report(shard_id: u64, replica_id: u64) -> v1::ReplicaReport {
    let member = |id| v1::Replica { replica_id: id, store_id: id, role: Role::Voter as i32 };
    let shard = v1::Shard { shard_id, replicas: (1..=3).map(member).collect(), ..Default::default() };
    v1::ReplicaReport { shard: Some(shard), replica_id, term: 4, ..Default::default() }
}

fn beat(echo: Option<(u64, u64, u64)>, replicas: Vec<v1::ReplicaReport>) -> v1::HeartbeatRequest {
    let (echo_lease, echo_ms, echo_ms_ago) = echo.unwrap_or_default();
    v1::HeartbeatRequest { store_id: 1, replicas, echo_lease, echo_ms, echo_ms_ago, ..Default::default() }
}

fn seen(now_ms: u64, request: &v1::HeartbeatRequest) -> GateSeen {
    let mut seen = GateSeen::default();
    seen.under(LEASE, 0);
    seen.heartbeat(&cluster(), request, &Settings::default(), now_ms);
    seen
}

#[test]
fn a_heartbeat_is_dated_by_our_clock_and_never_later_than_it_was_said() {
    let leader = v1::ReplicaReport { is_leader: true, ..report(7, 1) };
    // It answered what we said at 1000, 900 ms later; then it was under way for eight seconds.
    let seen = seen(9_900, &beat(Some((LEASE, 1_000, 900)), vec![leader]));
    let at_ms = seen.observations.shard(7).and_then(|s| s.leader.as_ref()).map(|l| l.at_ms);
    assert_eq!((at_ms, seen.observations.store(1).map(|s| s.at_ms)), (Some(1_900), Some(1_900)));
}

#[test]
fn a_heartbeat_that_answers_nothing_of_this_lease_says_nothing() {
    for echo in [None, Some((LEASE + 1, 1_000, 900))] {
        let leader = v1::ReplicaReport { is_leader: true, ..report(7, 1) };
        let seen = seen(2_000, &beat(echo, vec![leader]));
        assert_eq!((seen.observations.shard(7), seen.observations.store(1)), (None, None), "{echo:?}");
    }
}

#[test]
fn another_lease_begins_anew() {
    let mut seen = seen(2_000, &beat(Some((LEASE, 1_000, 900)), Vec::new()));
    assert!(seen.under(LEASE, 3_000).observations.store(1).is_some());
    assert!(seen.under(LEASE + 1, 3_000).observations.store(1).is_none());
    assert_eq!(seen.started_ms, 3_000);
}

/// A process that died and came back within one heartbeat has caught up with nothing yet.
#[test]
fn a_store_that_registers_is_unknown_until_its_new_process_speaks() {
    let (state, settings) = (cluster(), Settings::default());
    let leader = v1::ReplicaReport { is_leader: true, ..report(7, 1) };
    let said = beat(Some((LEASE, 1_000, 900)), vec![leader]);
    let mut seen = seen(2_000, &said);
    seen.registered(1, 2_500);
    assert_eq!(seen.observations.store(1), None);
    assert_eq!(seen.observations.shard(7).and_then(|s| s.leader.clone()), None, "it led before");
    // The last words of the process that died, late.
    seen.heartbeat(&state, &said, &settings, 2_600);
    assert_eq!(seen.observations.store(1), None);
    seen.heartbeat(&state, &beat(Some((LEASE, 2_600, 900)), Vec::new()), &settings, 3_600);
    assert_eq!(seen.observations.store(1).map(|s| s.at_ms), Some(3_500));
}

#[test]
fn in_the_beginning_every_store_must_have_spoken() {
    let (state, settings) = (cluster(), Settings::default());
    let mut seen = seen(2_000, &beat(Some((LEASE, 1_000, 900)), Vec::new()));
    let missing = seen.too_early(&state, &settings, 2_000).expect("too early");
    assert!(missing.contains("store 2"), "{missing}");
    for store_id in [2, 3] {
        let request = v1::HeartbeatRequest { store_id, ..beat(Some((LEASE, 1_000, 900)), Vec::new()) };
        seen.heartbeat(&state, &request, &settings, 2_000);
    }
    assert_eq!(seen.too_early(&state, &settings, 2_000), None);
    // A store that is down for good does not keep the others for ever: the rules of shards say enough.
    assert_eq!(GateSeen::default().under(LEASE, 0).too_early(&state, &settings, 6_000), None);
}

#[test]
fn both_halves_of_a_joint_configuration_are_taken_over_and_a_lone_joint_one_is_a_change() {
    let joint = v1::ReplicaReport {
        is_leader: true,
        joint: true,
        voters_outgoing: vec![1, 2, 3],
        voters_incoming: vec![2, 3, 4],
        ..report(7, 1)
    };
    let taken = leader_report(&joint, 5).expect("a leader");
    assert_eq!(taken.voters, BTreeSet::from([1, 2, 3]));
    assert_eq!((taken.incoming, taken.changing), (Some(BTreeSet::from([2, 3, 4])), false));
    let lone = leader_report(&v1::ReplicaReport { voters_incoming: Vec::new(), ..joint.clone() }, 5);
    assert!(lone.expect("a leader").changing);
    let pending = v1::ReplicaReport { change_pending: true, ..joint };
    assert!(leader_report(&pending, 5).expect("a leader").changing);
}

#[test]
fn a_store_that_stops_serves_nothing_and_one_that_returned_is_behind_until_it_says_so() {
    let catching_up = v1::ReplicaReport { catching_up: true, ..report(7, 1) };
    let request = beat(Some((LEASE, 1, 0)), vec![catching_up]);
    let back = store_seen(&request, 1);
    assert_eq!((back.serving, back.faulty.len(), back.behind), (true, 0, BTreeSet::from([1])));
    let stopping = store_seen(&v1::HeartbeatRequest { stopping: true, ..request }, 1);
    assert_eq!((stopping.serving, stopping.faulty), (true, BTreeSet::from([1])));
}

#[test]
fn a_store_is_out_when_somebody_sees_it_stopped_and_it_is_silent_too() {
    let asked = BTreeSet::from([1, 2]);
    let seen = seen(10_000, &beat(Some((LEASE, 9_000, 900)), Vec::new()));
    let serving = |stopped: &[u64], now_ms| {
        let told = seen.with_stopped(stopped, &asked, now_ms);
        told.store(1).map(|s| s.serving)
    };
    assert_eq!(serving(&[1], 10_000 + STOPPED_SILENT_MS - 1), Some(true), "it speaks");
    assert_eq!(serving(&[], 20_000), Some(true), "silence alone says nothing");
    assert_eq!(serving(&[1], 10_000 + STOPPED_SILENT_MS), Some(false));
    assert_eq!(serving(&[1], 20_000), Some(false));
    assert!(seen.with_stopped(&[2], &asked, STOPPED_SILENT_MS).store(2).is_some_and(|s| !s.serving));
    assert!(seen.with_stopped(&[3], &asked, 20_000).store(3).is_none(), "it is not asked for");
}
