//! What should be done: a pure function of metadata, what was observed, and the time.
//!
//! ```text
//!                 no replicas listed           listed, not there        all there, led
//! new shard  --> PlaceReplicas (voters) --> CreateReplica(bootstrap) --> PutShard(done) --> table READY
//!
//! a voter's store is removed, down or draining:
//!   PlaceReplicas (a learner, written down before it exists) --> CreateReplica --> ChangeMembers(+learner)
//!   --> caught up --> ChangeMembers(voter in, bad one out) --> PutShard(as the leader reports it)
//!   --> DestroyReplica of the one that is no longer listed
//! a person moves a replica, a store is drained or to be removed: the same steps, beside a copy that serves
//! ```
//! A store under a disruption lease may stop at any moment, also when the lease has expired. Nothing new
//! and no leader goes there, leaders go away from it while it may be stopped, and its shards keep their
//! members until it is back, is to be removed, or has been stopped for longer than its lease allows.
//!
//! Metadata lists what is wanted before anything is done about it, and the leader reports what is.
//! So each step can be repeated after a crash anywhere, and a replica that neither lists is one that
//! was removed, not one that is about to be added.
//!
//! Never: destroys a replica because a record is missing. Only a record that lists others, with the
//! leader's agreement, or the tombstone of a purged table does.

mod balance;
mod destroy;
mod evacuate;
mod lost;
mod moves;
mod observe;
mod place;
mod shard;
mod table;
mod view;

pub use lost::Lost;
pub use moves::{MoveStep, move_step};
pub use observe::{Observations, StoreSeen};
pub use place::first_shards;
pub use view::{LeaderView, View};

use crate::State;
use std::collections::BTreeMap;
use undb_proto::v1;
use undb_types::Epoch;

/// What the plan decides by; see the configuration of cluster control for what each means to a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub disconnected_ms: u64,
    pub down_ms: u64,
    pub suspect_ms: u64,
    pub moves_per_store_max: u32,
    pub lag_entries_max: u64,
    pub leader_cooldown_ms: u64,
    pub leader_moves_max: u32,
    pub share_default_stores: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            disconnected_ms: 20_000,
            down_ms: 30 * 60 * 1000,
            suspect_ms: 60_000,
            moves_per_store_max: 4,
            lag_entries_max: 1000,
            leader_cooldown_ms: 60_000,
            leader_moves_max: 8,
            share_default_stores: false,
        }
    }
}

impl Settings {
    /// A report older than this says nothing about now.
    pub fn fresh_ms(&self) -> u64 {
        (self.disconnected_ms / 4).max(1)
    }
}

/// The two times of the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Monotonic, as in the observations.
    pub monotonic_ms: u64,
    /// Wall time, as in metadata: only for what a person was promised by date.
    pub wall_ms: u64,
}

/// One thing to do. Each is idempotent and checked again by whoever does it.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub action: Action,
    /// Why, for a person.
    pub reason: String,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write replicas with new ids into a shard's record, before they exist.
    PlaceReplicas { record: v1::ShardRecord, stores: Vec<u64>, role: v1::Role },
    /// Compare-and-set of a shard's record.
    PutShard { record: v1::ShardRecord },
    /// Make a replica that the record lists.
    CreateReplica { store_id: u64, shard: v1::Shard, replica_id: u64, bootstrap: bool },
    /// Ask the leader for another membership.
    ChangeMembers { store_id: u64, shard_id: u64, expected: Epoch, replicas: Vec<v1::Replica> },
    /// Ask the leader to hand over.
    TransferLeader { store_id: u64, shard_id: u64, to_replica_id: u64 },
    /// Put a replica that is no longer wanted into the trash.
    DestroyReplica { store_id: u64, shard_id: u64, replica_id: u64, epoch: Epoch },
    /// Say whether a table is ready, and if not why.
    SetTable { table_id: u64, state: v1::TableState, condition: String, expected_revision: u64 },
    /// Leave only tombstones of a deleted table.
    PurgeTable { table_id: u64 },
    /// A move that a person asked for is over.
    EndMove { shard_id: u64, from_replica_id: u64 },
}

/// What an action works on; two actions on one subject never run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    Shard(u64),
    Replica(u64),
    Table(u64),
    Move(u64),
}

impl Action {
    /// What it works on.
    pub fn subject(&self) -> Subject {
        match self {
            Self::PlaceReplicas { record, .. } | Self::PutShard { record } => {
                Subject::Shard(crate::state::shard_of(record).shard_id)
            }
            Self::ChangeMembers { shard_id, .. } | Self::TransferLeader { shard_id, .. } => {
                Subject::Shard(*shard_id)
            }
            Self::CreateReplica { replica_id, .. } | Self::DestroyReplica { replica_id, .. } => {
                Subject::Replica(*replica_id)
            }
            Self::SetTable { table_id, .. } | Self::PurgeTable { table_id } => Subject::Table(*table_id),
            Self::EndMove { shard_id, .. } => Subject::Move(*shard_id),
        }
    }

    /// A word for metrics and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::PlaceReplicas { .. } => "place_replicas",
            Self::PutShard { .. } => "put_shard",
            Self::CreateReplica { .. } => "create_replica",
            Self::ChangeMembers { .. } => "change_members",
            Self::TransferLeader { .. } => "transfer_leader",
            Self::DestroyReplica { .. } => "destroy_replica",
            Self::SetTable { .. } => "set_table",
            Self::PurgeTable { .. } => "purge_table",
            Self::EndMove { .. } => "end_move",
        }
    }
}

/// What should be done, and what cannot be done now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Most urgent first.
    pub tasks: Vec<Task>,
    /// What is wanted of a shard and waits, and for what.
    pub waits: Vec<Wait>,
    /// Tables that lack stores, by id, and how they say so.
    pub short: BTreeMap<u64, String>,
}

/// Something that is wanted and cannot be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    pub shard_id: u64,
    /// The store that it is about: one that leaders or replicas are to leave, or 0.
    pub store_id: u64,
    /// What waits for what, for a person.
    pub reason: String,
}

/// Everything that should be done now, most urgent first.
pub fn plan(state: &State, observations: &Observations, settings: &Settings, now: Now) -> Vec<Task> {
    plan_and_waits(state, observations, settings, now).tasks
}

/// The same, with what waits.
pub fn plan_and_waits(state: &State, observations: &Observations, settings: &Settings, now: Now) -> Plan {
    let view = View::new(state, observations, settings, now);
    let mut planner =
        Planner { load: place::Load::count(&view), led: evacuate::led(&view), view, plan: Plan::default() };
    planner.evacuate();
    planner.shards();
    planner.moves();
    planner.tables();
    planner.destroy();
    planner.balance();
    planner.plan
}

/// A plan in the making.
struct Planner<'a> {
    view: View<'a>,
    load: place::Load,
    /// Shards led by each store, those included that this plan moves.
    led: BTreeMap<u64, u64>,
    plan: Plan,
}

impl Planner<'_> {
    fn push(&mut self, action: Action, reason: impl Into<String>) {
        self.plan.tasks.push(Task { action, reason: reason.into() });
    }

    fn wait(&mut self, shard_id: u64, store_id: u64, reason: impl Into<String>) {
        self.plan.waits.push(Wait { shard_id, store_id, reason: reason.into() });
    }
}
