//! Whether stores may be stopped: one pure predicate for every disruption.
//!
//! ```text
//! metadata (shards, tables, stores, leases) --.
//!                                             +--> decide --> Granted | Denied{who blocks, why, since when}
//! observations (leaders' reports, heartbeats)-'
//! ```
//! It is asked twice for one disruption: to acquire the lease ([`Step::Acquire`]; then leaders are moved
//! away) and before anything stops ([`Step::Stop`]). Both answers carry the revision that they are true
//! of, and the state machine takes them only at that revision.
//!
//! For every shard with a replica on the stores asked for, all of this must be known to hold:
//! - its leader reported lately, and nobody names a newer term;
//! - its configuration is the one of metadata and is not changing, unless the joint change under way is
//!   the one that moves the replica away;
//! - in each half of its configuration, voters on other stores that serve, that have caught up as the
//!   leader said twice, and that are under no other lease (expired ones included), are a quorum and at
//!   least the table's `min_available`;
//! - to stop: the leader is on another store, by its own report; REMOVE: no replica is left.
//!
//! A RESTART may also stop a store of which it is known that it takes part in nothing, when no shard
//! that is available stops being so. REMOVE also needs a target for each replica.
//!
//! Never: guesses. What is not known blocks.
//!
//! Where to start: the rules of one shard -> `shard`; what was seen -> `observe`; that a store is back
//! -> `proven`; room for what is moved -> `target`.

mod observe;
mod proven;
mod shard;
mod target;
#[cfg(test)]
mod tests;

pub use observe::{LeaderReport, Observations, Progress, ShardSeen, StoreSeen};
pub use proven::proven_up;

use crate::State;
use crate::plan::Now;
use crate::state::{range_of, shard_of};
use std::collections::BTreeSet;
use undb_proto::v1::{self, DisruptionKind, StoreState};

/// How many blocking shards an answer names.
pub const BLOCKING_MAX: usize = 10;

/// What the gate decides by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A report or an acknowledgement that is older says nothing about now.
    pub fresh_ms: u64,
    /// A voter that lacks more entries of the leader's log has not caught up.
    pub lag_entries_max: u64,
    /// How far the clocks of metadata and of the decider may differ.
    pub clock_skew_ms: u64,
    /// Tables of a store cluster without stores are placed on those of `default`.
    pub share_default_stores: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { fresh_ms: 2_000, lag_entries_max: 1000, clock_skew_ms: 2_000, share_default_stores: false }
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub kind: DisruptionKind,
    pub stores: BTreeSet<u64>,
    pub step: Step,
}

/// How far the disruption is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It asks for its lease.
    Acquire,
    /// It has this lease and asks for SAFE_TO_STOP.
    Stop { lease_id: u64 },
}

impl Question {
    /// May the stores of this lease be stopped now?
    pub fn stop(lease: &v1::DisruptionLease) -> Self {
        let step = Step::Stop { lease_id: lease.lease_id };
        Self { kind: lease.kind(), stores: lease.stores.iter().copied().collect(), step }
    }
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To be proposed with this; only good for a moment and for this revision.
    Granted(v1::GateDecision),
    Denied(Denial),
}

/// Who blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// What is wrong with the question or its stores; empty when only shards block.
    pub refusal: String,
    /// The first [`BLOCKING_MAX`] shards that block, by id.
    pub blocking: Vec<Blocking>,
    /// How many block.
    pub blocking_count: usize,
}

/// A shard that blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocking {
    pub shard_id: u64,
    pub table: String,
    pub range: v1::KeyRange,
    pub reason: Reason,
    /// Wall time since when it does, as far as it was seen; none: as long as table and placement are so.
    pub since_ms: Option<u64>,
}

/// Why a shard blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("its first replicas are being created")]
    BeingCreated,
    #[error("no leader of it is known")]
    NoLeaderKnown,
    #[error("its leader has not reported lately")]
    StaleObservation,
    #[error("its configuration is changing")]
    ConfigChangeInProgress,
    #[error("replica {0} has not caught up")]
    ReplicaLagging(u64),
    #[error("store {0} has not been heard of lately")]
    StoreSilent(u64),
    #[error("store {0} does not serve it")]
    StoreDown(u64),
    #[error("store {0} is under another disruption lease")]
    UnderLease(u64),
    #[error("{remaining} voters would remain, {needed} are needed")]
    TooFewVoters { remaining: usize, needed: usize },
    #[error(
        "its table keeps one copy; replication.minAvailable 0 lets planned restarts take it away for a while"
    )]
    SingleReplicaTable,
    #[error("its leader is still on store {0}")]
    LeaderStillHere(u64),
    #[error("a replica is still on store {0}")]
    ReplicaStillHere(u64),
    #[error("there is no store to move its replica to")]
    NoTarget,
}

impl Reason {
    /// One word, for machines.
    pub fn word(&self) -> &'static str {
        match self {
            Self::BeingCreated => "BeingCreated",
            Self::NoLeaderKnown => "NoLeaderKnown",
            Self::StaleObservation => "StaleObservation",
            Self::ConfigChangeInProgress => "ConfigChangeInProgress",
            Self::ReplicaLagging(_) => "ReplicaLagging",
            Self::StoreSilent(_) => "StoreSilent",
            Self::StoreDown(_) => "StoreDown",
            Self::UnderLease(_) => "UnderLease",
            Self::TooFewVoters { .. } => "TooFewVoters",
            Self::SingleReplicaTable => "SingleReplicaTable",
            Self::LeaderStillHere(_) => "LeaderStillHere",
            Self::ReplicaStillHere(_) => "ReplicaStillHere",
            Self::NoTarget => "NoTarget",
        }
    }
}

