//! Stores that are drained, cordoned, removed or under a disruption lease, and replicas that a person
//! moves: the plan does what is wanted and nothing else.

mod world;

use rand::Rng;
use std::collections::BTreeSet;
use undb_meta::plan::{Action, MoveStep, View, move_step, plan, plan_and_waits};
use undb_proto::v1::{
    self, DisruptionKind, DisruptionPhase as Phase, StoreState, TableState, meta_command::Op,
};
use world::run::Run;

fn begun(seed: u64, stores: u32, shards: u32) -> Run {
    let mut run = Run::new(seed);
    for _ in 0..stores {
        run.add_store();
    }
    run.create_table("t", shards);
    run.settle(10);
    run.assert_settled(seed);
    run
}

impl Run {
    fn decision(&self) -> Option<v1::GateDecision> {
        Some(v1::GateDecision { revision: self.state.revision(), at_ms: self.now_ms })
    }

    fn lease(&mut self, kind: DisruptionKind, store_id: u64, max_duration_ms: u64) -> v1::DisruptionLease {
        let decision = self.decision();
        let op = v1::AcquireDisruption {
            kind: kind as i32,
            stores: vec![store_id],
            holder: "h".into(),
            ttl_ms: 5_000,
            max_duration_ms,
            decision,
        };
        self.apply(Op::AcquireDisruption(op)).disruption_lease.expect("granted")
    }

    fn phase(&mut self, lease: &v1::DisruptionLease, phase: Phase) {
        let decision = self.decision();
        let v1::DisruptionLease { lease_id, token, .. } = *lease;
        let op = v1::RenewDisruption { lease_id, token, ttl_ms: 5_000, phase: phase as i32, decision };
        self.apply(Op::RenewDisruption(op));
    }

    fn move_replica(&mut self, shard_id: u64, from_store_id: u64, to_store_id: u64) {
        self.apply(Op::StartMove(v1::StartMove { shard_id, from_store_id, to_store_id }));
    }

    fn ids(&self) -> Vec<u64> {
        self.world.stores.keys().copied().collect()
    }

    fn shard_ids(&self) -> Vec<u64> {
        self.world.groups.keys().copied().collect()
    }

    fn stores_of(&self, shard_id: u64) -> BTreeSet<u64> {
        let shard = self.state.shard(shard_id).and_then(|s| s.shard.as_ref()).expect("known");
        shard.replicas.iter().map(|r| r.store_id).collect()
    }

    fn leader_store(&self, shard_id: u64) -> u64 {
        let group = &self.world.groups[&shard_id];
        group.shard.replicas.iter().find(|r| r.replica_id == group.leader).map_or(0, |r| r.store_id)
    }

    fn leads(&self, store_id: u64) -> usize {
        self.shard_ids().iter().filter(|id| self.leader_store(**id) == store_id).count()
    }

    /// A shard with a replica on one store and none on the other.
    fn shard_between(&self, from: u64, to: u64) -> Option<u64> {
        let fits = |id: &u64| self.stores_of(*id).contains(&from) && !self.stores_of(*id).contains(&to);
        self.shard_ids().into_iter().find(fits)
    }

    fn members(&self) -> Vec<v1::Shard> {
        self.world.groups.values().map(|g| g.shard.clone()).collect()
    }
}

#[test]
fn leaders_leave_a_store_under_a_lease_at_once_and_its_shards_keep_their_members() {
    for seed in 0..20 {
        let mut run = begun(seed, 5, 12);
        let victim = run.ids()[0];
        let before = run.members();
        let lease = run.lease(DisruptionKind::Restart, victim, 600_000);
        run.round(0);
        assert_eq!(run.leads(victim), 0, "seed {seed}: in one round");
        run.phase(&lease, Phase::SafeToStop);
        run.phase(&lease, Phase::Stopped);
        run.store(victim).up = false;
        // Longer than what counts as down, and than its ttl.
        run.settle(200);
        run.store(victim).up = true;
        for _ in 0..100 {
            run.round(5);
            assert_eq!(run.leads(victim), 0, "seed {seed}: nothing goes there while the lease is");
        }
        assert_eq!(before, run.members(), "seed {seed}");
        run.phase(&lease, Phase::CatchingUp);
        let decision = run.decision();
        let v1::DisruptionLease { lease_id, token, .. } = lease;
        let proven_up = vec![victim];
        run.apply(Op::ReleaseDisruption(v1::ReleaseDisruption { lease_id, token, proven_up, decision }));
        run.settle(300);
        run.assert_settled(seed);
        run.assert_leaders_are_even(seed);
    }
}

