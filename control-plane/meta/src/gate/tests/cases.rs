//! Each rule once where it allows and once where it denies.

use super::*;

const NOW: Now = Now { monotonic_ms: 100_000, wall_ms: 1_000_000 };

/// Stores 1 to 5; a shard on 1, 2, 3 led by 2, seen well twice. Then one thing is changed.
struct World {
    state: State,
    seen: Observations,
    shard: u64,
    replicas: Vec<u64>,
}

impl World {
    fn new() -> Self {
        Self::with(2, vec![1, 2, 3])
    }

    fn with(min_available: u32, placement: Vec<u64>) -> Self {
        let mut state = cluster(5);
        let leader = placement[placement.len() / 2];
        let shard = table(&mut state, "t", min_available, &[placement])[0];
        let replicas =
            shard_of(state.shard(shard).expect("there")).replicas.iter().map(|r| r.replica_id).collect();
        let mut world = Self { state, seen: Observations::new(50_000), shard, replicas };
        world.lead(leader, |_| {});
        for id in 1..=5 {
            world.seen.store_heard(id, store_seen(99_500, true));
        }
        world
    }

    /// The two last reports, as changed.
    fn lead(&mut self, leader: u64, change: impl Fn(&mut LeaderReport)) {
        self.lead_at(leader, [98_000, 99_000], change);
    }

    fn leaderless(&mut self) {
        let mut seen = Observations::new(50_000);
        for id in 1..=5 {
            if let Some(store) = self.seen.store(id) {
                seen.store_heard(id, store.clone());
            }
        }
        self.seen = seen;
    }

    fn lead_at(&mut self, leader: u64, at_ms: [u64; 2], change: impl Fn(&mut LeaderReport)) {
        self.leaderless();
        for at_ms in at_ms {
            let mut report = healthy(&self.state, self.shard, leader, at_ms);
            change(&mut report);
            self.seen.leader_heard(self.shard, report, &settings());
        }
    }

    /// Granted 10 s ago.
    fn lease(&mut self, kind: DisruptionKind, stores: &[u64]) -> v1::DisruptionLease {
        self.lease_at(990_000, kind, stores)
    }

    fn lease_at(&mut self, now_ms: u64, kind: DisruptionKind, stores: &[u64]) -> v1::DisruptionLease {
        let question = Question { kind, stores: stores.iter().copied().collect(), step: Step::Acquire };
        let decision = v1::GateDecision { revision: self.state.revision(), at_ms: now_ms };
        let op = acquire(&question, &format!("{stores:?}"), decision);
        apply(&mut self.state, now_ms, op).expect("free").disruption_lease.expect("a lease")
    }

    fn ask(&self, kind: DisruptionKind, stores: &[u64]) -> Result<(), Reason> {
        self.answer(&Question { kind, stores: stores.iter().copied().collect(), step: Step::Acquire })
    }

    fn answer(&self, question: &Question) -> Result<(), Reason> {
        match decide(&self.state, &self.seen, &settings(), NOW, question) {
            Decision::Granted(decision) => {
                assert_eq!(decision.revision, self.state.revision());
                Ok(())
            }
            Decision::Denied(denial) => {
                assert_eq!(denial.refusal, "", "about a shard");
                assert_eq!(denial.blocking_count, denial.blocking.len());
                Err(denial.blocking[0].reason)
            }
        }
    }

    fn restart(&self, store: u64) -> Result<(), Reason> {
        self.ask(DisruptionKind::Restart, &[store])
    }

    /// Replica 0, 1, 2 of the shard, in the joint change to a new one on store 4.
    fn join(&mut self, leaving: u64) {
        let new = self.replicas[2] + 1;
        let leaving = self.replicas[leaving as usize - 1];
        self.lead(2, |report| {
            report.stores.insert(new, 4);
            report.peers.insert(new, Progress { match_index: 5000, ack_ms_ago: 100 });
            report.epoch.conf += 1;
            let mut incoming = report.voters.clone();
            incoming.remove(&leaving);
            incoming.insert(new);
            report.incoming = Some(incoming);
        });
    }
}

#[test]
fn a_shard_that_is_well_lets_any_one_of_its_stores_go_and_no_two() {
    use DisruptionKind::{Remove, Replace, Restart};
    let world = World::new();
    for kind in [Restart, Remove, Replace] {
        for store in 1..=5 {
            assert_eq!(world.ask(kind, &[store]), Ok(()), "{kind:?} {store}");
        }
        assert_eq!(world.ask(kind, &[4, 5]), Ok(()), "they hold nothing");
        let few = Reason::TooFewVoters { remaining: 1, needed: 2 };
        assert_eq!(world.ask(kind, &[1, 2]), Err(few), "{kind:?}");
    }
}

