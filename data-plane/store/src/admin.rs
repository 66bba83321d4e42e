//! The `Store` service: what cluster control orders. Every call is idempotent, and every call names
//! its authority; one that is older than the newest seen is fenced.

use crate::directory::{Descriptor, ReplicaState};
use crate::replica::{Open, Replica};
use crate::store::{Store, engine_kind, log_is_empty};
use crate::wire::raft_error;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Request, Response, Status};
use undb_proto::v1::ErrorCode;
use undb_proto::{v1, wire_error};
use undb_raft::{GroupStatus, Member, RaftError};
use undb_types::{GroupId, KeyRange, ReplicaId, ShardId};

/// A replica that lags more than this does not count as caught up.
const CAUGHT_UP_LAG_MAX: u64 = 1000;

/// The service.
pub struct AdminService {
    pub(crate) store: Arc<Store>,
}

type Outcome = Result<(), v1::Error>;

fn answer(outcome: Outcome) -> Result<Response<v1::Outcome>, Status> {
    Ok(Response::new(v1::Outcome { error: outcome.err() }))
}

#[tonic::async_trait]
impl v1::store_server::Store for AdminService {
    async fn create_replica(
        &self,
        request: Request<v1::CreateReplicaRequest>,
    ) -> Result<Response<v1::Outcome>, Status> {
        let (store, request) = (self.store.clone(), request.into_inner());
        // On a task of its own: a caller that hangs up must not leave it half done.
        answer(
            self.store.detached("create replica", async move { store.create_replica(request).await }).await,
        )
    }

    async fn destroy_replica(
        &self,
        request: Request<v1::DestroyReplicaRequest>,
    ) -> Result<Response<v1::Outcome>, Status> {
        let (store, request) = (self.store.clone(), request.into_inner());
        answer(
            self.store.detached("destroy replica", async move { store.destroy_replica(request).await }).await,
        )
    }

    async fn change_members(
        &self,
        request: Request<v1::ChangeMembersRequest>,
    ) -> Result<Response<v1::ChangeMembersResponse>, Status> {
        let (store, request) = (self.store.clone(), request.into_inner());
        let shard_id = request.shard_id;
        let done =
            self.store.detached("change members", async move { store.change_members(request).await }).await;
        let shard = self.store.replica(shard_id).map(|replica| replica.shard());
        Ok(Response::new(v1::ChangeMembersResponse { error: done.err(), shard }))
    }

    async fn transfer_leader(
        &self,
        request: Request<v1::TransferLeaderRequest>,
    ) -> Result<Response<v1::Outcome>, Status> {
        answer(self.store.transfer_leader(request.into_inner()).await)
    }

    async fn list_replicas(
        &self,
        request: Request<v1::ListReplicasRequest>,
    ) -> Result<Response<v1::ListReplicasResponse>, Status> {
        let error = self.store.authorize(request.into_inner().authority).await.err();
        let replicas = match &error {
            None => self.store.all().iter().map(|replica| replica.report()).collect(),
            Some(_) => Vec::new(),
        };
        Ok(Response::new(v1::ListReplicasResponse { replicas, error }))
    }
}

impl Store {
    async fn detached(
        &self,
        name: &'static str,
        work: impl Future<Output = Outcome> + Send + 'static,
    ) -> Outcome {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.tasks.spawn(name, async move {
            let _caller_gone = sender.send(work.await);
        });
        receiver.await.unwrap_or_else(|_| Err(wire_error(ErrorCode::Internal, "the work broke off")))
    }

    async fn authorize(self: &Arc<Self>, authority: Option<v1::Authority>) -> Outcome {
        let a =
            authority.ok_or_else(|| wire_error(ErrorCode::InvalidArgument, "the call names no authority"))?;
        if a.cluster_id != self.cluster_id {
            let message = format!("this store belongs to cluster {}", self.cluster_id);
            return Err(wire_error(ErrorCode::ClusterMismatch, message));
        }
        if a.store_id != self.store_id {
            return Err(wire_error(ErrorCode::StoreMismatch, format!("this is store {}", self.store_id)));
        }
        let store = self.clone();
        tokio::task::spawn_blocking(move || store.admit(a.incarnation, a.control_lease))
            .await
            .unwrap_or_else(|e| Err(wire_error(ErrorCode::Internal, e.to_string())))
    }