#[test]
fn a_store_that_stays_stopped_for_longer_than_its_lease_allows_is_replaced() {
    let mut run = begun(1, 4, 6);
    let victim = run.ids()[0];
    let lease = run.lease(DisruptionKind::Restart, victim, 300_000);
    run.settle(3);
    run.phase(&lease, Phase::SafeToStop);
    run.store(victim).up = false;
    run.settle(290);
    assert!(run.shard_ids().iter().any(|id| run.stores_of(*id).contains(&victim)), "not before its time");
    run.settle(100);
    for id in run.shard_ids() {
        assert!(!run.stores_of(id).contains(&victim), "shard {id} has other members by now");
    }
    assert!(run.state.disruption_lease(lease.lease_id).is_some(), "the lease itself never goes by time");
}

#[test]
fn nothing_new_goes_to_a_store_under_a_lease() {
    let mut run = begun(2, 4, 4);
    let victim = run.ids()[3];
    let held = run.shard_ids().iter().filter(|id| run.stores_of(**id).contains(&victim)).count();
    run.lease(DisruptionKind::Restart, victim, 600_000);
    run.create_table("later", 5);
    run.settle(20);
    let now = run.shard_ids().iter().filter(|id| run.stores_of(**id).contains(&victim)).count();
    assert_eq!(held, now);
    let table = run.state.live_table("later").expect("there");
    assert_eq!(table.state(), TableState::TableReady, "three stores are free");
}

#[test]
fn a_lease_to_remove_a_store_moves_its_replicas_away() {
    let mut run = begun(3, 4, 6);
    let victim = run.ids()[1];
    run.lease(DisruptionKind::Remove, victim, 600_000);
    run.settle(60);
    assert!(run.store(victim).replicas.is_empty(), "{:?}", run.store(victim).replicas);
    run.set(victim, StoreState::StoreRemoved);
    assert_eq!(run.world.violations, Vec::<String>::new());
}

/// It may be undeleted for days; until then it must not keep a store from leaving, nor miss copies.
#[test]
fn a_deleted_table_leaves_a_drained_store_and_is_made_whole_after_a_loss_while_it_is_kept() {
    let mut run = begun(4, 5, 6);
    run.apply(Op::DeleteTable(v1::DeleteTable { name: "t".into(), now: false }));
    let (drained, lost) = (run.ids()[0], run.ids()[1]);
    run.set(drained, StoreState::StoreDraining);
    run.settle(100);
    assert!(run.store(drained).replicas.is_empty(), "{:?}", run.store(drained).replicas);
    run.store(lost).up = false;
    run.settle(200);
    for id in run.shard_ids() {
        assert_eq!(run.stores_of(id).intersection(&BTreeSet::from([drained, lost])).count(), 0, "shard {id}");
        assert_eq!(run.stores_of(id).len(), 3, "shard {id}");
    }
    run.apply(Op::UndeleteTable(v1::UndeleteTable { name: "t".into() }));
    run.settle(20);
    assert_eq!(run.state.live_table("t").map(|t| t.state()), Some(TableState::TableReady));
    assert_eq!(run.world.violations, Vec::<String>::new());
}

/// A full disk takes every replica on it out at once, and a drain may fill several.
#[test]
fn a_drain_stops_before_it_fills_a_disk_and_says_so() {
    for seed in 0..10 {
        let mut run = begun(seed, 4, 8);
        // 24 copies; three stores have room for seven each.
        (run.disk_bytes, run.copy_bytes) = (740, 100);
        run.round(0);
        let victim = run.ids()[0];
        run.set(victim, StoreState::StoreDraining);
        for _ in 0..120 {
            run.round(5);
            for id in run.ids() {
                let count = run.store(id).replicas.len();
                assert!(count <= 7, "seed {seed}: {count} copies of 100 bytes each on store {id}");
            }
        }
        run.settle(5);
        assert!(!run.store(victim).replicas.is_empty(), "seed {seed}: not all of them fit");
        let waits = plan_and_waits(&run.state, &run.heard, &run.settings, run.now()).waits;
        assert!(
            waits.iter().any(|w| w.reason.contains("no other store that can take its replica")),
            "{waits:?}"
        );
        run.disk_bytes = 2_000;
        run.settle(200);
        assert!(run.store(victim).replicas.is_empty(), "seed {seed}: there is room now");
    }
}