/// May these stores be disrupted?
pub fn decide(
    state: &State,
    observations: &Observations,
    settings: &Settings,
    now: Now,
    question: &Question,
) -> Decision {
    Gate::new(state, observations, settings, now, question).decide()
}

/// The rules that tests switch off one by one, to see that the tests notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Fresh,
    LeaderKnown,
    Unchanging,
    BothHalves,
    Quorum,
    MinAvailable,
    StoreServes,
    CaughtUp,
    SeenTwice,
    OtherLeases,
    LeaderElsewhere,
    NothingLost,
}

/// A question with all that it is judged by.
struct Gate<'a> {
    state: &'a State,
    seen: &'a Observations,
    settings: &'a Settings,
    now: Now,
    question: &'a Question,
    /// Stores of other leases.
    leased: BTreeSet<u64>,
    /// What was said before says nothing about now. Before a stop that is all that was said before its lease
    /// was granted: a voter that stood still already when it was asked for can not have spoken since.
    fresh_ms: u64,
    #[cfg(test)]
    off: Option<Rule>,
}

impl<'a> Gate<'a> {
    fn new(
        state: &'a State,
        seen: &'a Observations,
        settings: &'a Settings,
        now: Now,
        question: &'a Question,
    ) -> Self {
        let own = match question.step {
            Step::Acquire => None,
            Step::Stop { lease_id } => state.disruption_lease(lease_id),
        };
        let since_ms = own.map_or(u64::MAX, |l| now.wall_ms.saturating_sub(l.granted_at_ms));
        let others = state.disruption_leases().filter(|l| Some(l.lease_id) != own.map(|l| l.lease_id));
        let leased = others.flat_map(|l| l.stores.iter().copied()).collect();
        Self {
            state,
            seen,
            settings,
            now,
            question,
            leased,
            fresh_ms: settings.fresh_ms.min(since_ms),
            #[cfg(test)]
            off: None,
        }
    }

    #[cfg(test)]
    fn applies(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }

    #[cfg(not(test))]
    fn applies(&self, _: Rule) -> bool {
        true
    }

    fn decide(&self) -> Decision {
        if let Some(refusal) = self.refuse_stores() {
            return Decision::Denied(Denial { refusal, ..Denial::default() });
        }
        let mut blocking: Vec<Blocking> =
            self.state.shards().filter(|s| self.touches(s)).filter_map(|s| self.blocking(s)).collect();
        if blocking.is_empty()
            && self.question.kind == DisruptionKind::Remove
            && self.question.step == Step::Acquire
        {
            let homeless = target::without_target(self);
            blocking.extend(homeless.iter().map(|s| self.describe(s, (Reason::NoTarget, None))));
        }
        if blocking.is_empty() {
            return Decision::Granted(v1::GateDecision {
                revision: self.state.revision(),
                at_ms: self.now.wall_ms,
            });
        }
        let blocking_count = blocking.len();
        blocking.truncate(BLOCKING_MAX);
        Decision::Denied(Denial { refusal: String::new(), blocking, blocking_count })
    }

    /// What makes the question senseless, whatever the shards say.
    fn refuse_stores(&self) -> Option<String> {
        if self.question.stores.is_empty() || self.question.kind == DisruptionKind::Unspecified {
            return Some("a disruption has a kind and stores".into());
        }
        for id in &self.question.stores {
            match self.state.store(*id).map(v1::StoreRecord::state) {
                None => return Some(format!("there is no store {id}")),
                Some(StoreState::StoreRemoved) if self.question.step == Step::Acquire => {
                    return Some(format!("store {id} is removed for ever"));
                }
                Some(_) => {}
            }
            if self.leased.contains(id) && self.applies(Rule::OtherLeases) {
                return Some(format!("store {id} is under another disruption lease"));
            }
        }
        match self.question.step {
            Step::Stop { lease_id } if self.state.disruption_lease(lease_id).is_none() => {
                Some(format!("there is no disruption lease {lease_id}"))
            }
            _ => None,
        }
    }

    /// By metadata, or by what its leader last said: either may be behind the other.
    fn touches(&self, record: &v1::ShardRecord) -> bool {
        let shard = shard_of(record);
        let asked = |store_id: &u64| self.question.stores.contains(store_id);
        let seen = self.seen.shard(shard.shard_id).and_then(|s| s.leader.as_ref());
        shard.replicas.iter().any(|r| asked(&r.store_id))
            || seen.is_some_and(|l| l.stores.values().any(asked))
    }

    fn blocking(&self, record: &v1::ShardRecord) -> Option<Blocking> {
        let cause = self.judge(record).err()?;
        Some(self.describe(record, cause))
    }

    fn describe(&self, record: &v1::ShardRecord, (reason, since): Cause) -> Blocking {
        let shard = shard_of(record);
        let (start, end) = range_of(record);
        Blocking {
            shard_id: shard.shard_id,
            table: self.state.table(shard.table_id).map(|t| t.name.clone()).unwrap_or_default(),
            range: v1::KeyRange { start: start.to_vec().into(), end: end.to_vec().into() },
            reason,
            since_ms: since.map(|at_ms| self.wall_ms(at_ms)),
        }
    }

    /// The wall time of a time of the observations.
    fn wall_ms(&self, at_ms: u64) -> u64 {
        self.now.wall_ms.saturating_sub(self.now.monotonic_ms.saturating_sub(at_ms))
    }

    fn is_old(&self, at_ms: u64, age_ms: u64) -> bool {
        let age_ms = self.now.monotonic_ms.saturating_sub(at_ms).saturating_add(age_ms);
        age_ms > self.fresh_ms && self.applies(Rule::Fresh)
    }
}

/// A reason, and since when (monotonic).
type Cause = (Reason, Option<u64>);
