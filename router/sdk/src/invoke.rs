//! The one loop that every data call runs through: locate, pick a replica, attempt, decide, again.
//!
//! ## Invariants
//! - The loop ends by the call's deadline.
//! - A write keeps its request id over all attempts. It ends `Ambiguous` exactly when some attempt may have
//!   been applied and no later answer settled it.
//! - Within a round each store is asked at most once; between rounds there is a pause.

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use undb_proto::v1::{self, kv_request, kv_response};

use crate::client::Core;
use crate::lane::Ticket;
use crate::retry::{Step, Trouble, attempt_timeout, backoff, next_step, settles_doubt};
use crate::route::{LiveRoute, RouteTable, ShardRoute, pick};
use crate::{Error, Result};

/// Where in the table a call goes.
#[derive(Clone, Debug)]
pub(crate) enum Anchor {
    /// The shard that has this key.
    At(Bytes),
    /// The shard with the last keys before this one; empty: the last shard.
    Before(Bytes),
}

impl Anchor {
    pub fn locate<'a>(&self, routes: &'a RouteTable) -> &'a Arc<ShardRoute> {
        match self {
            Anchor::At(key) => routes.locate(key),
            Anchor::Before(end) => routes.locate_before(end),
        }
    }
}

/// Why a call has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The keys of the request lie in several shards by now: group them anew.
    Regroup,
    /// Refused for the age of its id, and never applied: a new id may be tried.
    TooOld(Error),
    Error(Error),
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Self {
        Unanswered::Error(error)
    }
}

/// One call with all its attempts.
pub(crate) struct Call<'a> {
    pub core: &'a Arc<Core>,
    pub route: &'a Arc<LiveRoute>,
    /// For metrics: get, scan, write.
    pub name: &'static str,
    pub started: Instant,
    pub deadline: Instant,
    /// Of a write that is deduplicated.
    pub ticket: Option<&'a Ticket>,
    /// A read, or a write that may be repeated without harm, leaves no doubt.
    pub repeatable: bool,
}

struct Progress {
    round: u32,
    timeouts: u32,
    asked: Vec<u64>,
    doubt: bool,
    /// Of the attempts before the last one.
    doubt_before: bool,
    last: String,
}

