//! Does what the plan says. A disruptive action asks again, now, what the plan saw a moment ago:
//!
//! ```text
//! read the fence (resource version) --> the gate: lease, SAFE_TO_STOP --> open by that version --> evict by uid
//! ```
//! Stopped between any two calls, the next pass finds in the lease and the fence how far it was.

use super::model::Lease;
use super::plan::{Action, Target};
use super::world::{Offline, World};
use crate::control::ControlApi;
use crate::error::{Error, Result};
use crate::gate::{self, Answer, Ask, Denial, Finished, Holder};
use undb_proto::v1::{DisruptionKind, DisruptionPhase as Phase, StoreAction, StoreState};

/// The gate's word for a shard whose copy finds no other store.
pub const NO_TARGET: &str = "NoTarget";

/// What came of an action, beside its effect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effect {
    /// The gate said no, of these stores.
    pub denials: Vec<(String, Denial)>,
    /// To be told: reason and note.
    pub events: Vec<(&'static str, String)>,
    /// This store was stopped.
    pub stopped: Option<String>,
}

impl Effect {
    fn event(reason: &'static str, note: impl Into<String>) -> Self {
        Self { events: vec![(reason, note.into())], ..Self::default() }
    }
}

/// Does one thing. `cluster_uid`: of the StoreCluster, which holds the leases of its rolls.
pub async fn perform(world: &dyn World, cluster_uid: &str, action: &Action) -> Result<Effect> {
    match action {
        Action::FirstOf { alternatives } => return first_of(world, cluster_uid, alternatives).await,
        Action::Restart { targets } => return restart(world, cluster_uid, targets).await,
        Action::Remove { target } => return remove(world, target).await,
        Action::AskForRoom { store, uid, store_id } => {
            return ask_for_room(world, store, uid, *store_id).await;
        }
        Action::RemoveLost { store, store_id } => return remove_lost(world, store, *store_id).await,
        Action::EvictUnregistered { store, pod_uid } => {
            return evict_unregistered(world, store, pod_uid).await;
        }
        Action::FinishLease { lease, stores } => return finish(world, lease, stores).await,
        Action::CreateStore { ordinal, replaces } => {
            world.create_store(*ordinal, replaces.as_deref()).await?;
            let reason = if replaces.is_some() { "StoreReplaced" } else { "StoreCreated" };
            return Ok(Effect::event(reason, format!("store number {ordinal} is made")));
        }
        Action::TakeOffline { store } => {
            world.set_offline(store, Offline::Take).await?;
            return Ok(Effect::event(
                "DrainStarted",
                format!("{store} leaves: its data moves to the others"),
            ));
        }
        Action::BringBack { store } => {
            world.set_offline(store, Offline::BringBack).await?;
            return Ok(Effect::event("DrainCancelled", format!("{store} stays after all")));
        }
        Action::DeleteStore { store } => {
            world.delete_store(store).await?;
            return Ok(Effect::event("DrainCompleted", format!("{store} has left")));
        }
        _ => plain(world, action).await?,
    }
    Ok(Effect::default())
}

/// Until one of them is done; what is refused is told.
async fn first_of(world: &dyn World, cluster_uid: &str, alternatives: &[Action]) -> Result<Effect> {
    let mut all = Effect::default();
    for action in alternatives {
        // Boxed, because an alternative could be a list again.
        let effect = Box::pin(perform(world, cluster_uid, action)).await?;
        let is_refused = !effect.denials.is_empty() && effect.stopped.is_none();
        all.denials.extend(effect.denials);
        all.events.extend(effect.events);
        all.stopped = effect.stopped;
        if !is_refused {
            break;
        }
    }
    Ok(all)
}

