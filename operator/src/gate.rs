//! Leases of the availability gate, step by step.
//!
//! ```text
//! acquire --> DRAINING --status{SAFE_TO_STOP}--> SAFE_TO_STOP : open the fence, evict
//!                 STOPPED --> CATCHING_UP --status{SAFE_TO_STOP}--^ : stop again (a bad image, rolled back)
//! ```
//! Who holds what: a roll `storecluster/<uid>`, an eviction `eviction/<uid of the Pod>`, a scale-in
//! `scale-in/<uid of the Store>`, a replacement `replace/<uid of the Store>`.

use crate::control::ControlApi;
use crate::error::Result;
use std::fmt;
use undb_proto::v1::{self, DisruptionKind, DisruptionLease, DisruptionPhase as Phase};

/// How long a lease lives without a word of its holder.
pub const TTL_MS: u64 = 120_000;
/// After it, the copies of a stopped store are made anew elsewhere, unless its StoreCluster waits longer
/// for lost ones. A store that did not come back in time may still be stopped again, to be mended.
pub const DURATION_MS: u64 = 3600 * 1000;

/// Who holds a lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// A roll, by the StoreCluster's uid.
    StoreCluster(String),
    /// An eviction, by the Pod's uid.
    Eviction(String),
    /// A scale-in, by the Store's uid.
    ScaleIn(String),
    /// A replacement, by the Store's uid.
    Replace(String),
}

impl Holder {
    /// From a lease; none: a person or a tool holds it.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, uid) = text.split_once('/')?;
        let uid = uid.to_owned();
        match kind {
            "storecluster" => Some(Self::StoreCluster(uid)),
            "eviction" => Some(Self::Eviction(uid)),
            "scale-in" => Some(Self::ScaleIn(uid)),
            "replace" => Some(Self::Replace(uid)),
            _ => None,
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoreCluster(uid) => write!(f, "storecluster/{uid}"),
            Self::Eviction(uid) => write!(f, "eviction/{uid}"),
            Self::ScaleIn(uid) => write!(f, "scale-in/{uid}"),
            Self::Replace(uid) => write!(f, "replace/{uid}"),
        }
    }
}

/// A question for the right to stop stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// RESTART or REMOVE.
    pub kind: DisruptionKind,
    /// Store ids.
    pub stores: Vec<u64>,
    /// Who asks.
    pub holder: Holder,
    /// Of `stores`: those whose container is seen not running, now.
    pub stopped: Vec<u64>,
    /// After it, copies of a stopped store are made anew elsewhere.
    pub duration_ms: u64,
    /// Whether a fence of `stores` is open, from an earlier yes.
    pub is_open: bool,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The stores may be stopped now, under this lease.
    Safe(DisruptionLease),
    /// Not now; the lease, if it has been granted, drains meanwhile.
    Wait {
        /// What has been granted so far.
        lease: Option<DisruptionLease>,
        /// Who blocks.
        denial: Denial,
    },
}

/// Why not now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Denial {
    /// What is wrong with the stores asked for; empty when shards block.
    pub refusal: String,
    /// The first 10 shards that block.
    pub blocking: Vec<v1::BlockingShard>,
    /// How many block.
    pub blocking_count: u32,
    /// Still on the stores.
    pub leaders_left: u32,
    /// Still on the stores.
    pub replicas_left: u32,
}

impl Denial {
    pub fn of(response: &v1::DisruptionResponse) -> Self {
        Self {
            refusal: response.refusal.clone(),
            blocking: response.blocking.clone(),
            blocking_count: response.blocking_count,
            leaders_left: response.leaders_left,
            replicas_left: response.replicas_left,
        }
    }