    async fn create_replica(self: &Arc<Self>, request: v1::CreateReplicaRequest) -> Outcome {
        self.authorize(request.authority.clone()).await?;
        let (shard, descriptor) = wanted(&request)?;
        let _one_at_a_time = self.changing.lock().await;
        let id = descriptor.group();
        if self.tombstones.lock().contains(&id) {
            let message = format!("replica {id} was destroyed here; replica ids are not used again");
            return Err(wire_error(ErrorCode::Conflict, message));
        }
        let replica = match self.replica(descriptor.shard_id) {
            Some(there) if there.id != id => {
                let message = format!("replica {} of the shard is here; destroy it first", there.id.replica);
                return Err(wire_error(ErrorCode::Conflict, message));
            }
            Some(there) => there,
            None => self.make_replica(descriptor).await?,
        };
        let open = replica.serving()?;
        if request.bootstrap {
            self.initialize(&replica, &open, &shard).await?;
        }
        Ok(())
    }

    async fn make_replica(self: &Arc<Self>, descriptor: Descriptor) -> Result<Arc<Replica>, v1::Error> {
        // The descriptor first: what has no descriptor is garbage of a crash, and may go.
        self.write_descriptor(descriptor.clone()).await?;
        let replica = self.open_replica(descriptor).await;
        self.replicas.write().insert(replica.id.shard.0, replica.clone());
        tracing::info!(group = %replica.id, "replica created");
        Ok(replica)
    }

    /// Gives a new group its first voters.
    async fn initialize(&self, replica: &Arc<Replica>, open: &Open, shard: &v1::Shard) -> Outcome {
        if replica.descriptor.lock().state == ReplicaState::Started {
            return Ok(());
        }
        if !log_is_empty(&self.log, replica.id) {
            return self.mark_started(replica).await;
        }
        let voters: BTreeMap<u64, Member> = shard
            .replicas
            .iter()
            .filter(|r| r.role() == v1::Role::Voter)
            .map(|r| (r.replica_id, self.member(r.store_id)))
            .collect();
        open.group.initialize(voters).await.map_err(raft_error)?;
        self.mark_started(replica).await
    }

    /// From here an empty log is a fault. Only under `changing`.
    pub(crate) async fn mark_started(&self, replica: &Arc<Replica>) -> Outcome {
        let descriptor = {
            let mut descriptor = replica.descriptor.lock();
            descriptor.state = ReplicaState::Started;
            descriptor.clone()
        };
        self.write_descriptor(descriptor).await
    }

    async fn write_descriptor(&self, descriptor: Descriptor) -> Outcome {
        let descriptors = self.descriptors.clone();
        let written = tokio::task::spawn_blocking(move || descriptors.write(&descriptor)).await;
        let internal = |message: String| wire_error(ErrorCode::Internal, message);
        written.map_err(|e| internal(e.to_string()))?.map_err(|e| internal(e.to_string()))
    }

    fn member(&self, store: u64) -> Member {
        let address = match store == self.store_id {
            true => Some(self.address.clone()),
            false => self.addresses.get(store),
        };
        Member { store, address: address.unwrap_or_default() }
    }