/// Actions of one call.
async fn plain(world: &dyn World, action: &Action) -> Result<()> {
    match action {
        Action::SetTemplate { store } => world.set_template(store).await,
        Action::CreateClaim { store } => world.create_claim(store).await,
        Action::CreateFence { store } => world.create_fence(store).await,
        Action::CreatePod { store } => world.create_pod(store).await,
        Action::WriteZone { store, pod_uid, zone } => world.write_zone(store, pod_uid, zone).await,
        Action::CloseFence { store } => world.close_fence(store).await,
        Action::MarkStopped { lease } => {
            gate::step(control(world)?, &lease.raw, Phase::Stopped, &[]).await.map(|_| ())
        }
        Action::KeepLease { lease } => {
            gate::step(control(world)?, &lease.raw, Phase::Unspecified, &[]).await.map(|_| ())
        }
        Action::ClearMark { store } => world.set_offline(store, Offline::Forget).await,
        Action::Drain { store_id, .. } => set_store(world, *store_id, StoreAction::StoreDrain).await,
        Action::Uncordon { store_id, .. } => set_store(world, *store_id, StoreAction::StoreUncordon).await,
        Action::RemoveRecord { store_id, .. } => set_store(world, *store_id, StoreAction::StoreRemove).await,
        Action::DeletePod { store, pod_uid } => world.delete_pod(store, pod_uid).await,
        Action::DeleteClaim { store } => world.delete_claim(store).await,
        Action::EvictPending { store, pod_uid } => world.evict(store, pod_uid).await,
        _ => Ok(()),
    }
}

fn control(world: &dyn World) -> Result<&dyn ControlApi> {
    world.control().ok_or_else(|| Error::ControlPlaneUnreachable {
        namespace: String::new(),
        control_plane: String::new(),
        cause: "it was not reached when this pass began".into(),
    })
}

async fn set_store(world: &dyn World, store_id: u64, action: StoreAction) -> Result<()> {
    control(world)?.set_store(store_id, action, false).await.map(|_| ())
}

/// The first target that the gate grants; the others' denials are told.
async fn restart(world: &dyn World, cluster_uid: &str, targets: &[Target]) -> Result<Effect> {
    let mut effect = Effect::default();
    for target in targets {
        let holder = Holder::StoreCluster(cluster_uid.to_owned());
        match stop(world, target, DisruptionKind::Restart, holder).await? {
            None => {
                effect
                    .events
                    .push(("StoreRestarted", format!("{} restarts with its new template", target.store)));
                effect.stopped = Some(target.store.clone());
                return Ok(effect);
            }
            Some(Waiting { has_lease, denial }) => {
                effect.denials.push((target.store.clone(), denial));
                // A lease is worked on until it is gone: no second store meanwhile.
                if has_lease {
                    return Ok(effect);
                }
            }
        }
    }
    Ok(effect)
}

async fn remove(world: &dyn World, target: &Target) -> Result<Effect> {
    let mut effect = Effect::default();
    let holder = Holder::ScaleIn(target.uid.clone());
    match stop(world, target, DisruptionKind::Remove, holder).await? {
        None => effect.stopped = Some(target.store.clone()),
        Some(waiting) => effect.denials.push((target.store.clone(), waiting.denial)),
    }
    Ok(effect)
}

/// Told is only what waiting does not mend: a shard without a store that could take its copy.
async fn ask_for_room(world: &dyn World, store: &str, uid: &str, store_id: u64) -> Result<Effect> {
    let ask = Ask {
        kind: DisruptionKind::Remove,
        stores: vec![store_id],
        holder: Holder::ScaleIn(uid.to_owned()),
        stopped: Vec::new(),
        duration_ms: gate::DURATION_MS,
        is_open: false,
    };
    let Some(mut denial) = gate::look(control(world)?, &ask).await? else { return Ok(Effect::default()) };
    denial.blocking.retain(|shard| shard.reason == NO_TARGET);
    if denial.blocking.is_empty() {
        return Ok(Effect::default());
    }
    denial.blocking_count = u32::try_from(denial.blocking.len()).unwrap_or(u32::MAX);
    Ok(Effect { denials: vec![(store.to_owned(), denial)], ..Effect::default() })
}

struct Waiting {
    has_lease: bool,
    denial: Denial,
}