    /// For a person: who blocks, the first three by name.
    pub fn message(&self) -> String {
        if !self.refusal.is_empty() {
            return self.refusal.clone();
        }
        if self.blocking.is_empty() {
            return format!(
                "waiting for {} leaders and {} replicas to move away",
                self.leaders_left, self.replicas_left
            );
        }
        let named = self.blocking.iter().take(3);
        let named: Vec<String> =
            named.map(|b| format!("shard {} of table {}: {}", b.shard_id, b.table, b.message)).collect();
        let more = usize::try_from(self.blocking_count).unwrap_or(0).saturating_sub(named.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{more}", named.join("; "))
    }
}

/// What the gate would say; nothing is begun. None: yes.
pub async fn look(control: &dyn ControlApi, ask: &Ask) -> Result<Option<Denial>> {
    let response = control.acquire(request(ask, true)).await?;
    Ok((!response.done).then(|| Denial::of(&response)))
}

fn request(ask: &Ask, dry_run: bool) -> v1::AcquireDisruptionRequest {
    v1::AcquireDisruptionRequest {
        kind: ask.kind as i32,
        stores: ask.stores.clone(),
        holder: ask.holder.to_string(),
        ttl_ms: TTL_MS,
        max_duration_ms: ask.duration_ms,
        dry_run,
        stopped_stores: ask.stopped.clone(),
    }
}

/// Asks for a lease, or goes on with the one that is held, up to SAFE_TO_STOP. Nothing is waited for.
pub async fn may_stop(control: &dyn ControlApi, ask: &Ask) -> Result<Answer> {
    let response = control.acquire(request(ask, false)).await?;
    let denial = Denial::of(&response);
    match response.lease.filter(|_| response.done) {
        None => Ok(Answer::Wait { lease: None, denial }),
        Some(lease) => may_stop_with(control, lease, ask).await,
    }
}

/// Asks whether the stores of a lease that is held may be stopped now (again).
pub async fn may_stop_with(control: &dyn ControlApi, lease: DisruptionLease, ask: &Ask) -> Result<Answer> {
    // From STOPPED only by way of CATCHING_UP: the gate is asked anew, and the fence is closed.
    if lease.phase() == Phase::Stopped {
        if ask.is_open {
            let denial = Denial { refusal: "its budget is closed first".into(), ..Denial::default() };
            return Ok(Answer::Wait { lease: Some(lease), denial });
        }
        step(control, &lease, Phase::CatchingUp, &[]).await?;
    }
    let response = step(control, &lease, Phase::SafeToStop, &ask.stopped).await?;
    let denial = Denial::of(&response);
    let mut lease = response.lease.clone().unwrap_or(lease);
    // A yes that was not used in the time there was: only from CATCHING_UP can it be had again, and there no
    // fence is open. The caller closes one that is, and comes again.
    if !response.done && !ask.is_open && lease.phase() == Phase::SafeToStop && is_at_its_end(&lease) {
        let response = step(control, &lease, Phase::CatchingUp, &[]).await?;
        lease = response.lease.unwrap_or(lease);
    }
    Ok(if response.done { Answer::Safe(lease) } else { Answer::Wait { lease: Some(lease), denial } })
}

/// No heartbeat prolongs it any more.
fn is_at_its_end(lease: &DisruptionLease) -> bool {
    lease.expires_at_ms >= lease.granted_at_ms.saturating_add(lease.max_duration_ms)
}

/// Says how far the holder is, and keeps the lease alive.
pub async fn step(
    control: &dyn ControlApi,
    lease: &DisruptionLease,
    wanted: Phase,
    stopped: &[u64],
) -> Result<v1::DisruptionResponse> {
    let request = v1::DisruptionStatusRequest {
        lease_id: lease.lease_id,
        token: lease.token,
        ttl_ms: TTL_MS,
        wanted: wanted as i32,
        stopped_stores: stopped.to_vec(),
    };
    control.disruption_status(request).await
}

/// Ends a lease whose fences are closed. True: it is gone; false: its stores are not proven up yet. `seal`
/// writes the fences under a mark, between the last moment in which the gate could have said yes under this
/// lease and its end: see [`crate::fence::seal`].
pub async fn finish(
    control: &dyn ControlApi,
    lease: &DisruptionLease,
    seal: impl AsyncFnOnce(String) -> Result<()>,
) -> Result<Finished> {
    // One that still drains is simply called off, unless it has lapsed: nobody was told yes under it.
    if lease.phase() == Phase::Draining
        && let Ok(response) = control.release(lease.lease_id, lease.token).await
        && response.done
    {
        return Ok(Finished::Gone);
    }
    let mut since_ms = lease.phase_since_ms;
    if lease.phase() != Phase::CatchingUp {
        let response = step(control, lease, Phase::CatchingUp, &[]).await?;
        since_ms = response.lease.map_or(since_ms, |l| l.phase_since_ms);
    }
    seal(format!("{}-{since_ms}", lease.lease_id)).await?;
    let response = control.release(lease.lease_id, lease.token).await?;
    Ok(if response.done { Finished::Gone } else { Finished::NotYet(Denial::of(&response)) })
}

/// Whether a lease is gone.
#[derive(Clone, Debug, PartialEq)]
pub enum Finished {
    /// It is.
    Gone,
    /// Its stores count as down until these have caught up.
    NotYet(Denial),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::fake::FakeControl;

