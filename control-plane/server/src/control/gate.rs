//! The availability gate, asked: leases that let stores be down are acquired, kept, moved on, released.
//!
//! ```text
//! question --> decide(mirror at revision R, what was heard) --granted--> propose at R --CONFLICT--> again
//!                                                           '--denied--> which shards block, and why
//! ```
//! Only the owner of the control lease answers, from what it heard under it. A denial is an answer, not
//! an error. Nothing here waits for a drain: who wants SAFE_TO_STOP asks until it is so.

use super::Control;
use super::describe::store_counts;
use std::collections::BTreeSet;
use undb_meta::State;
use undb_meta::gate::{self, Decision, Denial, Question, Step};
use undb_meta::plan::View;
use undb_proto::v1::{self, DisruptionPhase as Phase, ErrorCode, meta_command::Op};
use undb_proto::wire_error;

type Answer = Result<v1::DisruptionResponse, v1::Error>;

/// Decisions for one question, while metadata changes under them.
const ATTEMPTS_MAX: usize = 8;

/// An error is a part of the answer.
pub(super) fn answer(answer: Answer) -> v1::DisruptionResponse {
    answer.unwrap_or_else(|error| v1::DisruptionResponse { error: Some(error), ..Default::default() })
}

impl Control {
    /// A lease, or who blocks it.
    pub(super) async fn acquire(&self, request: v1::AcquireDisruptionRequest) -> Answer {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        let stores: BTreeSet<u64> = request.stores.iter().copied().collect();
        let question = Question { kind: request.kind(), stores, step: Step::Acquire };
        let step = if request.dry_run { "dry_run" } else { "acquire" };
        for _ in 0..ATTEMPTS_MAX {
            let state = self.0.meta.state();
            if let Some(lease) = held_by(&state, &request.holder, &question) {
                return Ok(self.respond(true, &question.stores, Some(lease.clone())));
            }
            let decision = match self.decide(epoch, &state, &question, &request.stopped_stores, step) {
                Decision::Denied(denial) => return Ok(self.denied(denial, &question.stores, None)),
                Decision::Granted(_) if request.dry_run => {
                    return Ok(self.respond(true, &question.stores, None));
                }
                Decision::Granted(decision) => decision,
            };
            let op = Op::AcquireDisruption(v1::AcquireDisruption {
                kind: request.kind,
                stores: question.stores.iter().copied().collect(),
                holder: request.holder.clone(),
                ttl_ms: request.ttl_ms,
                max_duration_ms: request.max_duration_ms,
                decision: Some(decision),
            });
            if let Some(result) = self.propose_decided(epoch, decision.revision, op).await? {
                self.0.heard.stirred.notify_one();
                return Ok(self.respond(true, &question.stores, result.disruption_lease));
            }
        }
        Err(unsettled())
    }

    /// Looks at a lease, keeps it alive, moves it on.
    pub(super) async fn keep(&self, request: v1::DisruptionStatusRequest) -> Answer {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        let state = self.0.meta.state();
        let wanted = request.wanted();
        if request.ttl_ms == 0 && wanted == Phase::Unspecified {
            return Ok(self.look(epoch, &state, lease_of(&state, request.lease_id)?));
        }
        let lease = held_lease(&state, request.lease_id, request.token)?;
        if wanted == Phase::SafeToStop && lease.phase() != Phase::Stopped {
            return self.make_safe(epoch, &request).await;
        }
        let op = renew(&request, wanted, None);
        let result = self.0.meta.propose(epoch, op).await.map_err(v1::Error::from)?;
        self.0.heard.stirred.notify_one();
        let lease = result.disruption_lease.unwrap_or_default();
        let done = wanted == Phase::Unspecified || lease.phase() == wanted;
        Ok(self.respond(done, &stores_of(&lease), Some(lease)))
    }

    /// SAFE_TO_STOP, as soon as the gate allows. A lease that has it already is judged again: the holder
    /// asks because it has not stopped anything yet.
    async fn make_safe(&self, epoch: u64, request: &v1::DisruptionStatusRequest) -> Answer {
        for _ in 0..ATTEMPTS_MAX {
            let state = self.0.meta.state();
            let lease = held_lease(&state, request.lease_id, request.token)?;
            let stores = stores_of(lease);
            let question = Question::stop(lease);
            let decision = self.decide(epoch, &state, &question, &request.stopped_stores, "stop");
            let (granted, denial) = match decision {
                Decision::Granted(decision) => (Some(decision), None),
                Decision::Denied(denial) => (None, Some(denial)),
            };
            let moves = granted.is_some() && lease.phase() != Phase::SafeToStop;
            let mut lease = lease.clone();
            if moves || request.ttl_ms > 0 {
                let (phase, revision) =
                    (if moves { Phase::SafeToStop } else { Phase::Unspecified }, state.revision());
                let op = renew(request, phase, granted);
                let Some(result) = self.propose_decided(epoch, revision, op).await? else { continue };
                lease = result.disruption_lease.unwrap_or_default();
            }
            if let Some(denial) = denial {
                return Ok(self.denied(denial, &stores, Some(lease)));
            }
            if lease.expires_at_ms <= self.now().wall_ms {
                let refusal = format!(
                    "disruption lease {} has expired; close what it opened, let its stores catch up and release it",
                    lease.lease_id
                );
                let denial = Denial { refusal, ..Denial::default() };
                return Ok(self.denied(denial, &stores, Some(lease)));
            }
            return Ok(self.respond(true, &stores, Some(lease)));
        }
        Err(unsettled())
    }

