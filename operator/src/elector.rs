//! Leader election on a Lease: of all replicas of the operator one runs controllers.
//!
//! The algorithm is client-go's (`tools/leaderelection/leaderelection.go`): a candidate never compares its
//! clock with times that others wrote. It remembers when it *saw* a record change, on its own monotonic clock,
//! and takes a Lease over only when the record has not changed for the duration written in it. Every write
//! carries the resourceVersion that was read, so of two writers one gets 409.
//!
//! ```text
//!            free, expired as seen here, or ours          renewed every `retry`
//! Follower ---------------- replace ok ------------> Leader <---------.
//!    ^                                                | | `-----------'
//!    '---- 409, held by another, error                | '--- told to end: Releasing -> Over
//!                                                     '----- another holds it, or `renew_deadline` since the
//!                                                            last renewal was SENT: Lost -> the process ends
//! ```
//! Invariant: a leader counts from before it sent the renewal, a follower from after it saw it, and
//! `renew_deadline < duration`; so two never both hold by their own clocks while the clocks' rates differ by
//! less than duration / renew_deadline. A process that slept may still believe for an instant: what it does then
//! is refused by resourceVersions, UIDs and the tokens of disruption leases (`fence`, `gate`), not by this Lease.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The times of an election.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// How long others wait after the last renewal that they saw.
    pub duration: Duration,
    /// How long a leader believes in a renewal, from when it was sent. Less than `duration`.
    pub renew_deadline: Duration,
    /// Between two attempts, and how long one may take.
    pub retry: Duration,
}

impl Terms {
    /// In client-go's proportions: 15, 10 and 2 s.
    pub fn of(duration: Duration) -> Self {
        Self { duration, renew_deadline: duration * 2 / 3, retry: duration * 2 / 15 }
    }
}

impl Default for Terms {
    fn default() -> Self {
        Self::of(Duration::from_secs(15))
    }
}

/// The two clocks of one moment: `monotonic` decides, `wall` is only written down.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    pub monotonic: Duration,
    pub wall: Timestamp,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The time of the last `Effect::Wake` has come.
    Wake,
    /// The Lease as it is, or that there is none.
    Found(Option<Lease>),
    /// The write was accepted; this is what is stored.
    Written(Lease),
    /// 409: somebody wrote since we read.
    Conflict,
    /// No answer, or another error.
    Failed(String),
    /// All that leadership protects has stopped: give the Lease back.
    End,
}

/// What the shell does. A request replaces one that is still on its way.
#[derive(Clone, Debug)]
pub enum Effect {
    Read,
    Create(Box<Lease>),
    /// Guarded by the resourceVersion in it.
    Replace(Box<Lease>),
    Wake(Duration),
    /// From now on this process leads. The number grows with every change of the leader.
    Lead {
        transitions: u64,
    },
    Lost {
        reason: String,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Follower,
    Leader { valid_until: Duration },
    Releasing { until: Duration },
    Over,
}

#[derive(Clone, Debug)]
struct Seen {
    lease: Lease,
    at: Duration,
}

/// The decisions of one candidate; no I/O, no clock.
#[derive(Debug)]
pub struct Elector {
    identity: String,
    terms: Terms,
    seen: Option<Seen>,
    state: State,
    /// When the request that is on its way was sent.
    sent: Option<Duration>,
}

impl Elector {
    /// `identity` is of this process, not of its Pod: a restarted container is another candidate.
    pub fn new(identity: impl Into<String>, terms: Terms) -> Self {
        assert!(terms.renew_deadline < terms.duration, "a leader must stop before others may begin");
        Self { identity: identity.into(), terms, seen: None, state: State::Follower, sent: None }
    }

    /// Whether this process leads at a moment of its own clock.
    pub fn leads(&self, monotonic: Duration) -> bool {
        matches!(self.state, State::Leader { valid_until } if monotonic < valid_until)
    }

    /// One step.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let at = now.monotonic;
        match self.state {
            State::Over => return vec![Effect::Over],
            State::Leader { valid_until } if at >= valid_until && !matches!(event, Event::End) => {
                return self.lose("no renewal was confirmed in time");
            }
            State::Releasing { until } if at >= until => return self.over(),
            _ => {}
        }
        match event {
            Event::Wake => self.wake(now),
            Event::End => self.end(at),
            Event::Found(lease) => {
                self.sent = None;
                self.found(lease, now)
            }
            Event::Written(lease) => self.written(lease, at),
            Event::Conflict => self.conflict(at),
            Event::Failed(_) => self.failed(at),
        }
    }