#[test]
fn min_available_is_asked_for_where_it_is_more_than_a_quorum() {
    let placement = vec![1, 2, 3, 4, 5];
    assert_eq!(World::with(4, placement.clone()).restart(1), Ok(()));
    let few = Reason::TooFewVoters { remaining: 4, needed: 5 };
    assert_eq!(World::with(5, placement).restart(1), Err(few));
}

#[test]
fn a_single_replica_goes_only_for_a_restart_that_its_table_allows() {
    let single = World::with(1, vec![1]);
    assert_eq!(single.restart(1), Err(Reason::SingleReplicaTable));
    let allowed = World::with(0, vec![1]);
    assert_eq!(allowed.restart(1), Ok(()));
    let never = Err(Reason::SingleReplicaTable);
    assert_eq!(allowed.ask(DisruptionKind::Replace, &[1]), never, "its data would be gone");
    let mut three = World::with(0, vec![1, 2, 3]);
    three.leaderless();
    assert!(three.restart(1).is_err(), "0 means nothing where there are more copies");
}

#[test]
fn a_voter_counts_only_when_it_has_caught_up_as_its_leader_said_twice() {
    let mut world = World::new();
    let other = world.replicas[2];
    world.lead(2, |r| r.peers.get_mut(&other).expect("a peer").match_index = 4000);
    assert_eq!(world.restart(1), Ok(()), "1000 behind is near");
    world.lead(2, |r| r.peers.get_mut(&other).expect("a peer").match_index = 3999);
    assert_eq!(world.restart(1), Err(Reason::ReplicaLagging(other)));
    assert_eq!(world.restart(3), Ok(()), "the one that lags may go");
    world.lead(2, |r| {
        if r.at_ms < 99_000 {
            r.peers.get_mut(&other).expect("a peer").match_index = 3999;
        }
    });
    assert_eq!(world.restart(1), Err(Reason::ReplicaLagging(other)), "once is not twice");
    world.lead_at(2, [90_000, 99_000], |_| {});
    assert!(world.restart(1).is_err(), "a report of long ago is not the one before");
    world.lead(2, |r| r.peers.get_mut(&other).expect("a peer").ack_ms_ago = 4_001);
    assert_eq!(world.restart(1), Err(Reason::ReplicaLagging(other)), "1000 + 4001 ms ago");
    world.lead(2, |r| r.peers.get_mut(&other).expect("a peer").ack_ms_ago = 4_000);
    assert_eq!(world.restart(1), Ok(()));
}

#[test]
fn what_is_old_or_unknown_denies() {
    let mut world = World::new();
    world.lead_at(2, [94_000, 95_000], |r| r.peers.values_mut().for_each(|p| p.ack_ms_ago = 0));
    assert_eq!(world.restart(1), Ok(()), "5 s old is fresh");
    world.lead_at(2, [94_000, 94_999], |r| r.peers.values_mut().for_each(|p| p.ack_ms_ago = 0));
    assert_eq!(world.restart(1), Err(Reason::StaleObservation));
    world.leaderless();
    assert_eq!(world.restart(1), Err(Reason::NoLeaderKnown));
    assert_eq!(world.restart(4), Ok(()), "it holds nothing of the shard");
    world.lead(2, |_| {});
    world.seen.term_heard(world.shard, 8);
    assert_eq!(world.restart(1), Err(Reason::NoLeaderKnown), "a newer leader may be anywhere");
}

#[test]
fn a_decider_that_has_just_begun_allows_nothing_before_it_has_heard_everybody() {
    let mut world = World::new();
    world.seen = Observations::new(98_500);
    assert_eq!(
        world.restart(1),
        Err(Reason::NoLeaderKnown),
        "nothing is known to be wrong, and nothing at all"
    );
    let report = |world: &World, at_ms| healthy(&world.state, world.shard, 2, at_ms);
    for id in [1, 2, 4, 5] {
        world.seen.store_heard(id, store_seen(99_500, true));
    }
    let first = report(&world, 98_600);
    world.seen.leader_heard(world.shard, first, &settings());
    assert!(world.restart(1).is_err(), "the leader said it once");
    let second = report(&world, 99_600);
    world.seen.leader_heard(world.shard, second, &settings());
    assert_eq!(
        world.restart(1),
        Err(Reason::StoreSilent(3)),
        "its leader counts on a store that we have not heard"
    );
    world.seen.store_heard(3, store_seen(99_700, true));
    assert_eq!(world.restart(1), Ok(()));
}

