//! Changing who the members of a group are.
//!
//! ```text
//! finish a change left half done -> add learners -> wait until they are caught up
//!   -> joint -> uniform -> remove who is not named
//! ```
//! Each step looks at what is there, so a call that was cut off anywhere is simply made again. A
//! leader that is not among the new voters hands over first and answers `NotLeader`; the new leader
//! goes on.

use crate::group::Group;
use crate::{GroupStatus, Member, RaftError};
use openraft::ChangeMembers;
use openraft::errors::{ChangeMembershipError, ClientWriteError};
use std::collections::{BTreeMap, BTreeSet};

/// A learner this close to the leader becomes a voter.
const CAUGHT_UP_LAG_MAX: u64 = 64;

type Members = BTreeMap<u64, Member>;

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// The configuration is not committed yet.
    Settle,
    /// Turn the joint configuration into its second half.
    Finish,
    AddLearner(u64, Member),
    CatchUp(BTreeSet<u64>),
    SetVoters(BTreeSet<u64>),
    HandOver(u64),
    Remove(BTreeSet<u64>),
    Done,
}

/// The next step towards `voters` and `learners`. Pure.
fn next_step(status: &GroupStatus, voters: &Members, learners: &Members) -> Result<Step, RaftError> {
    let now: BTreeSet<u64> = status.voters.keys().copied().collect();
    let wanted: BTreeSet<u64> = voters.keys().copied().collect();
    let known = |id: &u64| status.voters.get(id).or_else(|| status.learners.get(id));
    if wanted.is_empty() {
        return Err(RaftError::Refused("a group without voters".into()));
    }
    if let Some(id) = learners.keys().find(|id| wanted.contains(id)) {
        return Err(RaftError::Refused(format!("replica {id} is named as voter and as learner")));
    }
    let named = || voters.iter().chain(learners);
    if let Some((id, _)) = named().find(|(id, m)| known(id).is_some_and(|k| k.store != m.store)) {
        return Err(RaftError::Refused(format!(
            "replica {id} is on another store; replica ids are not used again"
        )));
    }
    if !status.config_committed {
        return Ok(Step::Settle);
    }
    if status.joint {
        return Ok(Step::Finish);
    }
    if let Some((id, member)) = named().find(|(id, _)| known(id).is_none()) {
        return Ok(Step::AddLearner(*id, member.clone()));
    }
    let behind: BTreeSet<u64> = wanted
        .difference(&now)
        .copied()
        .filter(|id| status.lag(*id).is_none_or(|lag| lag > CAUGHT_UP_LAG_MAX))
        .collect();
    if !behind.is_empty() {
        return Ok(Step::CatchUp(behind));
    }
    if !wanted.contains(&status.replica) {
        if !wanted.is_subset(&now) {
            return Ok(Step::SetVoters(now.union(&wanted).copied().collect()));
        }
        let best = wanted.iter().copied().min_by_key(|id| status.lag(*id).unwrap_or(u64::MAX));
        return best.map(Step::HandOver).ok_or(RaftError::Busy);
    }
    if wanted != now {
        return Ok(Step::SetVoters(wanted));
    }
    let extra: BTreeSet<u64> =
        status.learners.keys().copied().filter(|id| !learners.contains_key(id)).collect();
    Ok(if extra.is_empty() { Step::Done } else { Step::Remove(extra) })
}

impl Group {
    /// Makes `voters` and `learners` the members, and nobody else. Idempotent; after `Deadline`,
    /// `Busy` or a crash call it again, after `NotLeader` ask the leader. Give it a deadline: without
    /// a quorum it waits.
    pub async fn change_members(&self, voters: Members, learners: Members) -> Result<(), RaftError> {
        let _one_at_a_time = self.inner.changing.lock().await;
        if !self.inner.room.is_there(self.inner.id) {
            return Err(RaftError::DiskFull);
        }
        loop {
            let status = self.status();
            if let Some(fatal) = status.fatal {
                return Err(RaftError::Fatal(fatal));
            }
            if !status.is_leader {
                return Err(status.not_leader());
            }
            let step = next_step(&status, &voters, &learners)?;
            tracing::debug!(group = %self.inner.id, ?step, "members step");
            if step == Step::Done {
                return Ok(());
            }
            self.take_step(step).await?;
        }
    }

    async fn take_step(&self, step: Step) -> Result<(), RaftError> {
        let timing = self.inner.timing;
        match step {
            Step::Done => Ok(()),
            Step::Settle => {
                let settled = |s: &GroupStatus| s.config_committed || !s.is_leader;
                self.watch().wait_for("the configuration is not committed", timing.transfer, settled).await?;
                Ok(())
            }
            Step::Finish => self.change(ChangeMembers::AddVoterIds(BTreeSet::new()), true).await,
            Step::AddLearner(id, member) => {
                self.change(ChangeMembers::AddNodes(BTreeMap::from([(id, member)])), true).await
            }
            Step::CatchUp(ids) => {
                let near = |s: &GroupStatus| {
                    let close = |id: &u64| s.lag(*id).is_some_and(|lag| lag <= CAUGHT_UP_LAG_MAX);
                    !s.is_leader || ids.iter().all(close)
                };
                self.watch().wait_for("new members are not caught up", timing.catch_up, near).await?;
                Ok(())
            }
            Step::SetVoters(ids) => self.change(ChangeMembers::ReplaceAllVoters(ids), true).await,
            Step::HandOver(to) => self.transfer_leader(to).await,
            Step::Remove(ids) => self.change(ChangeMembers::RemoveNodes(ids), true).await,
        }
    }

    /// One change as openraft makes it: through a joint configuration if voters change.
    async fn change(&self, change: ChangeMembers<u64, Member>, retain: bool) -> Result<(), RaftError> {
        match self.inner.raft.change_membership(change, retain).await {
            Ok(_) => Ok(()),
            Err(openraft::errors::RaftError::Fatal(e)) => Err(self.stopped(&e)),
            Err(openraft::errors::RaftError::APIError(ClientWriteError::ChangeMembershipError(e))) => match e
            {
                ChangeMembershipError::InProgress(_) | ChangeMembershipError::UncommittedLeaderLog(_) => {
                    Err(RaftError::Busy)
                }
                other => Err(RaftError::Refused(other.to_string())),
            },
            Err(openraft::errors::RaftError::APIError(e)) => Err(self.write_error(e)),
        }
    }
}

#[cfg(test)]
mod tests;