    fn answer(is_done: bool, phase: Phase) -> v1::DisruptionResponse {
        let lease = DisruptionLease { lease_id: 7, token: 9, phase: phase as i32, ..Default::default() };
        v1::DisruptionResponse { done: is_done, lease: Some(lease), ..Default::default() }
    }

    fn ask() -> Ask {
        Ask {
            kind: DisruptionKind::Restart,
            stores: vec![3],
            holder: Holder::StoreCluster("u".into()),
            stopped: vec![],
            duration_ms: DURATION_MS,
            is_open: false,
        }
    }

    #[tokio::test]
    async fn a_lease_that_drains_is_not_yet_safe() {
        let control = FakeControl::default();
        control.with(|c| {
            c.disruptions = [answer(true, Phase::Draining), answer(false, Phase::Draining)].into();
        });
        let found = may_stop(&control, &ask()).await.expect("answers");
        assert!(matches!(found, Answer::Wait { lease: Some(_), .. }), "{found:?}");
        let calls = control.with(|c| c.calls.clone());
        assert_eq!(calls, ["acquire Restart [3] storecluster/u", "lease 7 SafeToStop"]);
    }

    #[tokio::test]
    async fn a_denial_holds_nothing() {
        let control = FakeControl::default();
        let denied = v1::DisruptionResponse { blocking_count: 2, ..Default::default() };
        control.with(|c| c.disruptions = [denied].into());
        let found = may_stop(&control, &ask()).await.expect("answers");
        assert!(matches!(found, Answer::Wait { lease: None, .. }), "{found:?}");
    }

    #[tokio::test]
    async fn a_stopped_store_is_stopped_again_only_after_the_gate_was_asked_again() {
        let control = FakeControl::default();
        control.with(|c| {
            c.disruptions = [
                answer(true, Phase::Stopped),
                answer(true, Phase::CatchingUp),
                answer(true, Phase::SafeToStop),
            ]
            .into();
        });
        let found = may_stop(&control, &ask()).await.expect("answers");
        assert!(matches!(found, Answer::Safe(_)), "{found:?}");
    }

    #[tokio::test]
    async fn a_yes_that_ran_out_of_its_longest_time_is_asked_for_again() {
        let control = FakeControl::default();
        control.with(|c| {
            let back = answer(true, Phase::CatchingUp);
            c.disruptions = [answer(true, Phase::SafeToStop), answer(false, Phase::SafeToStop), back].into();
        });
        let found = may_stop(&control, &ask()).await.expect("answers");
        let Answer::Wait { lease: Some(lease), .. } = found else { panic!("{found:?}") };
        assert_eq!(lease.phase(), Phase::CatchingUp);
        let found = may_stop_with(&control, lease, &ask()).await.expect("answers");
        assert!(matches!(found, Answer::Safe(_)), "{found:?}");
    }

    #[tokio::test]
    async fn nothing_is_said_to_be_back_while_its_fence_is_open() {
        let control = FakeControl::default();
        let ask = Ask { is_open: true, ..ask() };
        for phase in [Phase::SafeToStop, Phase::Stopped] {
            control.with(|c| c.disruptions = [answer(true, phase), answer(false, phase)].into());
            let found = may_stop(&control, &ask).await.expect("answers");
            assert!(matches!(found, Answer::Wait { lease: Some(_), .. }), "{found:?}");
        }
        let calls = control.with(|c| c.calls.clone());
        assert!(!calls.iter().any(|call| call.contains("CatchingUp")), "{calls:?}");
    }

    #[tokio::test]
    async fn an_unreachable_control_plane_is_an_error_and_not_a_yes() {
        let control = FakeControl::default();
        control.with(|c| c.down = true);
        assert!(may_stop(&control, &ask()).await.expect_err("down").is_unreachable());
    }

    #[test]
    fn holders_are_read_back() {
        for holder in [
            Holder::StoreCluster("a".into()),
            Holder::Eviction("b".into()),
            Holder::ScaleIn("c".into()),
            Holder::Replace("d".into()),
        ] {
            assert_eq!(Holder::parse(&holder.to_string()), Some(holder));
        }
        assert_eq!(Holder::parse("person"), None);
    }
}
