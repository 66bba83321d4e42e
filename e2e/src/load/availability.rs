//! Which replicas are unavailable, judged from what the stores themselves say: silent for 2 s, broken, or
//! more than 1,000 entries behind.
//!
//! Pure: reports and time go in, counts come out. Time is the sampler's own and stands still while the
//! sampler itself does, so a busy machine makes no replica look silent.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SILENT: Duration = Duration::from_secs(2);
const ENTRIES_BEHIND_MAX: u64 = 1000;

/// One element of what a store answers to `GET /replicas`; other fields are not needed here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The store that says so.
    pub store: u64,
    /// The shard.
    pub shard: u64,
    /// The replica.
    pub replica: u64,
    /// Its term.
    pub term: u64,
    /// True for the leader.
    pub is_leader: bool,
    /// Its last log entry.
    pub last_index: u64,
    /// What it knows to be committed.
    pub committed_index: u64,
    /// What it has applied.
    pub applied_index: u64,
    /// The voters as it knows them; of a joint configuration, the outgoing half.
    pub voters: Vec<u64>,
    /// The incoming half.
    pub voters_incoming: Vec<u64>,
    /// What is broken about it.
    pub fault: String,
}

impl Report {
    fn voter_ids(&self) -> BTreeSet<u64> {
        self.voters.iter().chain(&self.voters_incoming).copied().collect()
    }
}

struct Seen {
    at: Duration,
    applied: u64,
    faulty: bool,
    store: u64,
}

#[derive(Default)]
struct Shard {
    term: u64,
    committed: u64,
    voters: BTreeSet<u64>,
    replicas: BTreeMap<u64, Seen>,
}

/// A voter that does not count.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unavailable {
    /// Its id.
    pub replica: u64,
    /// Where it was last seen; 0: never.
    pub store: u64,
    /// Why.
    pub why: String,
}

/// What is known of all shards.
#[derive(Default)]
pub struct Availability {
    shards: BTreeMap<u64, Shard>,
    /// When each store last answered.
    answered: BTreeMap<u64, Duration>,
}

impl Availability {
    /// A store's answer. `now`: of the sampler's clock.
    pub fn observe(&mut self, now: Duration, reports: Vec<Report>) {
        for report in reports {
            self.answered.insert(report.store, now);
            let shard = self.shards.entry(report.shard).or_default();
            let voters = report.voter_ids();
            // Of the newest term the leader says who votes; until one is known, anybody.
            let first_word = shard.voters.is_empty();
            if !voters.is_empty() && (first_word || (report.is_leader && report.term >= shard.term)) {
                shard.voters = voters;
            }
            shard.term = shard.term.max(report.term);
            shard.committed = shard.committed.max(report.committed_index);
            let (applied, faulty, store) = (report.applied_index, !report.fault.is_empty(), report.store);
            shard.replicas.insert(report.replica, Seen { at: now, applied, faulty, store });
        }
    }

    /// Forgets shards of deleted tables: every store with a voter has answered since and names none of them, or
    /// nobody has spoken of it for a long time. One voter that is still named keeps the shard.
    pub fn forget(&mut self, now: Duration, after: Duration) {
        let answered = &self.answered;
        self.shards.retain(|_, shard| {
            shard.replicas.retain(|id, seen| shard.voters.contains(id) || now < seen.at + SILENT * 10);
            let is_dropped = |seen: &Seen| answered.get(&seen.store).is_some_and(|at| seen.at < *at);
            let is_dropped = |id| shard.replicas.get(id).is_some_and(is_dropped);
            let is_deleted = !shard.voters.is_empty() && shard.voters.iter().all(is_dropped);
            !is_deleted && shard.replicas.values().any(|seen| now < seen.at + after)
        });
    }

    /// Shards known.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Of each shard with any: its unavailable voters.
    pub fn unavailable(&self, now: Duration) -> BTreeMap<u64, Vec<Unavailable>> {
        let judged = self.shards.iter().map(|(id, shard)| (*id, shard.unavailable(now)));
        judged.filter(|(_, all)| !all.is_empty()).collect()
    }

    /// Shards in which fewer voters than a majority are available.
    pub fn without_quorum(&self, now: Duration) -> Vec<u64> {
        let lost = |shard: &Shard| shard.unavailable(now).len() * 2 >= shard.voters.len().max(1);
        self.shards.iter().filter(|(_, shard)| lost(shard)).map(|(id, _)| *id).collect()
    }
}

