//! What a person or the operator wants of a store: nothing new, nothing at all, or never again.
//!
//! Each action is idempotent and answers with what is left on the store, so that asking again is how to
//! follow it. The plan does the work; nothing here waits for it.

use super::Control;
use super::describe::store_counts;
use super::gate::blocking_shard;
use std::collections::BTreeSet;
use undb_meta::gate::{Decision, Denial, Question, Step};
use undb_meta::plan::{View, plan_and_waits};
use undb_proto::v1::{self, DisruptionKind, ErrorCode, StoreAction, StoreState, meta_command::Op};
use undb_proto::wire_error;

type Answer = Result<v1::SetStoreResponse, v1::Error>;

/// How often a write is made again while metadata changes under it.
const ATTEMPTS_MAX: usize = 8;

impl Control {
    /// Cordons, uncordons, drains or removes.
    pub(super) async fn change_store(&self, request: v1::SetStoreRequest) -> Answer {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        let id = request.store_id;
        if request.lost && request.action() != StoreAction::StoreRemove {
            return Err(wire_error(
                ErrorCode::InvalidArgument,
                "`lost` goes with the removal of a store only",
            ));
        }
        for _ in 0..ATTEMPTS_MAX {
            let state = self.0.meta.state();
            let Some(known) = state.store(id) else { return Err(no_store(id)) };
            let wanted = match request.action() {
                StoreAction::Unspecified => {
                    let message =
                        "this build does not know this action; it is one of cordon, uncordon, drain, remove";
                    return Err(wire_error(ErrorCode::NotSupported, message));
                }
                StoreAction::StoreRemove => StoreState::StoreRemoved,
                _ if known.state() == StoreState::StoreRemoved => {
                    let message =
                        format!("store {id} is removed for ever; start one with an empty directory");
                    return Err(wire_error(ErrorCode::Fenced, message));
                }
                // Draining is more: it gets nothing new either.
                StoreAction::StoreCordon if known.state() == StoreState::StoreDraining => known.state(),
                StoreAction::StoreCordon => StoreState::StoreCordoned,
                StoreAction::StoreUncordon => StoreState::StoreUp,
                StoreAction::StoreDrain => StoreState::StoreDraining,
            };
            let before = known.state();
            if before == wanted {
                return Ok(self.told(id, request.action(), before));
            }
            let mut op = v1::SetStoreState {
                store_id: id,
                state: wanted as i32,
                expected_revision: known.revision,
                lost: None,
            };
            if wanted == StoreState::StoreRemoved {
                match self.may_remove(epoch, &state, id, request.lost)? {
                    Ok(decision) => op.lost = decision,
                    Err(denial) => return Ok(self.refused(id, denial)),
                }
            }
            match self.0.meta.propose(epoch, Op::SetStoreState(op)).await {
                Ok(_) => {
                    tracing::info!(store = id, ?before, ?wanted, "store changed by request");
                    self.0.heard.stirred.notify_one();
                    return Ok(self.told(id, request.action(), before));
                }
                Err(error) if error.code() == ErrorCode::Conflict => {
                    if self.0.meta.state().revision() == state.revision() {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(wire_error(ErrorCode::Unavailable, "metadata changes too fast to decide on; ask again"))
    }

    /// An empty store may go. One that is lost with its replicas may, when the gate bears it.
    fn may_remove(
        &self,
        epoch: u64,
        state: &undb_meta::State,
        id: u64,
        lost: bool,
    ) -> Result<Result<Option<v1::GateDecision>, Denial>, v1::Error> {
        let (listed, fresh, silent_ms) = self.0.heard.read(|heard| {
            let view = View::new(state, heard, &self.0.settings, self.now());
            (store_counts(&view, id).0, view.is_fresh(id), view.silent_ms(id))
        });
        if listed == 0 {
            return Ok(Ok(None));
        }
        if !lost {
            let message = format!(
                "store {id} still holds {listed} replicas; `undb drain store {id}` moves them to other stores first"
            );
            return Err(wire_error(ErrorCode::Conflict, message));
        }
        if fresh {
            let message = format!(
                "store {id} was heard of {silent_ms} ms ago: it is not lost; drain it, or stop its process first"
            );
            return Err(wire_error(ErrorCode::Conflict, message));
        }
        let lease = state.disruption_leases().find(|l| l.stores.contains(&id));
        let step = lease.map_or(Step::Acquire, |l| Step::Stop { lease_id: l.lease_id });
        let question = Question { kind: DisruptionKind::Replace, stores: BTreeSet::from([id]), step };
        Ok(match self.judge(epoch, state, &question, &[id]) {
            Decision::Granted(decision) => Ok(Some(decision)),
            Decision::Denied(denial) => Err(denial),
        })
    }

    /// The gate refuses: an answer, not an error, with the shards that would not bear it.
    fn refused(&self, id: u64, denial: Denial) -> v1::SetStoreResponse {
        let message = match denial.refusal.is_empty() {
            false => format!("store {id} stays: {}", denial.refusal),
            true => format!(
                "store {id} stays: {} shards would not bear its loss; bring their other replicas back first",
                denial.blocking_count
            ),
        };
        let blocking = denial.blocking.into_iter().map(blocking_shard).collect();
        v1::SetStoreResponse { message, blocking, ..self.counted(id) }
    }

    fn counted(&self, id: u64) -> v1::SetStoreResponse {
        let state = self.0.meta.state();
        let (replicas, leaders) = self
            .0
            .heard
            .read(|heard| store_counts(&View::new(&state, heard, &self.0.settings, self.now()), id));
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        v1::SetStoreResponse {
            store: state.store(id).cloned(),
            leaders_left: small(leaders),
            replicas_left: small(replicas),
            ..Default::default()
        }
    }

    fn told(&self, id: u64, action: StoreAction, before: StoreState) -> v1::SetStoreResponse {
        let answer = self.counted(id);
        let (replicas, leaders) = (answer.replicas_left, answer.leaders_left);
        let message = match action {
            StoreAction::StoreCordon if before == StoreState::StoreDraining => {
                format!("store {id} is being drained, and gets nothing new either")
            }
            StoreAction::StoreCordon => {
                format!("store {id} is cordoned: it keeps its {replicas} replicas and gets nothing new")
            }
            StoreAction::StoreUncordon if before == StoreState::StoreDraining => {
                format!("the drain of store {id} is cancelled; it keeps the {replicas} replicas that it has")
            }
            StoreAction::StoreUncordon => format!("store {id} takes replicas and leaders"),
            StoreAction::StoreDrain if replicas == 0 => {
                format!("store {id} is drained: it holds nothing; `undb remove store {id}` ends it for ever")
            }
            StoreAction::StoreDrain => {
                let left = format!("{replicas} replicas and {leaders} leaders are to move");
                let short = self.short_of(id);
                format!("store {id} is being drained: {left}{short}")
            }
            StoreAction::StoreRemove | StoreAction::Unspecified => {
                format!("store {id} is removed for ever; delete its directory before it starts again")
            }
        };
        v1::SetStoreResponse { message, ..answer }
    }

    /// Why its replicas find no other store, if so.
    fn short_of(&self, id: u64) -> String {
        let state = self.0.meta.state();
        let plan = self.0.heard.read(|heard| plan_and_waits(&state, heard, &self.0.settings, self.now()));
        let holds = |table_id: &u64| {
            let on =
                |s: &&v1::ShardRecord| s.shard.iter().flat_map(|s| &s.replicas).any(|r| r.store_id == id);
            state.table_shards(*table_id).iter().any(on)
        };
        let short = plan.short.iter().find(|(table_id, _)| holds(table_id));
        short.map_or_else(String::new, |(_, condition)| format!("; {condition}; start more stores"))
    }
}

pub(super) fn no_store(id: u64) -> v1::Error {
    wire_error(ErrorCode::NotFound, format!("there is no store {id}; `undb get stores` lists them"))
}
