//! The rules of one shard.

use super::{Cause, Gate, LeaderReport, Reason, Rule, ShardSeen, Step};
use crate::state::{epoch_of, shard_of};
use std::collections::{BTreeMap, BTreeSet};
use undb_proto::v1::{self, DisruptionKind, Role, StoreState};

/// A leader's report that can be relied on, with what else was seen of its shard.
pub(super) struct Led<'a> {
    pub(super) seen: &'a ShardSeen,
    pub(super) report: &'a LeaderReport,
}

impl Gate<'_> {
    /// Whether a shard bears the disruption, or why not.
    pub(super) fn judge(&self, record: &v1::ShardRecord) -> Result<(), Cause> {
        let safe = self.judge_serving(record);
        let restart = self.question.kind == DisruptionKind::Restart;
        if safe.is_err() && restart && (self.nothing_lost(record) || self.may_be_away(record)) {
            return Ok(());
        }
        safe
    }

    fn judge_serving(&self, record: &v1::ShardRecord) -> Result<(), Cause> {
        if record.bootstrapping {
            return Err((Reason::BeingCreated, None));
        }
        let stop = matches!(self.question.step, Step::Stop { .. });
        if stop && self.question.kind == DisruptionKind::Remove {
            self.check_moved(record)?;
        }
        let led = match self.leader(record) {
            Ok(led) => led,
            Err(_) if !self.applies(Rule::LeaderKnown) => return Ok(()),
            Err(cause) => return Err(cause),
        };
        self.check_unchanging(record, &led)?;
        let asked = |id: &u64| self.question.stores.contains(id);
        if let Some(store_id) = led.report.store_id().filter(asked)
            && stop
            && self.applies(Rule::LeaderElsewhere)
        {
            return Err((Reason::LeaderStillHere(store_id), None));
        }
        if let Some(incoming) = &led.report.incoming {
            self.check_half(record, &led, incoming)?;
            if !self.applies(Rule::BothHalves) {
                return Ok(());
            }
        }
        self.check_half(record, &led, &led.report.voters)
    }

    /// The leader that reported lately and that nobody has gone past.
    pub(super) fn leader(&self, record: &v1::ShardRecord) -> Result<Led<'_>, Cause> {
        let started = Some(self.seen.started_ms);
        let seen = self.seen.shard(shard_of(record).shard_id).ok_or((Reason::NoLeaderKnown, started))?;
        let report = seen.leader.as_ref().ok_or((Reason::NoLeaderKnown, started))?;
        let store_id = report.store_id().ok_or((Reason::NoLeaderKnown, started))?;
        if self.is_old(report.at_ms, 0) {
            return Err((Reason::StaleObservation, Some(report.at_ms)));
        }
        if seen.term_max > report.term {
            return Err((Reason::NoLeaderKnown, Some(report.at_ms)));
        }
        // A leader on a store that is known to take part in nothing led before, and does no more.
        if self.is_out(store_id) {
            return Err((Reason::NoLeaderKnown, Some(report.at_ms)));
        }
        Ok(Led { seen, report })
    }

    /// Metadata and the leader agree, and nothing is about to differ.
    fn check_unchanging(&self, record: &v1::ShardRecord, led: &Led<'_>) -> Result<(), Cause> {
        let report = led.report;
        let (known, epoch) = (shard_of(record), report.epoch);
        if !epoch.covers(epoch_of(known)) && self.applies(Rule::Unchanging) {
            return Err((Reason::StaleObservation, Some(report.at_ms)));
        }
        let voters = known.replicas.iter().filter(|r| r.role() == Role::Voter);
        let voters: BTreeMap<u64, u64> = voters.map(|r| (r.replica_id, r.store_id)).collect();
        let settled = !report.changing
            && report.incoming.is_none()
            && report.stores == voters
            && voters.len() == known.replicas.len()
            && report.voters.len() == voters.len()
            && epoch == epoch_of(known);
        if settled || self.moves_away(report) || !self.applies(Rule::Unchanging) {
            return Ok(());
        }
        Err((Reason::ConfigChangeInProgress, led.seen.changing_since.or(Some(report.at_ms))))
    }

    /// The change under way is the one after which the shard is on none of the stores asked for.
    fn moves_away(&self, report: &LeaderReport) -> bool {
        let Some(incoming) = &report.incoming else { return false };
        let asked = |id: &u64| report.stores.get(id).is_some_and(|s| self.question.stores.contains(s));
        !report.changing && !incoming.iter().any(asked) && report.voters.iter().any(asked)
    }

    /// Those that remain are enough.
    fn check_half(&self, record: &v1::ShardRecord, led: &Led<'_>, half: &BTreeSet<u64>) -> Result<(), Cause> {
        let quorum = if self.applies(Rule::Quorum) { half.len() / 2 + 1 } else { 1 };
        let table = self.state.table(shard_of(record).table_id);
        let min_available = table.map_or(usize::MAX, |t| t.min_available as usize);
        let needed = if self.applies(Rule::MinAvailable) { quorum.max(min_available) } else { quorum };
        let mut remaining = 0;
        let mut first = None;
        for replica_id in half {
            match self.check_voter(led, *replica_id) {
                Ok(true) => remaining += 1,
                Ok(false) => {}
                Err(cause) => first = first.or(Some(cause)),
            }
        }
        if remaining >= needed {
            return Ok(());
        }
        // Who is out for another reason than this question explains most; else there are too few at all.
        let few = match table.is_some_and(|t| t.replication == 1) {
            true => Reason::SingleReplicaTable,
            false => Reason::TooFewVoters { remaining, needed },
        };
        Err(first.unwrap_or((few, None)))
    }

    /// True when a voter counts; false when it is on a store asked for; or why it does not count.
    fn check_voter(&self, led: &Led<'_>, replica_id: u64) -> Result<bool, Cause> {
        let Some(store_id) = led.report.stores.get(&replica_id).copied() else {
            return Err((Reason::ConfigChangeInProgress, led.seen.changing_since));
        };
        if self.question.stores.contains(&store_id) {
            return Ok(false);
        }
        if self.leased.contains(&store_id) && self.applies(Rule::OtherLeases) {
            return Err((Reason::UnderLease(store_id), None));
        }
        self.check_serves(store_id, replica_id)?;
        if self.caught_up(led, replica_id) {
            return Ok(true);
        }
        let since = led.seen.behind_since.get(&replica_id).copied();
        Err((Reason::ReplicaLagging(replica_id), since.or(Some(led.report.at_ms))))
    }

    pub(super) fn check_serves(&self, store_id: u64, replica_id: u64) -> Result<(), Cause> {
        if !self.applies(Rule::StoreServes) {
            return Ok(());
        }
        if self.state.store(store_id).is_none_or(|s| s.state() == StoreState::StoreRemoved) {
            return Err((Reason::StoreDown(store_id), None));
        }
        let Some(seen) = self.seen.store(store_id) else {
            return Err((Reason::StoreSilent(store_id), Some(self.seen.started_ms)));
        };
        if self.is_old(seen.at_ms, 0) {
            return Err((Reason::StoreSilent(store_id), Some(seen.at_ms)));
        }
        if !seen.serving || seen.faulty.contains(&replica_id) {
            return Err((Reason::StoreDown(store_id), Some(seen.since_ms)));
        }
        if seen.behind.contains(&replica_id) {
            return Err((Reason::ReplicaLagging(replica_id), Some(seen.since_ms)));
        }
        Ok(())
    }

    pub(super) fn caught_up(&self, led: &Led<'_>, replica_id: u64) -> bool {
        if !self.applies(Rule::CaughtUp) {
            return true;
        }
        let lag_max = self.settings.lag_entries_max;
        let once = led.report.has_caught_up(replica_id, lag_max)
            && led.report.ack_ms_ago(replica_id).is_some_and(|ago| !self.is_old(led.report.at_ms, ago));
        // Twice in a row: a single report may be of a leader that was just elected, or about to fall.
        let twice = led.seen.before.as_ref().is_some_and(|before| {
            let gap_ms = led.report.at_ms.saturating_sub(before.at_ms);
            gap_ms <= self.settings.fresh_ms && before.has_caught_up(replica_id, lag_max)
        });
        once && (twice || !self.applies(Rule::SeenTwice))
    }

    /// REMOVE stops a store when it holds nothing any more.
    fn check_moved(&self, record: &v1::ShardRecord) -> Result<(), Cause> {
        let listed = shard_of(record).replicas.iter().map(|r| r.store_id);
        match listed.into_iter().find(|id| self.question.stores.contains(id)) {
            Some(store_id) => Err((Reason::ReplicaStillHere(store_id), None)),
            None => Ok(()),
        }
    }

    /// The only copy of a table whose owner said that planned restarts may take it away: `minAvailable` 0,
    /// which only a table of one copy can have.
    fn may_be_away(&self, record: &v1::ShardRecord) -> bool {
        let shard = shard_of(record);
        let agreed =
            self.state.table(shard.table_id).is_some_and(|t| t.replication == 1 && t.min_available == 0);
        let settled = matches!(&shard.replicas[..], [only] if only.role() == Role::Voter);
        agreed && settled && !record.bootstrapping
    }

    /// Known to take part in nothing.
    fn is_out(&self, store_id: u64) -> bool {
        self.seen.store(store_id).is_some_and(|s| !s.serving && !self.is_old(s.at_ms, 0))
    }

    /// The ground on which a store that does not serve may be restarted: it is known not to, and what
    /// else is known of the shard agrees that its availability stays what it is.
    fn nothing_lost(&self, record: &v1::ShardRecord) -> bool {
        let known = shard_of(record);
        let asked = |store_id: &u64| self.question.stores.contains(store_id);
        let leader = self.leader(record).ok();
        let listed = known.replicas.iter().map(|r| r.store_id);
        let mut here =
            listed.chain(leader.iter().flat_map(|l| l.report.stores.values().copied())).filter(asked);
        if !here.all(|id| self.is_out(id)) && self.applies(Rule::NothingLost) {
            return false;
        }
        match leader {
            Some(led) => led.report.halves().all(|half| self.stays_as_it_is(&led, half)),
            None => self.is_unavailable(record),
        }
    }

    /// Acknowledgements of the stores asked for do not make the difference, whether those of other
    /// leases count or not.
    fn stays_as_it_is(&self, led: &Led<'_>, half: &BTreeSet<u64>) -> bool {
        let report = led.report;
        let quorum = half.len() / 2 + 1;
        let acking = |id: &&u64| report.ack_ms_ago(**id).is_some_and(|ago| !self.is_old(report.at_ms, ago));
        let stores: Vec<u64> =
            half.iter().filter(acking).filter_map(|id| report.stores.get(id).copied()).collect();
        let holds = |down: &dyn Fn(&u64) -> bool| stores.iter().filter(|s| !down(s)).count() >= quorum;
        let asked = |s: &u64| self.question.stores.contains(s);
        let leased = |s: &u64| self.leased.contains(s);
        let kept = |before: bool, after: bool| after || !before;
        kept(holds(&|_| false), holds(&asked)) && kept(holds(&leased), holds(&|s| leased(s) || asked(s)))
    }

    /// Without a leader that reports: so many voters are known to be out that there can be none.
    fn is_unavailable(&self, record: &v1::ShardRecord) -> bool {
        let replicas = &shard_of(record).replicas;
        let settled = !record.bootstrapping && replicas.iter().all(|r| r.role() == Role::Voter);
        let perhaps = replicas.iter().filter(|r| !self.is_out(r.store_id)).count();
        settled && perhaps < replicas.len() / 2 + 1
    }
}