    fn wake(&mut self, now: Now) -> Vec<Effect> {
        let at = now.monotonic;
        if let Some(sent) = self.sent
            && at < sent + self.terms.retry
        {
            return vec![Effect::Wake(self.next_wake(sent + self.terms.retry))];
        }
        match (&self.state, &self.seen) {
            // client-go's fast path: what we wrote last is most likely still there.
            (State::Leader { .. }, Some(seen)) if self.sent.is_none() => {
                let lease = self.held(Some(&seen.lease), now.wall);
                self.send(Effect::Replace(Box::new(lease)), at)
            }
            _ => self.send(Effect::Read, at),
        }
    }

    fn found(&mut self, lease: Option<Lease>, now: Now) -> Vec<Effect> {
        let at = now.monotonic;
        let Some(lease) = lease else { return self.absent(now) };
        let same = self.seen.as_ref().is_some_and(|seen| seen.lease.spec == lease.spec);
        let since = self.seen.as_ref().filter(|_| same).map_or(at, |seen| seen.at);
        self.seen = Some(Seen { lease: lease.clone(), at: since });
        let holder = holder(&lease);
        match self.state {
            State::Releasing { .. } if holder != self.identity => return self.over(),
            State::Releasing { .. } => {
                return self.send(Effect::Replace(Box::new(released(&lease, now.wall))), at);
            }
            State::Leader { .. } if holder != self.identity => {
                return self.lose(&format!("{} holds the lease now", shown(holder)));
            }
            _ => {}
        }
        if holder.is_empty() || holder == self.identity || at >= since + duration(&lease, self.terms) {
            let lease = self.held(Some(&lease), now.wall);
            return self.send(Effect::Replace(Box::new(lease)), at);
        }
        vec![Effect::Wake(at + self.terms.retry)]
    }

    /// A deleted Lease does not end what was seen of it: its holder may not know yet.
    fn absent(&mut self, now: Now) -> Vec<Effect> {
        let at = now.monotonic;
        if matches!(self.state, State::Releasing { .. }) {
            return self.over();
        }
        let follower = self.state == State::Follower;
        if let Some(seen) = &self.seen
            && follower
            && !["", self.identity.as_str()].contains(&holder(&seen.lease))
            && at < seen.at + duration(&seen.lease, self.terms)
        {
            return vec![Effect::Wake(at + self.terms.retry)];
        }
        let lease = self.held(None, now.wall);
        self.send(Effect::Create(Box::new(lease)), at)
    }

    fn written(&mut self, lease: Lease, at: Duration) -> Vec<Effect> {
        let sent = self.sent.take().unwrap_or(at);
        if matches!(self.state, State::Releasing { .. }) {
            return self.over();
        }
        let transitions = lease.spec.as_ref().and_then(|s| s.lease_transitions).unwrap_or_default();
        self.seen = Some(Seen { lease, at: sent });
        let valid_until = sent + self.terms.renew_deadline;
        if at >= valid_until {
            return vec![Effect::Wake(at)];
        }
        let began = self.state == State::Follower;
        self.state = State::Leader { valid_until };
        let wake = Effect::Wake(self.next_wake(at + self.terms.retry));
        if !began {
            return vec![wake];
        }
        vec![Effect::Lead { transitions: u64::try_from(transitions).unwrap_or_default() }, wake]
    }

    fn conflict(&mut self, at: Duration) -> Vec<Effect> {
        self.sent = None;
        match self.state {
            State::Leader { .. } | State::Releasing { .. } => self.send(Effect::Read, at),
            _ => vec![Effect::Wake(at + self.terms.retry)],
        }
    }

    fn failed(&mut self, at: Duration) -> Vec<Effect> {
        // Kept as "sent": the write may have been stored, so a leader reads before it writes again.
        self.sent = self.sent.map(|_| at);
        match self.state {
            State::Releasing { .. } => self.over(),
            _ => vec![Effect::Wake(self.next_wake(at + self.terms.retry))],
        }
    }

    fn end(&mut self, at: Duration) -> Vec<Effect> {
        match self.state {
            State::Leader { .. } => {
                self.state = State::Releasing { until: at + self.terms.retry * 2 };
                self.send(Effect::Read, at)
            }
            State::Follower => self.over(),
            _ => Vec::new(),
        }
    }

    fn send(&mut self, request: Effect, at: Duration) -> Vec<Effect> {
        self.sent = Some(at);
        vec![request, Effect::Wake(self.next_wake(at + self.terms.retry))]
    }

    fn lose(&mut self, reason: &str) -> Vec<Effect> {
        self.state = State::Over;
        vec![Effect::Lost { reason: reason.into() }, Effect::Over]
    }

    fn over(&mut self) -> Vec<Effect> {
        self.state = State::Over;
        vec![Effect::Over]
    }