#[test]
fn a_drain_empties_a_store_a_few_replicas_at_a_time_whatever_step_control_dies_at() {
    for seed in 0..20 {
        let mut run = begun(seed, 4, 16);
        let victim = run.ids()[0];
        run.set(victim, StoreState::StoreDraining);
        run.round(0);
        assert_eq!(run.leads(victim), 0, "seed {seed}: leaders go first");
        for _ in 0..200 {
            run.round(15);
            let learners = run.state.shards().flat_map(|s| &s.shard.as_ref().expect("whole").replicas);
            let count = learners.filter(|r| r.role() == v1::Role::Learner).count();
            assert!(count <= 4, "seed {seed}: {count} replicas leave at a time");
        }
        run.settle(60);
        assert!(run.store(victim).replicas.is_empty(), "seed {seed}");
        run.assert_settled(seed);
        run.set(victim, StoreState::StoreRemoved);
    }
}

#[test]
fn a_cancelled_drain_stops_and_leaves_whole_shards() {
    for seed in 0..20 {
        let mut run = begun(seed, 4, 16);
        let victim = run.ids()[0];
        let held = run.store(victim).replicas.len();
        run.set(victim, StoreState::StoreDraining);
        let rounds = run.random.random_range(1..12);
        run.settle(rounds);
        run.set(victim, StoreState::StoreUp);
        run.settle(40);
        let left = run.store(victim).replicas.len();
        run.assert_settled(seed);
        run.settle(200);
        assert_eq!(left, run.store(victim).replicas.len(), "seed {seed}: of {held}");
    }
}

#[test]
fn a_drain_without_a_target_says_so_and_removes_nothing() {
    let mut run = begun(4, 3, 3);
    let victim = run.ids()[0];
    run.set(victim, StoreState::StoreDraining);
    run.settle(100);
    let condition = run.state.live_table("t").expect("there").condition.clone();
    assert!(
        condition.starts_with("InsufficientStores: ") && condition.contains("is being drained"),
        "{condition}"
    );
    assert_eq!(run.store(victim).replicas.len(), 3);
    assert_eq!(run.leads(victim), 0, "its leaders have gone nevertheless");
    let waits = plan_and_waits(&run.state, &run.heard, &run.settings, run.now()).waits;
    assert!(waits.iter().any(|w| w.store_id == victim && w.reason.contains("no other store")), "{waits:?}");
}

#[test]
fn a_cordoned_store_keeps_what_it_has_and_gets_nothing_new() {
    let mut run = begun(5, 4, 8);
    let cordoned = run.ids()[0];
    let (held, led) = (run.store(cordoned).replicas.len(), run.leads(cordoned));
    run.set(cordoned, StoreState::StoreCordoned);
    run.create_table("later", 6);
    run.settle(100);
    assert_eq!((held, led), (run.store(cordoned).replicas.len(), run.leads(cordoned)));
    let other = run.ids()[1];
    run.set(other, StoreState::StoreDraining);
    run.settle(100);
    assert!(run.store(cordoned).replicas.len() <= held && run.leads(cordoned) <= led);
}

#[test]
fn a_store_with_replicas_is_removed_only_on_a_decision_of_now() {
    let mut run = begun(6, 4, 4);
    let victim = run.ids()[0];
    let expected_revision = run.state.store(victim).expect("known").revision;
    let state = StoreState::StoreRemoved as i32;
    let mut op = v1::SetStoreState { store_id: victim, state, expected_revision, lost: None };
    let refused = run.try_apply(Op::SetStoreState(op)).expect_err("it holds replicas");
    assert!(refused.message.contains("drain it first"), "{refused}");
    op.lost = Some(v1::GateDecision { revision: 1, at_ms: run.now_ms });
    let refused = run.try_apply(Op::SetStoreState(op)).expect_err("an old decision");
    assert!(refused.message.contains("decide again"), "{refused}");
    run.store(victim).up = false;
    op.lost = run.decision();
    run.apply(Op::SetStoreState(op));
    run.settle(60);
    run.assert_settled(6);
    for id in run.shard_ids() {
        assert!(!run.stores_of(id).contains(&victim));
    }
}

