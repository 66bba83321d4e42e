//! Hosts on loopback: proposing, failing over, restarting, changing members, reading.

mod support;

use std::collections::BTreeMap;
use std::future::Future;
use support::registers::{Op, number};
use support::{Cluster, LONG, SHARD, group};
use undb_raft::{Barrier, Group, Member, RaftError};

fn change(
    group: Group,
    voters: &BTreeMap<u64, Member>,
    learners: &BTreeMap<u64, Member>,
) -> impl Future<Output = Result<(), RaftError>> + use<> {
    let (voters, learners) = (voters.clone(), learners.clone());
    async move { group.change_members(voters, learners).await }
}

fn put(name: &str, value: u64) -> Op {
    Op::Put(name.into(), value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_applied_everywhere_and_have_a_place_in_the_log() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let leader = cluster.found(SHARD).await;
    let proposals = (0..200_u64).map(|i| {
        let group = cluster.group(leader, SHARD);
        async move { group.propose(Op::Add("n".into(), i).encode()).await }
    });
    let answers = futures::future::try_join_all(proposals).await.expect("all are done");
    let last = answers.iter().map(|(id, _)| *id).max().expect("some");
    let mut sums: Vec<u64> = answers.iter().map(|(_, a)| number(a)).collect();
    sums.sort();
    assert_eq!(sums.last(), Some(&(0..200).sum()));
    for store in [1, 2, 3] {
        cluster.applied(store, SHARD, last).await;
        let machine = cluster.machine(store, group(SHARD, store));
        assert_eq!(machine.get("n"), (0..200).sum::<u64>());
        for (command, at) in machine.located.lock().iter() {
            let at = at.expect("every command has a place");
            let log = &cluster.stores[&store].log;
            assert_eq!(&log.read_at(at.segment, at.offset, at.len as usize).expect("readable"), command);
        }
    }
    // A follower says who leads.
    let follower = [1, 2, 3].into_iter().find(|s| *s != leader).expect("another");
    let refused = cluster.group(follower, SHARD).propose(put("x", 1).encode()).await;
    assert!(
        matches!(refused, Err(RaftError::NotLeader { leader: Some(at), .. }) if at == (leader, leader)),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_leader_is_replaced_and_what_was_acknowledged_stays() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let first = cluster.found(SHARD).await;
    for i in 1..=20 {
        cluster.put(SHARD, put(&format!("k{i}"), i)).await;
    }
    cluster.stop_store(first).await;
    let (last, _) = cluster.put(SHARD, put("after", 1)).await;
    let second = cluster.leader(SHARD).await;
    assert_ne!(first, second);
    for (store, _) in cluster.groups(SHARD) {
        cluster.applied(store, SHARD, last).await;
        let machine = cluster.machine(store, group(SHARD, store));
        assert!((1..=20).all(|i| machine.get(&format!("k{i}")) == i));
    }
    // The lost one comes back, from its log and from its peers.
    cluster.start_store(first).await;
    cluster.open(first, group(SHARD, first)).await;
    cluster.applied(first, SHARD, last).await;
    assert_eq!(cluster.machine(first, group(SHARD, first)).get("after"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_stopped_comes_back_with_everything() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    cluster.found(SHARD).await;
    for i in 1..=50 {
        let (_, sum) = cluster.put(SHARD, Op::Add("n".into(), i)).await;
        assert!(sum >= i);
        // Part of the state is durable, so that a restart applies the rest again.
        if i == 25 {
            cluster.machine(1, group(SHARD, 1)).flush();
        }
    }
    for store in [1, 2, 3] {
        cluster.stop_store(store).await;
    }
    for store in [1, 2, 3] {
        cluster.start_store(store).await;
        cluster.open(store, group(SHARD, store)).await;
    }
    let (last, sum) = cluster.put(SHARD, Op::Add("n".into(), 1)).await;
    assert!(sum > (1..=50).sum());
    for store in [1, 2, 3] {
        cluster.applied(store, SHARD, last).await;
        assert_eq!(cluster.machine(store, group(SHARD, store)).get("n"), sum);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_far_behind_comes_by_snapshot() {
    let mut cluster = Cluster::start([1, 2, 3, 4]).await;
    cluster.stores.get(&4).expect("it runs");
    let voters: BTreeMap<u64, Member> = (1..=3).map(|id| (id, cluster.member(id))).collect();
    for store in 1..=3 {
        let group = cluster.open(store, group(SHARD, store)).await;
        group.initialize(voters.clone()).await.expect("initializes");
    }
    for i in 0..40_u64 {
        cluster.put(SHARD, Op::Fill(format!("bulk{i}"), vec![i as u8; 32 << 10])).await;
    }
    for store in 1..=3 {
        let durable = cluster.machine(store, group(SHARD, store)).flush().expect("applied");
        let purged = cluster.group(store, SHARD).purge_to_durable(durable).await.expect("purges");
        assert!(purged.is_some_and(|id| id.index > 10), "store {store} purged to {purged:?}");
    }
    cluster.open(4, group(SHARD, 4)).await;
    let learners = BTreeMap::from([(4, cluster.member(4))]);
    cluster.on_leader(SHARD, |g| change(g, &voters, &learners)).await;
    let (last, _) = cluster.put(SHARD, put("after", 5)).await;
    cluster.applied(4, SHARD, last).await;
    let machine = cluster.machine(4, group(SHARD, 4));
    assert_eq!((machine.bulk_len(), machine.get("after")), (40 * (32 << 10), 5));
    assert_eq!(*machine.installs.lock(), 1);
    let status = cluster.group(4, SHARD).status();
    assert!(status.learners.contains_key(&4) && !status.voters.contains_key(&4));
    // It restarts from what was installed.
    cluster.stop_store(4).await;
    cluster.start_store(4).await;
    cluster.open(4, group(SHARD, 4)).await;
    let (last, _) = cluster.put(SHARD, put("again", 6)).await;
    cluster.applied(4, SHARD, last).await;
    assert_eq!(cluster.machine(4, group(SHARD, 4)).bulk_len(), 40 * (32 << 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_goes_where_it_is_sent() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let mut leader = cluster.found(SHARD).await;
    cluster.put(SHARD, put("a", 1)).await;
    for _ in 0..3 {
        let to = leader % 3 + 1;
        cluster.group(leader, SHARD).transfer_leader(to).await.expect("it is handed over");
        let status = cluster.group(leader, SHARD).status();
        assert_eq!((status.leader, status.is_leader), (Some(to), false));
        cluster.put(SHARD, Op::Add("n".into(), 1)).await;
        leader = to;
        assert_eq!(cluster.leader(SHARD).await, to);
    }
    // Asking again, and asking for a stranger.
    cluster.group(leader, SHARD).transfer_leader(leader).await.expect("it leads");
    let refused = cluster.group(leader, SHARD).transfer_leader(99).await;
    assert!(matches!(refused, Err(RaftError::Refused(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_voters_are_replaced_one_call_after_another() {
    let mut cluster = Cluster::start([1, 2, 3, 4, 5, 6]).await;
    let first: BTreeMap<u64, Member> = (1..=3).map(|id| (id, cluster.member(id))).collect();
    for store in 1..=3 {
        let group = cluster.open(store, group(SHARD, store)).await;
        group.initialize(first.clone()).await.expect("initializes");
    }
    cluster.leader(SHARD).await;
    for i in 1..=30 {
        cluster.put(SHARD, put(&format!("k{i}"), i)).await;
    }
    for store in 4..=6 {
        cluster.open(store, group(SHARD, store)).await;
    }
    let second: BTreeMap<u64, Member> = (4..=6).map(|id| (id, cluster.member(id))).collect();
    let (leader, ()) = cluster.on_leader(SHARD, |g| change(g, &second, &BTreeMap::new())).await;
    let status = cluster.group(leader, SHARD).status();
    assert_eq!(status.voters.keys().copied().collect::<Vec<_>>(), [4, 5, 6]);
    assert!(status.learners.is_empty() && !status.joint && status.config_committed);
    // Again changes nothing.
    let before = cluster.group(leader, SHARD).status();
    cluster.on_leader(SHARD, |g| change(g, &second, &BTreeMap::new())).await;
    let after = cluster.group(leader, SHARD).status();
    assert!(after.term > before.term || after.last_index == before.last_index);
    for store in 1..=3 {
        cluster.stop_store(store).await;
    }
    let (last, _) = cluster.put(SHARD, put("after", 1)).await;
    for store in 4..=6 {
        cluster.applied(store, SHARD, last).await;
        let machine = cluster.machine(store, group(SHARD, store));
        assert!((1..=30).all(|i| machine.get(&format!("k{i}")) == i));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn barriers_hold_on_the_leader_and_nowhere_else() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    let mut leader = cluster.found(SHARD).await;
    for barrier in [Barrier::Lease, Barrier::ReadIndex] {
        (leader, ()) = cluster.on_leader(SHARD, |g| async move { g.barrier(barrier).await }).await;
        let follower = cluster.groups(SHARD).into_iter().find(|(id, _)| *id != leader).expect("another").1;
        let refused = follower.barrier(barrier).await;
        assert!(matches!(refused, Err(RaftError::NotLeader { leader: Some(_), .. })), "{refused:?}");
    }
    let lead = cluster.group(leader, SHARD);
    // Without a quorum the lease runs out and neither kind of read is allowed.
    for store in [1, 2, 3].into_iter().filter(|s| *s != leader) {
        cluster.stop_store(store).await;
    }
    let lost =
        |s: &undb_raft::GroupStatus| s.quorum_age.is_none_or(|age| age > support::timing().election_max);
    lead.watch().wait_for("the lease is over", LONG, lost).await.expect("it is");
    for barrier in [Barrier::Lease, Barrier::ReadIndex] {
        let refused = lead.barrier(barrier).await;
        assert!(matches!(refused, Err(RaftError::Busy | RaftError::NotLeader { .. })), "{refused:?}");
    }
    let write = lead.propose(put("a", 2).encode()).await;
    assert!(matches!(write, Err(RaftError::Busy | RaftError::NotLeader { leader: None, .. })), "{write:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_store_comes_back_under_a_new_replica_id() {
    let mut cluster = Cluster::start([1, 2, 3]).await;
    cluster.found(SHARD).await;
    for i in 1..=10 {
        cluster.put(SHARD, put(&format!("k{i}"), i)).await;
    }
    cluster.wipe_store(3).await;
    cluster.start_store(3).await;
    cluster.open(3, group(SHARD, 30)).await;
    let voters = BTreeMap::from([(1, cluster.member(1)), (2, cluster.member(2)), (30, cluster.member(3))]);
    let (leader, ()) = cluster.on_leader(SHARD, |g| change(g, &voters, &BTreeMap::new())).await;
    assert_eq!(cluster.group(leader, SHARD).status().voters.keys().copied().collect::<Vec<_>>(), [1, 2, 30]);
    let (last, _) = cluster.put(SHARD, put("after", 1)).await;
    cluster.applied(3, SHARD, last).await;
    let machine = cluster.machine(3, group(SHARD, 30));
    assert!((1..=10).all(|i| machine.get(&format!("k{i}")) == i));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_lost_its_leader_half_way_is_taken_up_by_the_next() {
    let mut cluster = Cluster::start([1, 2, 3, 4, 5, 6]).await;
    let first: BTreeMap<u64, Member> = (1..=3).map(|id| (id, cluster.member(id))).collect();
    let second: BTreeMap<u64, Member> = (4..=6).map(|id| (id, cluster.member(id))).collect();
    for store in 1..=3 {
        let group = cluster.open(store, group(SHARD, store)).await;
        group.initialize(first.clone()).await.expect("initializes");
    }
    cluster.put(SHARD, put("a", 1)).await;
    for store in 4..=6 {
        cluster.open(store, group(SHARD, store)).await;
    }
    let leader = cluster.leader(SHARD).await;
    let lead = cluster.group(leader, SHARD);
    let changing = tokio::spawn(change(lead.clone(), &second, &BTreeMap::new()));
    let begun = |s: &undb_raft::GroupStatus| !s.learners.is_empty() || s.voters.len() > 3 || !s.is_leader;
    lead.watch().wait_for("the change has begun", LONG, begun).await.expect("it begins");
    cluster.stop_store(leader).await;
    // Cut off, however far it was: an error, or done by then.
    let _ = changing.await.expect("no panic");
    let (leader, ()) = cluster.on_leader(SHARD, |g| change(g, &second, &BTreeMap::new())).await;
    let status = cluster.group(leader, SHARD).status();
    assert_eq!(status.voters.keys().copied().collect::<Vec<_>>(), [4, 5, 6]);
    assert!(status.learners.is_empty() && !status.joint);
    let (last, _) = cluster.put(SHARD, put("b", 2)).await;
    for store in 4..=6 {
        cluster.applied(store, SHARD, last).await;
        assert_eq!(cluster.machine(store, group(SHARD, store)).get("a"), 1);
    }
}