    fn next_wake(&self, wanted: Duration) -> Duration {
        match self.state {
            State::Leader { valid_until } => wanted.min(valid_until),
            State::Releasing { until } => wanted.min(until),
            _ => wanted,
        }
    }

    /// The Lease as we would hold it, keeping what is not ours.
    fn held(&self, before: Option<&Lease>, wall: Timestamp) -> Lease {
        let mut lease = before.cloned().unwrap_or_default();
        let mut spec = lease.spec.take().unwrap_or_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            let taken_over = before.is_some();
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0) + i32::from(taken_over));
            spec.acquire_time = Some(MicroTime(wall));
            spec.holder_identity = Some(self.identity.clone());
        }
        spec.renew_time = Some(MicroTime(wall));
        spec.lease_duration_seconds = Some(i32::try_from(self.terms.duration.as_secs()).unwrap_or(15).max(1));
        lease.spec = Some(spec);
        lease
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

fn shown(holder: &str) -> &str {
    if holder.is_empty() { "nobody" } else { holder }
}

fn duration(lease: &Lease, terms: Terms) -> Duration {
    let written = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    written.and_then(|s| u64::try_from(s).ok()).map_or(terms.duration, Duration::from_secs)
}

/// Given back: the next candidate need not wait.
fn released(lease: &Lease, wall: Timestamp) -> Lease {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        lease_transitions: transitions,
        acquire_time: Some(MicroTime(wall)),
        renew_time: Some(MicroTime(wall)),
        ..LeaseSpec::default()
    };
    Lease { metadata: lease.metadata.clone(), spec: Some(spec) }
}

/// What the rest of the process is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    Following,
    Leading {
        transitions: u64,
    },
    /// It led and does not any more: the process ends, at once.
    Lost {
        reason: String,
    },
    /// Orderly: given back, or never had.
    Over,
}

/// Runs an election until it is over: `end` asks for that once everything that leadership protects has
/// stopped. Dropping the future stops renewing.
pub async fn run(
    api: Api<Lease>,
    name: String,
    mut elector: Elector,
    end: CancellationToken,
    told: watch::Sender<Leadership>,
) {
    let origin = Instant::now();
    let now = || Now { monotonic: origin.elapsed(), wall: Timestamp::now() };
    let mut request: Option<futures::future::BoxFuture<'static, Event>> = None;
    let mut wake = Duration::ZERO;
    let mut ending = false;
    loop {
        let event = tokio::select! {
            biased;
            () = end.cancelled(), if !ending => { ending = true; Event::End }
            event = async { request.as_mut().expect("guarded").await }, if request.is_some() => {
                request = None;
                event
            }
            () = tokio::time::sleep_until(origin + wake) => Event::Wake,
        };
        if let Event::Failed(reason) = &event {
            tracing::warn!(lease = name, reason, "leader election call failed");
        }
        for effect in elector.step(event, now()) {
            match effect {
                Effect::Wake(at) => wake = at,
                Effect::Read => request = Some(Box::pin(read(api.clone(), name.clone()))),
                Effect::Create(lease) => request = Some(Box::pin(create(api.clone(), name.clone(), *lease))),
                Effect::Replace(lease) => {
                    request = Some(Box::pin(replace(api.clone(), name.clone(), *lease)));
                }
                Effect::Lead { transitions } => {
                    tracing::info!(lease = name, transitions, "this process leads now");
                    told.send_replace(Leadership::Leading { transitions });
                }
                Effect::Lost { reason } => {
                    tracing::error!(lease = name, reason, "leadership lost");
                    told.send_replace(Leadership::Lost { reason });
                    return;
                }
                Effect::Over => {
                    told.send_replace(Leadership::Over);
                    return;
                }
            }
        }
    }
}

async fn read(api: Api<Lease>, name: String) -> Event {
    match api.get_opt(&name).await {
        Ok(found) => Event::Found(found),
        Err(error) => Event::Failed(error.to_string()),
    }
}

async fn create(api: Api<Lease>, name: String, lease: Lease) -> Event {
    let metadata = ObjectMeta { name: Some(name), ..lease.metadata };
    answer(api.create(&PostParams::default(), &Lease { metadata, ..lease }).await)
}

async fn replace(api: Api<Lease>, name: String, lease: Lease) -> Event {
    answer(api.replace(&name, &PostParams::default(), &lease).await)
}

fn answer(result: Result<Lease, kube::Error>) -> Event {
    match result {
        Ok(lease) => Event::Written(lease),
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Event::Conflict,
        Err(error) => Event::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod served;
#[cfg(test)]
mod tests;