    async fn destroy_replica(self: &Arc<Self>, request: v1::DestroyReplicaRequest) -> Outcome {
        self.authorize(request.authority.clone()).await?;
        let id = GroupId { shard: ShardId(request.shard_id), replica: ReplicaId(request.replica_id) };
        let _one_at_a_time = self.changing.lock().await;
        let there = self.replica(request.shard_id).filter(|replica| replica.id == id);
        let mut descriptor = match &there {
            Some(replica) => {
                refuse_older_epoch(&request, &replica.shard())?;
                replica.descriptor.lock().clone()
            }
            // Not here; the tombstone keeps a late CreateReplica from making it.
            None if self.tombstones.lock().contains(&id) => return Ok(()),
            None => {
                let shard = v1::Shard { shard_id: request.shard_id, ..Default::default() };
                Descriptor::from_wire(&shard, request.replica_id, &v1::TableOptions::default())
            }
        };
        descriptor.state = ReplicaState::Destroyed;
        self.write_descriptor(descriptor).await?;
        self.tombstones.lock().insert(id);
        if let Some(replica) = there {
            self.replicas.write().remove(&request.shard_id);
            replica.quarantine("the replica was destroyed");
            self.bury(id).await?;
            tracing::info!(group = %id, "replica destroyed");
        }
        Ok(())
    }

    /// Closes a destroyed replica and moves its data to the trash. Also ends what a crash cut off.
    pub(crate) async fn bury(&self, id: GroupId) -> Outcome {
        let internal = |message: String| wire_error(ErrorCode::Internal, message);
        self.host.close(id).await.map_err(raft_error)?;
        let (engine, log) = (self.engine.clone(), self.log.clone());
        let buried = tokio::task::spawn_blocking(move || {
            engine.drop_tree(id).map_err(|e| e.to_string())?;
            let (sender, receiver) = std::sync::mpsc::channel();
            log.drop_group(
                id,
                Box::new(move |done| {
                    let _gone = sender.send(done);
                }),
            );
            receiver.recv().map_err(|e| e.to_string())?.map_err(|e| e.to_string())
        });
        buried.await.map_err(|e| internal(e.to_string()))?.map_err(internal)
    }

    async fn change_members(self: &Arc<Self>, request: v1::ChangeMembersRequest) -> Outcome {
        self.authorize(request.authority.clone()).await?;
        let (replica, open) = self.leading(request.shard_id)?;
        let status = open.group.status();
        let of = |role: v1::Role| -> BTreeMap<u64, Member> {
            let replicas = request.replicas.iter().filter(|r| r.role() == role);
            replicas.map(|r| (r.replica_id, self.member(r.store_id))).collect()
        };
        let (voters, learners) = (of(v1::Role::Voter), of(v1::Role::Learner));
        if voters.len() + learners.len() != request.replicas.len() || voters.is_empty() {
            return Err(wire_error(ErrorCode::InvalidArgument, "name voters and learners, each once"));
        }
        if is_reached(&status, &voters, &learners) {
            return Ok(());
        }
        let conf = open.machine.conf();
        // While a change is half done its epoch has moved; finishing it is always right.
        if !status.joint && request.expected.is_some_and(|e| e.conf != conf) {
            let shard = replica.shard();
            let error =
                wire_error(ErrorCode::EpochNotMatch, format!("the members have changed: conf is {conf}"));
            return Err(v1::Error { shards: vec![shard], ..error });
        }
        refuse_without_quorum(&status, &voters, self.heartbeat_max())?;
        open.group.change_members(voters, learners).await.map_err(raft_error)
    }

    /// An acknowledgement that is older does not count.
    fn heartbeat_max(&self) -> Duration {
        Duration::from_millis(self.config.raft.election_max_ms.max(3 * self.config.raft.heartbeat_ms))
    }

    fn leading(&self, shard_id: u64) -> Result<(Arc<Replica>, Arc<Open>), v1::Error> {
        let missing =
            || wire_error(ErrorCode::ShardNotFound, format!("shard {shard_id} is not on this store"));
        let replica = self.replica(shard_id).ok_or_else(missing)?;
        let open = replica.serving()?;
        let status = open.group.status();
        if !status.is_leader {
            return Err(raft_error(RaftError::NotLeader { leader: status.leader_at(), term: status.term }));
        }
        Ok((replica, open))
    }

