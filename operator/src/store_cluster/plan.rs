//! What to do next: a pure function of what was observed.
//!
//! ```text
//! upkeep   what is missing is made again, fences without a reason are closed     any number a pass
//! leases   stopped, back, given up: each lease is brought to its end
//! replace  a store whose node is gone: another first, then the old one for ever  \
//! scale    more: made; fewer: one leaves, once its data has                       > one step a pass
//! roll     a Pod that is not as wanted: restarted, if the gate allows            /
//! ```
//! Invariants, which the model test checks: at most one disruptive action a plan; none while the control
//! plane is unknown; no lease ends while a fence of its stores is open; only one store at a time is being
//! restarted or removed by us.

mod leases;
mod replace;
mod roll;
mod scale;
mod upkeep;

use super::model::{Lease, Observed, Why};

/// One thing to do. Each is idempotent.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Makes a Store of this number; `replaces`: the uid of the one whose place it takes.
    CreateStore {
        ordinal: u32,
        replaces: Option<String>,
    },
    /// Writes down what its Pod is to be.
    SetTemplate {
        store: String,
    },
    CreateClaim {
        store: String,
    },
    CreateFence {
        store: String,
    },
    CreatePod {
        store: String,
    },
    /// Tells a Pod which zone its node is in.
    WriteZone {
        store: String,
        pod_uid: String,
        zone: String,
    },
    CloseFence {
        store: String,
    },
    /// Its stores' Pods are gone.
    MarkStopped {
        lease: Lease,
    },
    /// Says that a stopped store is still being worked on.
    KeepLease {
        lease: Lease,
    },
    /// Its fences are closed: it ends as soon as its stores are proven up.
    FinishLease {
        lease: Lease,
        stores: Vec<String>,
    },
    /// A victim of a scale-in.
    TakeOffline {
        store: String,
    },
    /// It stays after all.
    BringBack {
        store: String,
    },
    /// Forgets that it was a victim.
    ClearMark {
        store: String,
    },
    Drain {
        store: String,
        store_id: u64,
    },
    /// Whether everything on a store that drains finds another place.
    AskForRoom {
        store: String,
        uid: String,
        store_id: u64,
    },
    Uncordon {
        store: String,
        store_id: u64,
    },
    /// The Pod is gone and no copies are left: its id is fenced for ever.
    RemoveRecord {
        store: String,
        store_id: u64,
    },
    DeletePod {
        store: String,
        pod_uid: String,
    },
    DeleteClaim {
        store: String,
    },
    DeleteStore {
        store: String,
    },

    /// Disruptive: the first of these that the gate grants is stopped, to come back.
    Restart {
        targets: Vec<Target>,
    },
    /// Disruptive: an empty store is stopped, not to come back.
    Remove {
        target: Target,
    },
    /// Disruptive: a store that is gone with its node is given up.
    RemoveLost {
        store: String,
        store_id: u64,
    },
    /// Disruptive: the first of these that is granted; the others were refused.
    FirstOf {
        alternatives: Vec<Action>,
    },
    /// Disruptive in form only: a Pod that has never started goes; budgets do not guard it.
    EvictPending {
        store: String,
        pod_uid: String,
    },
    /// Disruptive in form only: its process does not run and never registered, so it keeps nothing.
    EvictUnregistered {
        store: String,
        pod_uid: String,
    },
}

impl Action {
    /// Takes something away that may be in use.
    pub fn is_disruptive(&self) -> bool {
        matches!(
            self,
            Self::Restart { .. }
                | Self::Remove { .. }
                | Self::RemoveLost { .. }
                | Self::FirstOf { .. }
                | Self::EvictPending { .. }
                | Self::EvictUnregistered { .. }
        )
    }
}

/// A store to be stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    pub store: String,
    pub uid: String,
    pub store_id: u64,
    pub pod_uid: String,
    /// Its container is seen not running.
    pub is_stopped: bool,
    /// After it, its copies are made anew elsewhere.
    pub duration_ms: u64,
    /// The lease that it is under already.
    pub lease: Option<Lease>,
}

/// What to do, and what is waited for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub waits: Vec<Wait>,
}

/// Something that does not go on, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// Empty: the whole cluster.
    pub store: String,
    pub why: Why,
}

impl Plan {
    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn wait(&mut self, store: &str, reason: &str, message: impl Into<String>) {
        let why = Why { reason: reason.into(), message: message.into() };
        self.waits.push(Wait { store: store.into(), why });
    }

    /// Something disruptive is planned: nothing else may be. Giving up a lost store holds no lease, so a
    /// refusal of it keeps nobody else waiting.
    fn is_taken(&self) -> bool {
        self.actions.iter().any(|a| a.is_disruptive() && !matches!(a, Action::RemoveLost { .. }))
    }

    /// Plans a disruptive action, once `is_taken` said no.
    fn disrupt(&mut self, action: Action) {
        match self.actions.iter_mut().find(|a| a.is_disruptive()) {
            Some(first) => *first = Action::FirstOf { alternatives: vec![first.clone(), action] },
            None => self.actions.push(action),
        }
    }
}

/// The next steps.
pub fn plan(observed: &Observed, now_ms: u64) -> Plan {
    let mut plan = Plan::default();
    // What it owns goes with it, and the garbage collector asks nobody.
    if observed.cluster.is_deleting {
        return plan;
    }
    upkeep::plan(observed, now_ms, &mut plan);
    leases::plan(observed, now_ms, &mut plan);
    if observed.cluster.is_paused {
        plan.wait("", "ReconcilePaused", "spec.paused is true: nothing is changed");
        return plan;
    }
    if observed.control.is_none() {
        plan.wait(
            "",
            "ControlPlaneUnreachable",
            "nothing is stopped, scaled in or replaced until it answers",
        );
    }
    replace::plan(observed, now_ms, &mut plan);
    scale::plan(observed, &mut plan);
    roll::plan(observed, now_ms, &mut plan);
    plan
}