/// None: its Pod is being evicted.
async fn stop(
    world: &dyn World,
    target: &Target,
    kind: DisruptionKind,
    holder: Holder,
) -> Result<Option<Waiting>> {
    let control = control(world)?;
    let store = &target.store;
    let refused = |denial: Denial| Ok(Some(Waiting { has_lease: false, denial }));
    // IMPORTANT: before the gate is asked. An operator that sleeps after the answer finds the fence
    // written by whoever ended the lease meanwhile.
    let Some(fence) = world.fence(store).await? else {
        return refused(Denial { refusal: "its budget is not there yet".into(), ..Denial::default() });
    };
    let Some(runs) = world.pod_runs(store, &target.pod_uid).await? else {
        return refused(Denial { refusal: "its Pod is another one by now".into(), ..Denial::default() });
    };
    let stopped = if runs { vec![] } else { vec![target.store_id] };
    let (stores, duration_ms) = (vec![target.store_id], target.duration_ms);
    let ask = Ask { kind, stores, holder, stopped, duration_ms, is_open: fence.is_open };
    let answer = match &target.lease {
        Some(lease) => gate::may_stop_with(control, lease.raw.clone(), &ask).await,
        None => gate::may_stop(control, &ask).await,
    };
    let answer = match answer {
        // It answered, and not with yes.
        Err(error @ Error::Control(_)) if !error.is_unreachable() => Answer::Wait {
            lease: target.lease.as_ref().map(|l| l.raw.clone()),
            denial: Denial { refusal: error.to_string(), ..Denial::default() },
        },
        answer => answer?,
    };
    match answer {
        Answer::Wait { lease, denial } => {
            // It may be open from before, when the answer was yes.
            if fence.is_open {
                world.close_fence(store).await?;
            }
            Ok(Some(Waiting { has_lease: lease.is_some(), denial }))
        }
        Answer::Safe(_) => {
            if !fence.is_open {
                world.open_fence(store, &fence.resource_version).await?;
            }
            world.evict(store, &target.pod_uid).await?;
            Ok(None)
        }
    }
}

/// Its process does not run and nobody knows its address: nothing is on it.
async fn evict_unregistered(world: &dyn World, store: &str, pod_uid: &str) -> Result<Effect> {
    let Some(fence) = world.fence(store).await? else { return Ok(Effect::default()) };
    let address = world.address(store);
    let status = control(world)?.status().await?;
    let is_known = status.stores.iter().filter_map(|s| s.store.as_ref()).any(|s| s.address == address);
    if is_known || world.pod_runs(store, pod_uid).await? != Some(false) {
        return Ok(Effect::default());
    }
    if !fence.is_open {
        world.open_fence(store, &fence.resource_version).await?;
    }
    world.evict(store, pod_uid).await?;
    Ok(Effect { stopped: Some(store.to_owned()), ..Effect::default() })
}

async fn remove_lost(world: &dyn World, store: &str, store_id: u64) -> Result<Effect> {
    let response = control(world)?.set_store(store_id, StoreAction::StoreRemove, true).await?;
    let is_removed = response.store.as_ref().is_some_and(|s| s.state() == StoreState::StoreRemoved);
    if is_removed {
        let note = format!("{store} is given up with its node; its copies are made again from the others");
        return Ok(Effect::event("StoreLost", note));
    }
    let blocking_count = u32::try_from(response.blocking.len()).unwrap_or(u32::MAX);
    let denial = Denial {
        refusal: if response.blocking.is_empty() { response.message } else { String::new() },
        blocking: response.blocking,
        blocking_count,
        leaders_left: response.leaders_left,
        replicas_left: response.replicas_left,
    };
    Ok(Effect { denials: vec![(store.to_owned(), denial)], ..Effect::default() })
}

async fn finish(world: &dyn World, lease: &Lease, stores: &[String]) -> Result<Effect> {
    // Seen closed by the plan; somebody with the same lease may have opened one since.
    for store in stores {
        if world.fence(store).await?.is_some_and(|f| f.is_open) {
            return Ok(Effect::default());
        }
    }
    let seal = async |mark: String| {
        for store in stores {
            world.seal_fence(store, &mark).await?;
        }
        Ok(())
    };
    match gate::finish(control(world)?, &lease.raw, seal).await? {
        Finished::Gone => Ok(Effect::default()),
        Finished::NotYet(denial) => {
            let denials = stores.iter().map(|s| (s.clone(), denial.clone())).collect();
            Ok(Effect { denials, ..Effect::default() })
        }
    }
}