#[test]
fn a_store_counts_only_while_it_is_heard_of_and_serves() {
    let mut world = World::new();
    world.seen.store_heard(3, StoreSeen { faulty: [world.replicas[2]].into(), ..store_seen(99_600, true) });
    assert_eq!(world.restart(1), Err(Reason::StoreDown(3)));
    world.seen.store_heard(3, store_seen(99_700, true));
    assert_eq!(world.restart(1), Ok(()));
    let behind = [world.replicas[2]].into();
    world.seen.store_heard(3, StoreSeen { behind, ..store_seen(99_750, true) });
    let lagging = Reason::ReplicaLagging(world.replicas[2]);
    assert_eq!(world.restart(1), Err(lagging), "it has restarted, whatever its log holds");
    world.seen.store_heard(3, store_seen(99_800, false));
    assert_eq!(world.restart(1), Err(Reason::StoreDown(3)));
    world.seen = Observations::new(50_000);
    world.lead(2, |_| {});
    for id in [1, 2, 4, 5] {
        world.seen.store_heard(id, store_seen(99_500, true));
    }
    assert_eq!(world.restart(1), Err(Reason::StoreSilent(3)));
}

#[test]
fn stores_under_other_leases_count_as_down_also_when_the_lease_has_expired() {
    let mut world = World::new();
    world.lease(DisruptionKind::Restart, &[4]);
    assert_eq!(world.restart(1), Ok(()));
    let lease = world.lease(DisruptionKind::Restart, &[3]);
    assert_eq!(world.restart(1), Err(Reason::UnderLease(3)));
    assert_eq!(world.answer(&Question::stop(&lease)), Ok(()), "its own does not");
    let later = lease.expires_at_ms + 1;
    apply(&mut world.state, later, Op::AllocateIds(v1::AllocateIds { count: 1 })).expect("time passes");
    assert_eq!(world.restart(1), Err(Reason::UnderLease(3)));
    let question = Question { kind: DisruptionKind::Restart, stores: [3].into(), step: Step::Acquire };
    let again = decide(&world.state, &world.seen, &settings(), NOW, &question);
    let Decision::Denied(denial) = again else { panic!("granted twice") };
    assert_eq!(denial.refusal, "store 3 is under another disruption lease");
}

#[test]
fn a_change_of_members_blocks_unless_it_moves_the_replica_away() {
    let mut world = World::new();
    world.lead(2, |r| r.changing = true);
    assert_eq!(world.restart(1), Err(Reason::ConfigChangeInProgress));
    world.lead(2, |r| {
        r.stores.insert(900, 4);
    });
    assert_eq!(world.restart(1), Err(Reason::ConfigChangeInProgress), "a learner is about to vote");
    world.lead(2, |r| r.epoch.conf += 1);
    assert_eq!(world.restart(1), Err(Reason::ConfigChangeInProgress), "metadata does not know it yet");
    world.lead(2, |r| r.epoch.conf -= 1);
    assert_eq!(world.restart(1), Err(Reason::StaleObservation), "the leader does not know it yet");
    world.join(1);
    assert_eq!(world.restart(1), Ok(()), "it goes anyway");
    assert_eq!(world.restart(3), Err(Reason::ConfigChangeInProgress));
    assert_eq!(world.restart(4), Err(Reason::ConfigChangeInProgress), "it comes");
}

#[test]
fn both_halves_of_a_joint_configuration_keep_their_quorum() {
    let mut world = World::new();
    world.join(1);
    assert_eq!(world.restart(1), Ok(()));
    world.seen.store_heard(4, store_seen(99_600, false));
    assert_eq!(world.restart(1), Ok(()), "2 and 3 are a quorum of both");
    world.seen.store_heard(3, store_seen(99_600, false));
    assert_eq!(world.restart(1), Err(Reason::StoreDown(3)), "2 is of neither");
    world.seen.store_heard(4, store_seen(99_700, true));
    assert_eq!(world.restart(1), Err(Reason::StoreDown(3)), "2 and 4 are one of the new half only");
}

#[test]
fn what_a_voter_said_before_the_lease_was_granted_lets_no_store_stop() {
    let mut world = World::new();
    let lease = world.lease_at(999_000, DisruptionKind::Restart, &[1]);
    world.lead_at(2, [98_500, 99_050], |_| {});
    assert_eq!(world.restart(3), Err(Reason::UnderLease(1)), "fresh enough to be asked");
    assert!(world.answer(&Question::stop(&lease)).is_err(), "acknowledged 1050 ms ago, granted 1000 ms ago");
    world.lead_at(2, [98_500, 99_150], |_| {});
    assert_eq!(world.answer(&Question::stop(&lease)), Ok(()));
}