impl Call<'_> {
    /// Runs it. `build` makes the request for the shard as it is known at that moment, or `None` when the
    /// shard no longer has all of its keys.
    pub async fn run(
        &self,
        anchor: &Anchor,
        build: impl Fn(&ShardRoute) -> Option<kv_request::Op>,
    ) -> Result<(kv_response::Result, Arc<ShardRoute>), Unanswered> {
        let result = self.attempts(anchor, build).await;
        let label = match &result {
            Ok(_) | Err(Unanswered::Regroup) => "ok",
            Err(Unanswered::Error(error) | Unanswered::TooOld(error)) => error.code_name(),
        };
        metrics::counter!("undb_sdk_calls_total", "op" => self.name, "result" => label).increment(1);
        let seconds = self.started.elapsed().as_secs_f64();
        metrics::histogram!("undb_sdk_call_seconds", "op" => self.name).record(seconds);
        result
    }

    async fn attempts(
        &self,
        anchor: &Anchor,
        build: impl Fn(&ShardRoute) -> Option<kv_request::Op>,
    ) -> Result<(kv_response::Result, Arc<ShardRoute>), Unanswered> {
        let mut progress = Progress {
            round: 0,
            timeouts: 0,
            asked: Vec::new(),
            doubt: false,
            doubt_before: false,
            last: "no attempt".into(),
        };
        loop {
            let began = Instant::now();
            if began >= self.deadline {
                return Err(self.late(&progress).into());
            }
            if self.route.is_gone() {
                let gone = Error::TableNotFound { table: self.route.name.clone() };
                return Err(self.stop(gone, &progress).into());
            }
            let routes = self.route.current();
            let shard = anchor.locate(&routes).clone();
            let Some(op) = build(&shard) else { return Err(Unanswered::Regroup) };
            let Some(store) = self.pick(&shard, &progress) else {
                self.next_round(&mut progress, Duration::ZERO).await;
                continue;
            };
            let trouble = match self.attempt(&routes, &shard, store, op, progress.timeouts).await {
                Ok(result) => {
                    if shard.leader_store() != Some(store) {
                        self.route.prove_leader(shard.id, store);
                    }
                    self.core.budget.lock().success();
                    return Ok((result, shard));
                }
                Err(trouble) => trouble,
            };
            metrics::counter!("undb_sdk_retries_total", "reason" => trouble.label()).increment(1);
            progress.doubt_before = progress.doubt;
            progress.doubt |= trouble.leaves_doubt() && !self.repeatable;
            progress.timeouts += u32::from(matches!(trouble, Trouble::TimedOut));
            progress.last = trouble.to_string();
            self.react(&trouble, &shard, store, began, &mut progress).await?;
        }
    }

    /// Does what the retry rules say about `trouble`; an error ends the call.
    async fn react(
        &self,
        trouble: &Trouble,
        shard: &ShardRoute,
        store: u64,
        began: Instant,
        progress: &mut Progress,
    ) -> Result<(), Unanswered> {
        match next_step(trouble) {
            Step::Leader { replica, term } => {
                self.route.learn_leader(shard.id, replica, term);
                progress.asked.push(store);
            }
            Step::Other => progress.asked.push(store),
            Step::Learn => {
                let told = match trouble {
                    Trouble::Wire(error) => &error.shards[..],
                    _ => &[],
                };
                if self.route.learn_shards(told) {
                    progress.asked.clear();
                } else {
                    progress.asked.push(store);
                    self.refresh(began).await;
                }
            }
            Step::Refresh => {
                progress.asked.push(store);
                self.refresh(began).await;
            }
            Step::Wait(wait) => self.next_round(progress, wait).await,
            Step::Stop(error) => {
                let too_old = matches!(trouble, Trouble::Wire(e) if e.code() == v1::ErrorCode::TooOld);
                let error = self.stop(error, progress);
                let fresh = too_old && !progress.doubt_before;
                return Err(if fresh { Unanswered::TooOld(error) } else { Unanswered::Error(error) });
            }
        }
        Ok(())
    }

    fn pick(&self, shard: &ShardRoute, progress: &Progress) -> Option<u64> {
        let salt = u64::from(progress.round) ^ self.started.elapsed().subsec_nanos() as u64;
        let asked = |store| progress.asked.contains(&store);
        pick(shard, salt, |store| asked(store) || self.core.is_avoided(store))
            // All that are left seem not to answer: better than not asking at all.
            .or_else(|| if progress.asked.is_empty() { pick(shard, salt, asked) } else { None })
    }

    async fn attempt(
        &self,
        routes: &RouteTable,
        shard: &ShardRoute,
        store: u64,
        op: kv_request::Op,
        timeouts: u32,
    ) -> Result<kv_response::Result, Trouble> {
        let Some(address) = routes.address(store) else {
            self.route.refresh_soon(self.core);
            return Err(Trouble::Lost { sent: false, reason: format!("store {store} has no known address") });
        };
        let session = self.core.session(store, address);
        let left = self.deadline.saturating_duration_since(Instant::now());
        let timeout = attempt_timeout(self.core.options.timeouts.attempt, timeouts).min(left);
        let discovery = self.core.discovery.load();
        let header = v1::Header {
            cluster_id: discovery.cluster_id.clone(),
            incarnation: discovery.incarnation,
            table_id: routes.table_id,
            shard_id: shard.id,
            epoch: Some(shard.epoch.into()),
            store_id: store,
            deadline_ms: u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1),
            tenant: self.core.options.tenant.clone(),
            request_id: self.ticket.map(|t| t.id),
            traceparent: String::new(),
        };
        let request = v1::KvRequest { id: 0, header: Some(header), op: Some(op) };
        let result = session.call(request, timeout).await;
        session.record(!matches!(result, Err(Trouble::TimedOut | Trouble::Lost { .. })));
        result
    }

    /// Nobody is left to ask, or a pause was asked for: wait, and begin anew with everybody.
    async fn next_round(&self, progress: &mut Progress, at_least: Duration) {
        if !progress.asked.is_empty() {
            self.route.refresh_soon(self.core);
        }
        progress.asked.clear();
        let planned = backoff(progress.round, rand::random()).max(at_least);
        progress.round += 1;
        let pause = self.core.budget.lock().pace(std::time::Instant::now(), planned);
        tokio::time::sleep_until((Instant::now() + pause).min(self.deadline)).await;
    }

    /// A wrong route is renewed before going on. Whether the table is gone, the loop looks for itself.
    async fn refresh(&self, since: Instant) {
        let refresh = self.route.refresh(self.core, since);
        let _ = tokio::time::timeout_at(self.deadline, refresh).await;
    }

    fn late(&self, progress: &Progress) -> Error {
        let waited = self.deadline.saturating_duration_since(self.started);
        if progress.doubt {
            Error::Ambiguous { reason: format!("no settling answer within {waited:?}: {}", progress.last) }
        } else {
            Error::DeadlineExceeded { waited, last: progress.last.clone() }
        }
    }

    fn stop(&self, error: Error, progress: &Progress) -> Error {
        if progress.doubt && !error.is_ambiguous() && !settles_doubt(error.code()) {
            return Error::Ambiguous { reason: format!("an earlier attempt did not answer; then: {error}") };
        }
        error
    }
}