impl Shard {
    fn unavailable(&self, now: Duration) -> Vec<Unavailable> {
        let judge = |replica: &u64| {
            let Some(seen) = self.replicas.get(replica) else {
                return Some(Unavailable { replica: *replica, store: 0, why: "never seen".into() });
            };
            let silent = now.saturating_sub(seen.at);
            let behind = self.committed.saturating_sub(seen.applied);
            let why = if silent >= SILENT {
                format!("silent for {} ms", silent.as_millis())
            } else if seen.faulty {
                "broken".into()
            } else if behind > ENTRIES_BEHIND_MAX {
                format!("{behind} entries behind")
            } else {
                return None;
            };
            Some(Unavailable { replica: *replica, store: seen.store, why })
        };
        self.voters.iter().filter_map(judge).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn report(replica: u64, applied: u64) -> Report {
        let value = json!({
            "store": replica * 10, "shard": 1, "table_id": 1, "replica": replica, "term": 4,
            "leader": 1, "is_leader": replica == 1, "last_index": 5000, "committed_index": applied,
            "applied_index": applied, "caught_up": true, "joint": false, "voters": [1, 2, 3], "voters_incoming": [], "peers": [], "fault": "",
        });
        serde_json::from_value(value).expect("a report")
    }

    #[test]
    fn a_silent_and_a_lagging_replica_are_unavailable_and_two_lose_the_quorum() {
        let mut all = Availability::default();
        all.observe(at(0), vec![report(1, 2000), report(2, 2000), report(3, 1000)]);
        assert!(all.unavailable(at(1999)).is_empty());
        all.observe(at(1500), vec![report(1, 2001), report(2, 2001)]);
        let found = all.unavailable(at(2000));
        assert_eq!(found[&1].len(), 1, "{found:?}");
        assert!(found[&1][0].replica == 3 && found[&1][0].why.contains("silent"));
        assert!(all.without_quorum(at(2000)).is_empty());
        all.observe(at(2100), vec![report(1, 9000), report(3, 9000)]);
        assert!(all.unavailable(at(2100))[&1][0].why.contains("6999 entries behind"));
        all.observe(at(4000), vec![report(1, 9000)]);
        assert_eq!(all.without_quorum(at(4100)), vec![1]);
    }

    #[test]
    fn a_voter_never_seen_counts_and_a_learner_does_not() {
        let mut all = Availability::default();
        all.observe(at(0), vec![report(1, 10), report(2, 10), report(9, 0)]);
        let found = all.unavailable(at(0));
        assert_eq!(found[&1].iter().map(|u| u.replica).collect::<Vec<_>>(), [3]);
    }

    #[test]
    fn an_old_leader_does_not_bring_back_old_voters() {
        let mut all = Availability::default();
        let mut newer = report(1, 10);
        (newer.term, newer.voters, newer.voters_incoming) = (5, vec![1, 2], vec![2, 4]);
        all.observe(at(0), vec![newer, report(2, 10), report(1, 10)]);
        let voters: Vec<u64> = all.shards[&1].voters.iter().copied().collect();
        assert_eq!(voters, [1, 2, 4]);
    }

    #[test]
    fn a_deleted_shard_is_forgotten_but_a_silent_one_is_not() {
        let mut all = Availability::default();
        all.observe(at(0), vec![report(1, 10)]);
        all.forget(at(30_000), Duration::from_secs(60));
        assert_eq!(all.without_quorum(at(30_000)), vec![1]);
        all.forget(at(60_000), Duration::from_secs(60));
        assert_eq!(all.shards(), 0);
    }

    #[test]
    fn a_shard_that_every_answering_store_has_dropped_is_forgotten_at_once() {
        let of = |shard: u64, replica: u64| Report { shard, ..report(replica, 10) };
        let mut all = Availability::default();
        all.observe(at(0), (1..=3).flat_map(|replica| [of(1, replica), of(2, replica)]).collect());
        all.observe(at(500), vec![of(1, 1), of(1, 2)]);
        all.forget(at(500), Duration::from_secs(60));
        assert_eq!(all.shards(), 2, "the third store has not answered since");
        all.observe(at(1000), vec![of(1, 3)]);
        all.forget(at(1000), Duration::from_secs(60));
        assert_eq!(all.shards(), 1);
        all.observe(at(1500), vec![of(2, 1)]);
        all.observe(at(4000), vec![of(1, 1), of(1, 2)]);
        all.forget(at(4000), Duration::from_secs(60));
        assert_eq!(
            all.without_quorum(at(4000)),
            vec![2],
            "one voter of it is silent, the others were never seen"
        );
    }
}