#[test]
fn a_leader_goes_before_its_store_stops_and_the_new_one_says_so_itself() {
    let mut world = World::new();
    let lease = world.lease(DisruptionKind::Restart, &[2]);
    let stop = Question::stop(&lease);
    assert_eq!(world.answer(&stop), Err(Reason::LeaderStillHere(2)));
    let mut moved = healthy(&world.state, world.shard, 3, 99_400);
    moved.term = 8;
    world.seen.leader_heard(world.shard, moved.clone(), &settings());
    assert!(world.answer(&stop).is_err(), "said once");
    moved.at_ms = 99_900;
    world.seen.leader_heard(world.shard, moved, &settings());
    assert_eq!(world.answer(&stop), Ok(()));
    let late = LeaderReport { term: 7, ..healthy(&world.state, world.shard, 2, 99_950) };
    world.seen.leader_heard(world.shard, late, &settings());
    assert_eq!(world.answer(&stop), Ok(()), "the old one is not believed");
}

#[test]
fn a_store_that_does_not_serve_may_be_restarted_and_not_removed() {
    let mut world = World::new();
    // A bad image reached two stores; the shard has lost its quorum, and its leader sees nobody.
    world.lead(2, |r| r.peers.values_mut().for_each(|p| p.ack_ms_ago = 20_000));
    for id in [1, 3] {
        world.seen.store_heard(id, store_seen(99_600, false));
    }
    assert_eq!(world.restart(1), Ok(()));
    assert_eq!(world.ask(DisruptionKind::Restart, &[1, 3]), Ok(()));
    assert_eq!(world.restart(2), Err(Reason::StoreDown(1)), "it serves");
    for kind in [DisruptionKind::Remove, DisruptionKind::Replace] {
        assert!(world.ask(kind, &[1]).is_err(), "{kind:?}");
    }
    world.leaderless();
    assert_eq!(world.restart(1), Ok(()), "no leader, and there can be none");
    world.seen.store_heard(3, store_seen(99_700, true));
    assert_eq!(world.restart(1), Err(Reason::NoLeaderKnown), "2 and 3 may be about to elect one");
}

#[test]
fn silence_is_no_ground_for_a_restart_and_neither_is_a_word_that_its_shard_contradicts() {
    let mut world = World::new();
    world.lead(2, |r| r.peers.values_mut().for_each(|p| p.ack_ms_ago = 20_000));
    let old = StoreSeen { at_ms: 60_000, ..store_seen(0, false) };
    world.seen = {
        let mut seen = Observations::new(50_000);
        for id in [1, 3] {
            seen.store_heard(id, old.clone());
        }
        seen
    };
    world.lead(2, |r| r.peers.values_mut().for_each(|p| p.ack_ms_ago = 20_000));
    assert!(world.restart(1).is_err());
    let mut world = World::new();
    let third = world.replicas[2];
    world.lead(2, |r| r.peers.get_mut(&third).expect("a peer").ack_ms_ago = 20_000);
    world.seen.store_heard(1, store_seen(99_600, false));
    assert!(world.restart(1).is_err(), "its acknowledgements make the quorum");
}

#[test]
fn a_removal_needs_room_for_every_replica_and_no_replica_left_when_it_stops() {
    use DisruptionKind::Remove;
    let mut world = World::new();
    assert_eq!(world.ask(Remove, &[1]), Ok(()));
    world.lead(2, |r| r.live_bytes = 401);
    assert_eq!(world.ask(Remove, &[1]), Err(Reason::NoTarget), "500 free, 100 of them stay so");
    world.lead(2, |r| r.live_bytes = 400);
    assert_eq!(world.ask(Remove, &[1]), Ok(()));
    world.seen.store_heard(4, store_seen(99_600, false));
    world.seen.store_heard(5, StoreSeen { capacity_bytes: 0, ..store_seen(99_600, true) });
    assert_eq!(world.ask(Remove, &[1]), Err(Reason::NoTarget), "one is down, of one nothing is known");
    assert_eq!(world.restart(1), Ok(()), "a restart needs none");
    let lease = world.lease(Remove, &[1]);
    assert_eq!(world.answer(&Question::stop(&lease)), Err(Reason::ReplicaStillHere(1)));
    let mut record = world.state.shard(world.shard).expect("there").clone();
    let shard = record.shard.as_mut().expect("whole");
    shard.replicas.retain(|r| r.store_id != 1);
    shard.epoch.as_mut().expect("one").conf += 1;
    put(&mut world.state, record);
    world.lead(2, |_| {});
    assert_eq!(world.answer(&Question::stop(&lease)), Ok(()));
}