    /// What a lease is and what it waits for.
    fn look(&self, epoch: u64, state: &State, lease: &v1::DisruptionLease) -> v1::DisruptionResponse {
        let waits_for = match lease.phase() {
            Phase::Draining => self.judge(epoch, state, &Question::stop(lease), &[]),
            Phase::CatchingUp => self.judge_back(epoch, state, lease),
            _ => return self.respond(true, &stores_of(lease), Some(lease.clone())),
        };
        let denial = match waits_for {
            Decision::Granted(_) => Denial::default(),
            Decision::Denied(denial) => denial,
        };
        let looked = self.denied(denial, &stores_of(lease), Some(lease.clone()));
        v1::DisruptionResponse { done: true, ..looked }
    }

    /// Cancels a drain, or ends a lease whose stores are proven up.
    pub(super) async fn release(&self, request: v1::ReleaseDisruptionRequest) -> Answer {
        let epoch = self.owned().map_err(|(error, _)| error)?;
        for _ in 0..ATTEMPTS_MAX {
            let state = self.0.meta.state();
            if state.disruption_lease(request.lease_id).is_none() {
                return Ok(v1::DisruptionResponse { done: true, ..Default::default() });
            }
            let lease = held_lease(&state, request.lease_id, request.token)?;
            let stores = stores_of(lease);
            let mut op = v1::ReleaseDisruption {
                lease_id: request.lease_id,
                token: request.token,
                ..Default::default()
            };
            if lease.phase() == Phase::CatchingUp {
                let decision = self.judge_back(epoch, &state, lease);
                count(lease.kind(), "release", &decision);
                match decision {
                    Decision::Denied(denial) => return Ok(self.denied(denial, &stores, Some(lease.clone()))),
                    Decision::Granted(decision) => {
                        op.proven_up = lease.stores.clone();
                        op.decision = Some(decision);
                    }
                }
            }
            let op = Op::ReleaseDisruption(op);
            if self.propose_decided(epoch, state.revision(), op).await?.is_some() {
                self.0.heard.stirred.notify_one();
                return Ok(self.respond(true, &stores, None));
            }
        }
        Err(unsettled())
    }

    /// Every lease there is, expired ones too: their stores count as down.
    pub(super) fn disruptions(&self) -> v1::ListDisruptionsResponse {
        if let Err((error, _)) = self.owned() {
            return v1::ListDisruptionsResponse { error: Some(error), ..Default::default() };
        }
        let leases = self.0.meta.state().disruption_leases().cloned().collect();
        v1::ListDisruptionsResponse { leases, error: None }
    }

    /// A decision that is counted.
    fn decide(
        &self,
        epoch: u64,
        state: &State,
        question: &Question,
        stopped: &[u64],
        step: &'static str,
    ) -> Decision {
        let decision = self.judge(epoch, state, question, stopped);
        count(question.kind, step, &decision);
        decision
    }

    /// May these stores be disrupted? `stopped`: of them, those that the caller sees not running.
    pub(super) fn judge(&self, epoch: u64, state: &State, question: &Question, stopped: &[u64]) -> Decision {
        let now = self.now();
        if self.0.tuning.unsafe_gate_off {
            return always(state, now.wall_ms);
        }
        let settings = &self.0.gate;
        self.0.heard.gate(epoch, now.monotonic_ms, |seen| {
            if let Some(refusal) = seen.too_early(state, settings, now.monotonic_ms) {
                return Decision::Denied(Denial { refusal, ..Denial::default() });
            }
            let observations = seen.with_stopped(stopped, &question.stores, now.monotonic_ms);
            gate::decide(state, &observations, settings, now, question)
        })
    }

    fn judge_back(&self, epoch: u64, state: &State, lease: &v1::DisruptionLease) -> Decision {
        let now = self.now();
        if self.0.tuning.unsafe_gate_off {
            return always(state, now.wall_ms);
        }
        let stores = stores_of(lease);
        let settings = &self.0.gate;
        self.0.heard.gate(epoch, now.monotonic_ms, |seen| {
            let observations = seen.with_stopped(&[], &stores, now.monotonic_ms);
            gate::proven_up(state, &observations, settings, now, lease)
        })
    }

    /// None: metadata has changed since the decision, so decide again.
    async fn propose_decided(
        &self,
        epoch: u64,
        revision: u64,
        op: Op,
    ) -> Result<Option<v1::MetaResult>, v1::Error> {
        match self.0.meta.propose(epoch, op).await {
            Ok(result) => Ok(Some(result)),
            Err(error)
                if error.code() == ErrorCode::Conflict && self.0.meta.state().revision() != revision =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn respond(
        &self,
        done: bool,
        stores: &BTreeSet<u64>,
        lease: Option<v1::DisruptionLease>,
    ) -> v1::DisruptionResponse {
        let (state, now) = (self.0.meta.state(), self.now());
        let (replicas, leaders) = self.0.heard.read(|heard| {
            let view = View::new(&state, heard, &self.0.settings, now);
            let counts = stores.iter().map(|id| store_counts(&view, *id));
            counts.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1))
        });
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        v1::DisruptionResponse {
            done,
            lease,
            leaders_left: small(leaders),
            replicas_left: small(replicas),
            ..Default::default()
        }
    }

