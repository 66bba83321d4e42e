//! The Meta service of one member. The leader proposes and lets watch; the others name it.

use super::machine::{MetaMachine, Next};
use bytes::Bytes;
use prost::Message;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use undb_proto::v1::{self, ErrorCode};
use undb_proto::wire_error;
use undb_raft::{Barrier, Group, Member, RaftError};
use undb_runtime::{Clock, Tasks};

const PROPOSE_TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_millis(200);
const EVENTS_QUEUED_MAX: usize = 64;

/// What the service is made of.
pub(super) struct Parts {
    pub cluster_id: String,
    pub member_id: u64,
    pub group: Group,
    pub machine: Arc<MetaMachine>,
    pub members: BTreeMap<u64, Member>,
    pub clock: Clock,
    pub tasks: Tasks,
}

/// Clones are the same member.
#[derive(Clone)]
pub(super) struct MetaService(Arc<Parts>);

impl MetaService {
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    /// Waits until this member leads a cluster without identity, and gives it one. Ends when it has.
    pub async fn keep_identity(&self) {
        let mut watch = self.0.group.watch();
        loop {
            if self.0.machine.read(|s| !s.cluster().cluster_id.is_empty()) {
                return;
            }
            if watch.status().is_leader {
                let init = v1::InitCluster { cluster_id: self.0.cluster_id.clone() };
                let op = Some(v1::meta_command::Op::InitCluster(init));
                let command = v1::MetaCommand { op, ..Default::default() };
                if self.propose(command).await.is_ok() {
                    continue;
                }
                tokio::time::sleep(RETRY_AFTER).await;
            } else if !watch.changed().await {
                return;
            }
        }
    }

    /// Stamps the leader's time, so that only the clocks of members matter, and proposes.
    async fn propose(&self, mut command: v1::MetaCommand) -> Result<v1::ProposeResponse, RaftError> {
        let status = self.0.group.status();
        if !status.is_leader {
            return Err(RaftError::NotLeader { leader: status.leader_at(), term: status.term });
        }
        command.now_ms = self.0.clock.now_ms();
        let proposed = self.0.group.propose(Bytes::from(command.encode_to_vec()));
        let (_, answer) =
            tokio::time::timeout(PROPOSE_TIMEOUT, proposed).await.map_err(|_| RaftError::Ambiguous)??;
        v1::ProposeResponse::decode(answer).map_err(|e| RaftError::Fatal(e.to_string()))
    }

    fn wrong_cluster(&self, asked: &str) -> Option<v1::Error> {
        (!asked.is_empty() && asked != self.0.cluster_id).then(|| {
            let message = format!("this is cluster {}, not {asked}", self.0.cluster_id);
            wire_error(ErrorCode::ClusterMismatch, message)
        })
    }

    fn leader_address(&self) -> String {
        let leader = self.0.group.status().leader;
        leader.and_then(|id| self.0.members.get(&id)).map(|m| m.address.clone()).unwrap_or_default()
    }

    fn refusal(&self, error: &RaftError) -> v1::Error {
        let code = match error {
            RaftError::NotLeader { .. } => ErrorCode::NotLeader,
            RaftError::Busy => ErrorCode::ServerBusy,
            RaftError::Ambiguous => ErrorCode::Ambiguous,
            RaftError::Deadline(_) => ErrorCode::DeadlineExceeded,
            RaftError::Refused(_) => ErrorCode::InvalidArgument,
            RaftError::Closed => ErrorCode::Unavailable,
            _ => ErrorCode::Internal,
        };
        wire_error(code, format!("metadata member {}: {error}", self.0.member_id))
    }

    fn refused_event(&self, error: v1::Error) -> v1::WatchEvent {
        v1::WatchEvent { error: Some(error), leader_address: self.leader_address(), ..Default::default() }
    }

    async fn feed(self, request: v1::WatchRequest, events: mpsc::Sender<Result<v1::WatchEvent, Status>>) {
        if let Some(error) = self.wrong_cluster(&request.cluster_id) {
            let _gone = events.send(Ok(self.refused_event(error))).await;
            return;
        }
        // The start is linearizable: everything acknowledged before this call is in what follows.
        if let Err(error) = self.0.group.barrier(Barrier::ReadIndex).await {
            let refused = self.refused_event(self.refusal(&error));
            let _gone = events.send(Ok(refused)).await;
            return;
        }
        let from = (request.from_revision > 0).then_some(request.from_revision);
        tokio::select! {
            () = self.0.tasks.shutdown().begun() => {}
            () = self.follow(from, &events) => {}
        }
    }