    async fn transfer_leader(self: &Arc<Self>, request: v1::TransferLeaderRequest) -> Outcome {
        self.authorize(request.authority.clone()).await?;
        let (_, open) = self.leading(request.shard_id)?;
        let status = open.group.status();
        let to = request.to_replica_id;
        if !is_fresh(&status, to, self.heartbeat_max())
            || status.lag(to).is_none_or(|lag| lag > CAUGHT_UP_LAG_MAX)
        {
            let message = format!("replica {} is not caught up", request.to_replica_id);
            return Err(wire_error(ErrorCode::Conflict, message));
        }
        open.group.transfer_leader(request.to_replica_id).await.map_err(raft_error)
    }
}

fn wanted(request: &v1::CreateReplicaRequest) -> Result<(v1::Shard, Descriptor), v1::Error> {
    let invalid = |message: &str| wire_error(ErrorCode::InvalidArgument, message);
    let shard = request.shard.clone().ok_or_else(|| invalid("the call names no shard"))?;
    let table = request.table.clone().ok_or_else(|| invalid("the call names no table options"))?;
    if shard.shard_id == 0 || request.replica_id == 0 {
        return Err(invalid("shard and replica ids begin at 1"));
    }
    if shard.range.clone().is_some_and(|r| KeyRange::from(r).is_empty()) {
        return Err(invalid("the shard's range is empty"));
    }
    if engine_kind(&table.engine).is_none() {
        let message = format!("engine {:?} is not known here", table.engine);
        return Err(wire_error(ErrorCode::NotSupported, message));
    }
    let named = |r: &v1::Replica| r.replica_id == request.replica_id && r.role() == v1::Role::Voter;
    if request.bootstrap && !shard.replicas.iter().any(named) {
        return Err(invalid("a first replica must be one of the shard's voters"));
    }
    let descriptor = Descriptor::from_wire(&shard, request.replica_id, &table);
    Ok((shard, descriptor))
}

/// IMPORTANT: data goes only by an order that knows at least what this replica knows.
fn refuse_older_epoch(request: &v1::DestroyReplicaRequest, shard: &v1::Shard) -> Outcome {
    let said: undb_types::Epoch = request.epoch.unwrap_or_default().into();
    let ours: undb_types::Epoch = shard.epoch.unwrap_or_default().into();
    if said.covers(ours) {
        return Ok(());
    }
    let message = format!("the order's epoch {said:?} is older than the replica's {ours:?}");
    Err(v1::Error { shards: vec![shard.clone()], ..wire_error(ErrorCode::EpochNotMatch, message) })
}

fn is_reached(
    status: &GroupStatus,
    voters: &BTreeMap<u64, Member>,
    learners: &BTreeMap<u64, Member>,
) -> bool {
    let same = |now: &BTreeMap<u64, Member>, wanted: &BTreeMap<u64, Member>| now.keys().eq(wanted.keys());
    !status.joint
        && status.config_committed
        && same(&status.voters, voters)
        && same(&status.learners, learners)
}

/// True when a replica answered its leader a moment ago.
fn is_fresh(status: &GroupStatus, replica: u64, ack_max: Duration) -> bool {
    let answered =
        |p: &undb_raft::PeerStatus| p.replica == replica && p.ack_age.is_some_and(|age| age <= ack_max);
    replica == status.replica || status.peers.iter().any(answered)
}