#[test]
fn a_move_ends_where_it_was_sent_whatever_step_control_dies_at() {
    for seed in 0..60 {
        let mut run = begun(seed, 4, 5);
        let (from, to) = (run.ids()[0], run.ids()[3]);
        let Some(id) = run.shard_between(from, to) else { continue };
        run.move_replica(id, from, to);
        let mut rest = run.stores_of(id);
        for _ in 0..60 {
            run.round(25);
        }
        run.settle(20);
        assert!(run.state.replica_move(id).is_none(), "seed {seed}: the record goes with the old copy");
        rest.remove(&from);
        rest.insert(to);
        assert_eq!(run.stores_of(id), rest, "seed {seed}: only this replica has moved");
        run.assert_settled(seed);
    }
}

#[test]
fn a_move_goes_through_each_of_its_steps_and_survives_a_crash_after_each() {
    let mut run = begun(7, 4, 3);
    let (from, to) = (run.ids()[0], run.ids()[3]);
    let id = run.shard_between(from, to).expect("one of three");
    run.move_replica(id, from, to);
    let mut steps = Vec::new();
    for _ in 0..60 {
        let Some(found) = run.state.replica_move(id).copied() else { break };
        run.round(100); // Stores are heard; then control dies before its first task.
        let ids = run.ids();
        for store in ids {
            let reports = run.world.reports(store);
            run.heard.heard(store, run.now_ms, run.settings.disconnected_ms, reports);
        }
        let step = move_step(&View::new(&run.state, &run.heard, &run.settings, run.now()), &found);
        if steps.last() != Some(&step) {
            steps.push(step);
        }
        let tasks = plan(&run.state, &run.heard, &run.settings, run.now());
        if let Some(first) = tasks.into_iter().find(|t| !matches!(t.action, Action::SetTable { .. })) {
            run.execute(first);
        }
    }
    assert!(run.state.replica_move(id).is_none(), "{steps:?}");
    assert_eq!(steps[..3], [MoveStep::Placing, MoveStep::Creating, MoveStep::Joining], "{steps:?}");
    assert!(steps.iter().any(|s| matches!(s, MoveStep::CatchingUp { .. })), "{steps:?}");
    assert_eq!(steps[steps.len() - 2..], [MoveStep::CleaningUp, MoveStep::Over("it has moved")], "{steps:?}");
    run.settle(20);
    run.assert_settled(7);
}

#[test]
fn a_move_that_is_cancelled_on_its_way_leaves_the_shard_where_it_was() {
    for seed in 0..20 {
        let mut run = begun(seed, 4, 5);
        let (from, to) = (run.ids()[0], run.ids()[3]);
        let Some(id) = run.shard_between(from, to) else { continue };
        let before = run.stores_of(id);
        run.move_replica(id, from, to);
        let rounds = run.random.random_range(0..3);
        run.settle(rounds);
        let found = *run.state.replica_move(id).expect("under way");
        let step = move_step(&View::new(&run.state, &run.heard, &run.settings, run.now()), &found);
        assert!(step.is_cancellable(), "seed {seed}: {step}");
        let from_replica_id = found.from_replica_id;
        run.apply(Op::EndMove(v1::EndMove { shard_id: id, from_replica_id }));
        run.settle(30);
        assert_eq!(run.stores_of(id), before, "seed {seed}");
        run.assert_settled(seed);
    }
}

#[test]
fn a_move_is_refused_in_words_and_waits_while_its_target_is_under_a_lease() {
    let mut run = begun(8, 4, 3);
    let (from, to) = (run.ids()[0], run.ids()[3]);
    let id = run.shard_between(from, to).expect("one of three");
    let start = |from_store_id, to_store_id| {
        Op::StartMove(v1::StartMove { shard_id: id, from_store_id, to_store_id })
    };
    for (op, text) in [
        (start(to, from), "already"),
        (start(from, 999), "there is no store 999"),
        (
            Op::StartMove(v1::StartMove { shard_id: 9999, from_store_id: from, to_store_id: to }),
            "no shard 9999",
        ),
    ] {
        let refused = run.try_apply(op).expect_err(text);
        assert!(refused.message.contains(text), "{refused}");
    }
    run.lease(DisruptionKind::Restart, to, 600_000);
    run.move_replica(id, from, to);
    run.move_replica(id, from, to);
    run.settle(30);
    assert!(!run.stores_of(id).contains(&to));
    let waits = plan_and_waits(&run.state, &run.heard, &run.settings, run.now()).waits;
    assert!(waits.iter().any(|w| w.shard_id == id && w.reason.contains("disruption lease")), "{waits:?}");
}