    /// Sends until the watcher is gone or this member no longer leads.
    async fn follow(&self, mut at: Option<u64>, events: &mpsc::Sender<Result<v1::WatchEvent, Status>>) {
        let mut changes = self.0.machine.changes();
        let mut group = self.0.group.watch();
        loop {
            changes.borrow_and_update();
            for event in self.due(&mut at) {
                if events.send(Ok(event)).await.is_err() {
                    return;
                }
            }
            let status = group.status();
            if !status.is_leader {
                let error = RaftError::NotLeader { leader: status.leader_at(), term: status.term };
                let _gone = events.send(Ok(self.refused_event(self.refusal(&error)))).await;
                return;
            }
            let wait = async {
                loop {
                    if !group.changed().await || !group.status().is_leader {
                        return;
                    }
                }
            };
            tokio::select! {
                _ = changes.changed() => {}
                () = wait => {}
                () = events.closed() => return,
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    let event = Some(v1::watch_event::Event::KeepAlive(v1::Empty {}));
                    let keep_alive = v1::WatchEvent { event, revision: at.unwrap_or(0), ..Default::default() };
                    if events.send(Ok(keep_alive)).await.is_err() {
                        return;
                    }
                }
            }
        }
    }

    fn due(&self, at: &mut Option<u64>) -> Vec<v1::WatchEvent> {
        let incarnation = self.0.machine.read(|s| s.cluster().incarnation);
        match self.0.machine.next_for(*at) {
            Next::Snapshot(image) => {
                *at = Some(image.revision);
                let revision = image.revision;
                let event = Some(v1::watch_event::Event::Snapshot(*image));
                vec![v1::WatchEvent { revision, incarnation, event, ..Default::default() }]
            }
            Next::Changes(changes) => {
                if let Some((revision, _)) = changes.last() {
                    *at = Some(*revision);
                }
                let events = changes.into_iter().map(|(revision, change)| {
                    let event = Some(v1::watch_event::Event::Change(change));
                    v1::WatchEvent { revision, incarnation, event, ..Default::default() }
                });
                events.collect()
            }
        }
    }
}

#[tonic::async_trait]
impl v1::meta_server::Meta for MetaService {
    async fn propose(
        &self,
        request: Request<v1::ProposeRequest>,
    ) -> Result<Response<v1::ProposeResponse>, Status> {
        let request = request.into_inner();
        let refused = |error| v1::ProposeResponse { error: Some(error), ..Default::default() };
        if let Some(error) = self.wrong_cluster(&request.cluster_id) {
            return Ok(Response::new(refused(error)));
        }
        let Some(command) = request.command else {
            let error = wire_error(ErrorCode::InvalidArgument, "the command is missing");
            return Ok(Response::new(refused(error)));
        };
        let response = match MetaService::propose(self, command).await {
            Ok(response) => response,
            Err(error) => v1::ProposeResponse {
                error: Some(self.refusal(&error)),
                leader_address: self.leader_address(),
                ..Default::default()
            },
        };
        let outcome = if response.error.is_none() { "accepted" } else { "refused" };
        metrics::counter!("undb_meta_proposals_total", "outcome" => outcome).increment(1);
        Ok(Response::new(response))
    }

    type WatchStream = ReceiverStream<Result<v1::WatchEvent, Status>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (events, receiver) = mpsc::channel(EVENTS_QUEUED_MAX);
        // Ends with its watcher, with this member's leadership, or with the server.
        self.0.tasks.spawn("meta-watch", self.clone().feed(request.into_inner(), events));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn meta_status(
        &self,
        _request: Request<v1::Empty>,
    ) -> Result<Response<v1::MetaStatusResponse>, Status> {
        let status = self.0.group.status();
        let member = |id: &u64, member: &Member, voter| v1::MetaMember {
            member_id: *id,
            address: member.address.clone(),
            voter,
        };
        let voters = status.voters.iter().map(|(id, m)| member(id, m, true));
        let learners = status.learners.iter().map(|(id, m)| member(id, m, false));
        Ok(Response::new(v1::MetaStatusResponse {
            cluster_id: self.0.cluster_id.clone(),
            member_id: self.0.member_id,
            leader_member_id: status.leader.unwrap_or(0),
            leader_address: self.leader_address(),
            term: status.term,
            applied_index: status.applied.map_or(0, |id| id.index),
            revision: self.0.machine.read(undb_meta::State::revision),
            members: voters.chain(learners).collect(),
        }))
    }
}