/// Refuses a change after which fewer than a quorum would be known to be caught up. Replicas that are
/// new are counted: the change itself waits until they are.
fn refuse_without_quorum(status: &GroupStatus, voters: &BTreeMap<u64, Member>, ack_max: Duration) -> Outcome {
    let known = |id: &u64| status.voters.contains_key(id) || status.learners.contains_key(id);
    let fresh = |id: &u64| is_fresh(status, *id, ack_max);
    let healthy =
        |id: &u64| !known(id) || (fresh(id) && status.lag(*id).is_some_and(|lag| lag <= CAUGHT_UP_LAG_MAX));
    let count = voters.keys().filter(|id| healthy(id)).count();
    let quorum = voters.len() / 2 + 1;
    if count >= quorum {
        return Ok(());
    }
    let message =
        format!("only {count} of {} wanted voters are caught up; {quorum} are needed", voters.len());
    Err(wire_error(ErrorCode::Conflict, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use undb_raft::PeerStatus;

    fn members(ids: &[u64]) -> BTreeMap<u64, Member> {
        ids.iter().map(|id| (*id, Member { store: *id, address: String::new() })).collect()
    }

    fn leader(voters: &[u64], peers: &[(u64, Option<u64>, Option<u64>)]) -> GroupStatus {
        GroupStatus {
            replica: 1,
            term: 1,
            leader: Some(1),
            is_leader: true,
            last_index: Some(5000),
            committed: None,
            cluster_committed: None,
            applied: None,
            snapshot: None,
            purged: None,
            voters: members(voters),
            learners: BTreeMap::new(),
            configs: vec![voters.iter().copied().collect()],
            joint: false,
            config_committed: true,
            quorum_age: None,
            peers: peers
                .iter()
                .map(|(replica, matched, age)| PeerStatus {
                    replica: *replica,
                    matched: *matched,
                    ack_age: age.map(Duration::from_millis),
                })
                .collect(),
            fatal: None,
            running: true,
        }
    }

    const ACK_MAX: Duration = Duration::from_millis(1000);

    #[test]
    fn removing_a_healthy_voter_while_another_is_dead_is_refused() {
        let status = leader(&[1, 2, 3], &[(2, Some(5000), Some(10)), (3, Some(100), None)]);
        let error = refuse_without_quorum(&status, &members(&[1, 3]), ACK_MAX).expect_err("refused");
        assert_eq!(error.code(), ErrorCode::Conflict);
        assert!(refuse_without_quorum(&status, &members(&[1, 2]), ACK_MAX).is_ok());
    }

    #[test]
    fn a_voter_that_lags_or_is_silent_does_not_count() {
        let lagging = leader(&[1, 2], &[(2, Some(10), Some(10))]);
        assert!(refuse_without_quorum(&lagging, &members(&[1, 2]), ACK_MAX).is_err());
        let silent = leader(&[1, 2], &[(2, Some(5000), Some(5000))]);
        assert!(refuse_without_quorum(&silent, &members(&[1, 2]), ACK_MAX).is_err());
    }

    #[test]
    fn replacing_a_dead_voter_by_a_new_one_is_allowed() {
        let status = leader(&[1, 2, 3], &[(2, Some(5000), Some(10)), (3, None, None)]);
        assert!(refuse_without_quorum(&status, &members(&[1, 2, 4]), ACK_MAX).is_ok());
    }

    #[test]
    fn data_is_not_destroyed_by_an_older_epoch() {
        let shard = v1::Shard { epoch: Some(v1::Epoch { version: 2, conf: 5 }), ..Default::default() };
        let order = |version, conf| v1::DestroyReplicaRequest {
            epoch: Some(v1::Epoch { version, conf }),
            ..Default::default()
        };
        assert!(refuse_older_epoch(&order(2, 5), &shard).is_ok());
        assert!(refuse_older_epoch(&order(2, 9), &shard).is_ok());
        assert!(refuse_older_epoch(&order(2, 4), &shard).is_err());
        assert!(refuse_older_epoch(&order(1, 9), &shard).is_err());
    }

    #[test]
    fn a_bootstrap_names_this_replica_as_a_voter() {
        let mut request = v1::CreateReplicaRequest {
            shard: Some(v1::Shard { shard_id: 1, ..Default::default() }),
            replica_id: 7,
            table: Some(v1::TableOptions { engine: "separated".into(), ..Default::default() }),
            bootstrap: true,
            ..Default::default()
        };
        assert_eq!(wanted(&request).expect_err("refused").code(), ErrorCode::InvalidArgument);
        let voter = v1::Replica { replica_id: 7, store_id: 1, role: v1::Role::Voter as i32 };
        request.shard.as_mut().expect("set").replicas.push(voter);
        assert!(wanted(&request).is_ok());
    }
}