#[test]
fn a_shard_whose_first_replicas_are_being_created_blocks() {
    let mut world = World::new();
    assert_eq!(world.restart(1), Ok(()));
    let record = world.state.shards.get_mut(&world.shard).expect("there");
    record.bootstrapping = true;
    assert_eq!(world.restart(1), Err(Reason::BeingCreated));
}

/// Ten shards of three replicas; two containers of thirty are down, 93 % are up. Counting pods, the
/// third may go. It is the one that one of the shards has left.
#[test]
fn counting_pods_says_yes_where_the_gate_names_the_shard_that_would_be_lost() {
    let mut state = cluster(30);
    let placements: Vec<Vec<u64>> = (0..10).map(|i| vec![3 * i + 1, 3 * i + 2, 3 * i + 3]).collect();
    let shards = table(&mut state, "orders", 2, &placements);
    let mut seen = Observations::new(50_000);
    for (shard, stores) in shards.iter().zip(&placements) {
        for at_ms in [98_000, 99_000] {
            let mut report = healthy(&state, *shard, stores[2], at_ms);
            let lost = |r: &u64| [13, 22].contains(&report.stores[r]);
            let lost: Vec<u64> = report.peers.keys().copied().filter(lost).collect();
            lost.iter().for_each(|id| {
                report.peers.insert(*id, Progress { match_index: 1, ack_ms_ago: 60_000 });
            });
            seen.leader_heard(*shard, report, &settings());
        }
    }
    for id in 1..=30 {
        seen.store_heard(id, store_seen(99_500, ![13, 22].contains(&id)));
    }
    let pods_up = (1..=30).filter(|id| ![13, 22].contains(id)).count();
    let counting_pods = |going: usize| (pods_up - going) * 100 / 30 >= 90;
    let ask = |stores: &[u64]| {
        let stores = stores.iter().copied().collect();
        let question = Question { kind: DisruptionKind::Restart, stores, step: Step::Acquire };
        decide(&state, &seen, &settings(), NOW, &question)
    };
    assert!(counting_pods(1));
    assert!(matches!(ask(&[1]), Decision::Granted(_)));
    let Decision::Denied(denial) = ask(&[14]) else { panic!("a shard would be lost") };
    let expected = Blocking {
        shard_id: shards[4],
        table: "orders".into(),
        range: v1::KeyRange { start: "0004".into(), end: "0005".into() },
        reason: Reason::StoreDown(13),
        since_ms: Some(999_500),
    };
    assert_eq!(denial.blocking, [expected]);
    let all: Vec<u64> = (0..10).flat_map(|i| [3 * i + 1, 3 * i + 2]).collect();
    let Decision::Denied(denial) = ask(&all) else { panic!("every shard would be lost") };
    assert_eq!((denial.blocking.len(), denial.blocking_count), (10, 10));
    assert!(
        matches!(
            ask(&(0..10).map(|i| 3 * i + 1).filter(|s| *s != 13 && *s != 22).collect::<Vec<_>>()),
            Decision::Granted(_)
        ),
        "eight at once, where each shard gives one"
    );
}

#[test]
fn a_denial_names_ten_shards_counts_all_and_says_since_when() {
    let mut state = cluster(3);
    let shards = table(&mut state, "t", 2, &vec![vec![1, 2, 3]; 12]);
    let mut seen = Observations::new(50_000);
    for id in 1..=3 {
        seen.store_heard(id, store_seen(99_500, true));
    }
    let lagging = |report: &mut LeaderReport| report.peers.values_mut().for_each(|p| p.match_index = 0);
    for at_ms in [80_000, 84_000, 98_000, 99_000] {
        for shard in &shards {
            let mut report = healthy(&state, *shard, 2, at_ms);
            if at_ms > 80_000 {
                lagging(&mut report);
            }
            seen.leader_heard(*shard, report, &settings());
        }
    }
    let question = Question { kind: DisruptionKind::Restart, stores: [1].into(), step: Step::Acquire };
    let Decision::Denied(denial) = decide(&state, &seen, &settings(), NOW, &question) else {
        panic!("they lag")
    };
    assert_eq!((denial.blocking.len(), denial.blocking_count), (10, 12));
    assert!(denial.blocking.iter().all(|b| b.since_ms == Some(984_000)), "{:?}", denial.blocking);
}
