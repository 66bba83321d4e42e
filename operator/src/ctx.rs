//! What all controllers share.

use crate::control::Connector;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use std::sync::Arc;
use undb_runtime::Clock;

/// Handed to every reconcile, in an [`Arc`].
#[derive(Clone)]
pub struct Ctx {
    /// The API server. It reads without a cache.
    pub client: Client,
    /// What the process was started with.
    pub settings: Settings,
    /// Connections to control planes.
    pub control: Arc<dyn Connector>,
    /// Writes events, repeated ones as a series.
    pub recorder: Recorder,
    /// Time, which tests own.
    pub clock: Clock,
}

/// What the process was started with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// The image of the roles where a spec names none, at the time it is first seen.
    pub image: String,
    /// The namespace of the operator itself.
    pub namespace: String,
    /// Its own Pod.
    pub pod_name: String,
    /// Namespaces to look after; empty: all.
    pub watch_namespaces: Vec<String>,
    /// Test setting: every question for a lease is answered yes. Shards will go down.
    pub unsafe_gate_off: bool,
}

impl Settings {
    /// Is this namespace looked after?
    pub fn watches(&self, namespace: &str) -> bool {
        self.watch_namespaces.is_empty() || self.watch_namespaces.iter().any(|n| n == namespace)
    }
}

impl Ctx {
    /// With the machine's clock.
    pub fn new(client: Client, settings: Settings, control: Arc<dyn Connector>) -> Arc<Self> {
        let reporter = Reporter {
            controller: "undb-operator".into(),
            instance: Some(settings.pod_name.clone()).filter(|name| !name.is_empty()),
        };
        let recorder = Recorder::new(client.clone(), reporter);
        Arc::new(Self { client, settings, control, recorder, clock: Clock::real() })
    }

    /// Tells people something about an object. A lost event is not worth a failed reconcile.
    pub async fn event<K: Resource<DynamicType = ()>>(
        &self,
        about: &K,
        type_: EventType,
        reason: &str,
        note: impl Into<String>,
    ) {
        let mut note = note.into();
        if note.len() > NOTE_BYTES_MAX {
            let end = (0..=NOTE_BYTES_MAX).rev().find(|i| note.is_char_boundary(*i)).unwrap_or(0);
            note.truncate(end);
        }
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note),
            action: "Reconcile".into(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &about.object_ref(&())).await {
            tracing::debug!(%error, reason, "event not written");
        }
    }
}

// What the API takes.
const NOTE_BYTES_MAX: usize = 1000;

impl std::fmt::Debug for Ctx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ctx").field("settings", &self.settings).finish_non_exhaustive()
    }
}