    fn denied(
        &self,
        denial: Denial,
        stores: &BTreeSet<u64>,
        lease: Option<v1::DisruptionLease>,
    ) -> v1::DisruptionResponse {
        v1::DisruptionResponse {
            refusal: denial.refusal,
            blocking_count: u32::try_from(denial.blocking_count).unwrap_or(u32::MAX),
            blocking: denial.blocking.into_iter().map(blocking_shard).collect(),
            ..self.respond(false, stores, lease)
        }
    }
}

/// Keeps the gauges of leases; never returns.
pub(super) async fn keep_gauges(control: Control) {
    const PHASES: [(Phase, &str); 4] = [
        (Phase::Draining, "draining"),
        (Phase::SafeToStop, "safe_to_stop"),
        (Phase::Stopped, "stopped"),
        (Phase::CatchingUp, "catching_up"),
    ];
    metrics::gauge!("undb_control_gate_off").set(f64::from(u8::from(control.0.tuning.unsafe_gate_off)));
    let mut seen = control.0.meta.seen();
    loop {
        seen.borrow_and_update();
        let (state, now_ms) = (control.0.meta.state(), control.now().wall_ms);
        for (phase, name) in PHASES {
            let count = state.disruption_leases().filter(|l| l.phase() == phase).count();
            metrics::gauge!("undb_control_disruption_leases", "phase" => name).set(count as f64);
        }
        let expired = state.disruption_leases().filter(|l| l.expires_at_ms <= now_ms).count();
        metrics::gauge!("undb_control_disruption_leases_expired").set(expired as f64);
        if seen.changed().await.is_err() {
            return;
        }
    }
}

fn always(state: &State, wall_ms: u64) -> Decision {
    Decision::Granted(v1::GateDecision { revision: state.revision(), at_ms: wall_ms })
}

fn held_by<'a>(state: &'a State, holder: &str, question: &Question) -> Option<&'a v1::DisruptionLease> {
    state.disruption_leases().find(|l| {
        l.holder == holder && l.kind() == question.kind && l.stores.iter().eq(question.stores.iter())
    })
}

fn lease_of(state: &State, lease_id: u64) -> Result<&v1::DisruptionLease, v1::Error> {
    let missing = || wire_error(ErrorCode::NotFound, format!("there is no disruption lease {lease_id}"));
    state.disruption_lease(lease_id).ok_or_else(missing)
}

fn held_lease(state: &State, lease_id: u64, token: u64) -> Result<&v1::DisruptionLease, v1::Error> {
    let lease = lease_of(state, lease_id)?;
    if lease.token != token {
        let message = format!("token {token} is not the one of disruption lease {lease_id}");
        return Err(wire_error(ErrorCode::Fenced, message));
    }
    Ok(lease)
}

fn stores_of(lease: &v1::DisruptionLease) -> BTreeSet<u64> {
    lease.stores.iter().copied().collect()
}

fn renew(request: &v1::DisruptionStatusRequest, phase: Phase, decision: Option<v1::GateDecision>) -> Op {
    Op::RenewDisruption(v1::RenewDisruption {
        lease_id: request.lease_id,
        token: request.token,
        ttl_ms: request.ttl_ms,
        phase: phase as i32,
        decision,
    })
}

fn unsettled() -> v1::Error {
    let message = "metadata changed under every decision; ask again";
    v1::Error { retry_after_ms: 200, ..wire_error(ErrorCode::Unavailable, message) }
}

/// A shard that blocks, for the wire.
pub(super) fn blocking_shard(blocking: gate::Blocking) -> v1::BlockingShard {
    v1::BlockingShard {
        shard_id: blocking.shard_id,
        table: blocking.table,
        range: Some(blocking.range),
        reason: blocking.reason.word().into(),
        message: blocking.reason.to_string(),
        since_ms: blocking.since_ms.unwrap_or(0),
    }
}

fn count(kind: v1::DisruptionKind, step: &'static str, decision: &Decision) {
    let kind = match kind {
        v1::DisruptionKind::Unspecified => "unspecified",
        v1::DisruptionKind::Restart => "restart",
        v1::DisruptionKind::Remove => "remove",
        v1::DisruptionKind::Replace => "replace",
    };
    let (decision, reason) = match decision {
        Decision::Granted(_) => ("granted", ""),
        Decision::Denied(denial) => {
            ("denied", denial.blocking.first().map_or("Refused", |b| b.reason.word()))
        }
    };
    metrics::counter!(
        "undb_control_gate_decisions_total",
        "kind" => kind, "step" => step, "decision" => decision, "reason" => reason
    )
    .increment(1);
}
