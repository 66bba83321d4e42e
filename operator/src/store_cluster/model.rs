//! What one pass looks at: plain data, read from the API server and the control plane, uncached.
//!
//! What could not be read is [`Record::Unknown`] or no [`Control`] at all, never a default.

use crate::fence::Fence;
use crate::gate::{self, Holder};
use std::collections::BTreeSet;
use undb_proto::v1::{DisruptionLease, DisruptionPhase as Phase};

/// All of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// What is wanted.
    pub cluster: Cluster,
    /// What there is, by ordinal.
    pub stores: Vec<StoreSeen>,
    /// What is left of stores that are no more, of this StoreCluster or of one of its name.
    pub remains: Remains,
    /// None: the control plane does not answer.
    pub control: Option<Control>,
}

/// By number.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remains {
    /// Stores that were removed for ever: what is on their volumes serves nobody.
    pub removed: BTreeSet<u32>,
    /// Volumes without a Store.
    pub claims: BTreeSet<u32>,
}

/// What is wanted of a StoreCluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    pub uid: String,
    pub replicas: usize,
    pub is_paused: bool,
    /// False: a store takes a change when its Pod is evicted by somebody else.
    pub is_rolling: bool,
    /// What Pods are to have.
    pub template_hash: String,
    /// None: a person replaces lost stores.
    pub replace_after_ms: Option<u64>,
    /// Volumes go with stores that leave.
    pub is_claim_deleted: bool,
    pub next_ordinal: u32,
    pub is_deleting: bool,
}

/// What the control plane says beside the stores' records.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Control {
    /// Of the whole control plane; ours are found by their stores.
    pub leases: Vec<Lease>,
}

/// A disruption lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// None: a person or a tool.
    pub holder: Option<Holder>,
    pub raw: DisruptionLease,
}

impl Lease {
    pub fn new(raw: DisruptionLease) -> Self {
        Self { holder: Holder::parse(&raw.holder), raw }
    }

    pub fn phase(&self) -> Phase {
        self.raw.phase()
    }

    pub fn covers(&self, store_id: u64) -> bool {
        self.raw.stores.contains(&store_id)
    }

    /// Its holder has said nothing for its ttl. It still counts its stores as down.
    pub fn is_lapsed(&self, now_ms: u64) -> bool {
        self.raw.expires_at_ms <= now_ms
    }
}

/// A Store and what hangs on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreSeen {
    pub name: String,
    pub uid: String,
    pub ordinal: u32,
    /// It is to leave, once its data has.
    pub is_offline: bool,
    pub mark: Mark,
    /// The uid of the Store whose place it took.
    pub replaces: Option<String>,
    /// As the Store says it.
    pub template_hash: String,
    pub is_deleting: bool,
    /// Its id as we last saw it.
    pub known_id: Option<u64>,
    /// Its status says that its data is elsewhere: its deletion is not refused.
    pub is_drained_written: bool,
    /// Since when its status says that it does not serve.
    pub not_serving_since_ms: Option<u64>,
    pub pod: Option<PodSeen>,
    pub has_claim: bool,
    pub fence: Option<Fence>,
    pub node: NodeSeen,
    pub record: Record,
}

/// Why a store is offline, or was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// A person, or nobody, says so.
    #[default]
    None,
    /// We took it, because there are to be fewer.
    Victim,
    /// We took it, and there are to be more again.
    Cancelled,
}

/// The Pod of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodSeen {
    pub uid: String,
    pub template_hash: String,
    pub is_terminating: bool,
    /// Its container runs, as the kubelet says.
    pub is_running: bool,
    pub is_ready: bool,
    /// No container of it has ever started.
    pub is_pending: bool,
    pub zone: Option<String>,
    /// Why its container waits: ImagePullBackOff ...
    pub waiting: Option<Why>,
    /// Why it has no node.
    pub unschedulable: Option<String>,
}

/// A word for machines and a sentence for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why {
    pub reason: String,
    pub message: String,
}

/// The node of a store's Pod, or, without a Pod that is bound, of its volume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSeen {
    pub name: Option<String>,
    pub state: NodeState,
    pub is_cordoned: bool,
    pub zone: Option<String>,
}

/// How a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeState {
    /// There is none (yet).
    #[default]
    Unbound,
    Ready,
    NotReady {
        since_ms: u64,
    },
    /// It was deleted.
    Gone,
}

/// What the control plane knows of a store.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Record {
    /// Nobody could be asked.
    #[default]
    Unknown,
    /// No store was ever registered at its address.
    Absent,
    Known(Known),
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Known {
    pub store_id: u64,
    pub state: State,
    pub is_alive: bool,
    pub replicas: u64,
    pub leaders: u64,
    pub zone: String,
}

/// What a store is to the control plane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Up,
    Cordoned,
    Draining,
    Removed,
}

impl PodSeen {
    /// Unless its container is seen waiting or ended: a status without containers says nothing.
    pub fn may_run(&self) -> bool {
        self.is_running || (self.waiting.is_none() && !self.is_pending)
    }
}

impl StoreSeen {
    pub fn known(&self) -> Option<&Known> {
        match &self.record {
            Record::Known(known) => Some(known),
            _ => None,
        }
    }

    pub fn store_id(&self) -> Option<u64> {
        self.known().map(|k| k.store_id)
    }

    pub fn is_state(&self, state: State) -> bool {
        self.known().is_some_and(|k| k.state == state)
    }

    /// A Pod that is there to stay.
    pub fn live_pod(&self) -> Option<&PodSeen> {
        self.pod.as_ref().filter(|p| !p.is_terminating)
    }

    /// Its container runs and is not told to end.
    pub fn is_running(&self) -> bool {
        self.live_pod().is_some_and(|p| p.is_running)
    }

    pub fn is_fence_closed(&self) -> bool {
        self.fence.as_ref().is_none_or(|f| !f.is_open)
    }

    /// Where it keeps copies, for keeping zones even.
    pub fn zone(&self) -> &str {
        let known = self.known().map(|k| k.zone.as_str()).filter(|z| !z.is_empty());
        known.or(self.node.zone.as_deref()).unwrap_or("")
    }
}

impl Observed {
    /// Another Store took its place.
    pub fn is_replaced(&self, store: &StoreSeen) -> bool {
        self.replacement(store).is_some()
    }

    pub fn replacement(&self, store: &StoreSeen) -> Option<&StoreSeen> {
        self.stores.iter().find(|s| s.replaces.as_deref() == Some(store.uid.as_str()))
    }

    /// Stores that count for `replicas`.
    pub fn counted(&self) -> impl Iterator<Item = &StoreSeen> {
        self.stores.iter().filter(|s| !s.is_offline && !s.is_deleting && !self.is_replaced(s))
    }

    /// For how long a stopped store is waited for before its copies are made anew elsewhere: not less than
    /// a lost one is.
    pub fn restart_ms(&self) -> u64 {
        gate::DURATION_MS.max(self.cluster.replace_after_ms.unwrap_or(0))
    }

    pub fn leases(&self) -> &[Lease] {
        self.control.as_ref().map_or(&[], |c| c.leases.as_slice())
    }

    /// The lease over a store.
    pub fn lease_of(&self, store: &StoreSeen) -> Option<&Lease> {
        let id = store.store_id()?;
        self.leases().iter().find(|l| l.covers(id))
    }

    /// The stores of ours that a lease covers.
    pub fn stores_of(&self, lease: &Lease) -> Vec<&StoreSeen> {
        self.stores.iter().filter(|s| s.store_id().is_some_and(|id| lease.covers(id))).collect()
    }
}
