//! Three stores and a router in this process, over real loopback gRPC. The stores share one map and one
//! table of request ids, as replicas of one group do; whoever is `leader` answers. Faults are injected.

use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use undb_proto::v1::{
    self, ErrorCode, access_server, condition::Want, kv_request, kv_response, kv_server, mutation,
    router_server,
};
use undb_proto::wire_error;
use undb_runtime::{Shutdown, rpc};
use undb_sdk::{Client, Options, Timeouts};

/// What happens to the next request, on whichever store it arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// Applied; then the stream breaks before the answer.
    DropReply,
    /// Applied; the store says that it does not know.
    Ambiguous,
    /// Applied and forgotten: the id is too old the next time.
    Forget,
    /// Not applied: the id is too old.
    TooOld,
    Busy,
    Splitting,
    DiskFull,
}

pub struct World {
    pub records: BTreeMap<Bytes, v1::Record>,
    answered: HashMap<(u64, u64), v1::WriteResponse>,
    forgotten: HashSet<(u64, u64)>,
    pub faults: VecDeque<Fault>,
    pub silent: HashSet<u64>,
    pub leader: u64,
    pub term: u64,
    pub tells_leader: bool,
    pub shards: Vec<v1::Shard>,
    pub route_version: u64,
    /// What the router says; `None`: the same as `shards`.
    pub stale_route: Option<Vec<v1::Shard>>,
    pub applies: u64,
    pub requests: Vec<u64>,
    pub resolves: u64,
    pub messages: u64,
    version: u64,
    addresses: HashMap<u64, String>,
    routers: Vec<String>,
    subscribers: Vec<mpsc::Sender<Result<v1::RouteUpdate, Status>>>,
}

pub type Shared = Arc<Mutex<World>>;

pub fn shard(id: u64, start: &str, end: &str, version: u64) -> v1::Shard {
    let replica = |n| v1::Replica { replica_id: id * 10 + n, store_id: n, role: v1::Role::Voter as i32 };
    v1::Shard {
        shard_id: id,
        table_id: 1,
        range: Some(v1::KeyRange {
            start: Bytes::copy_from_slice(start.as_bytes()),
            end: Bytes::copy_from_slice(end.as_bytes()),
        }),
        epoch: Some(v1::Epoch { version, conf: 1 }),
        replicas: (1..=3).map(replica).collect(),
        version_base: 0,
    }
}

pub struct Cluster {
    pub world: Shared,
    pub endpoint: String,
    router: Shutdown,
    stores: HashMap<u64, Shutdown>,
}

impl Cluster {
    pub async fn start(shards: Vec<v1::Shard>) -> Cluster {
        let world = Arc::new(Mutex::new(World {
            records: BTreeMap::new(),
            answered: HashMap::new(),
            forgotten: HashSet::new(),
            faults: VecDeque::new(),
            silent: HashSet::new(),
            leader: 1,
            term: 1,
            tells_leader: true,
            shards,
            route_version: 1,
            stale_route: None,
            applies: 0,
            requests: Vec::new(),
            resolves: 0,
            messages: 0,
            version: 0,
            addresses: HashMap::new(),
            routers: Vec::new(),
            subscribers: Vec::new(),
        }));
        let mut stores = HashMap::new();
        for store in 1..=3 {
            let service = kv_server::KvServer::new(Store { id: store, world: world.clone() });
            let (address, shutdown) = serve(rpc::Routes::new(service)).await;
            world.lock().addresses.insert(store, address);
            stores.insert(store, shutdown);
        }
        let routes = rpc::Routes::new(access_server::AccessServer::new(Front(world.clone())))
            .add_service(router_server::RouterServer::new(Front(world.clone())));
        let (endpoint, router) = serve(routes).await;
        world.lock().routers.push(endpoint.clone());
        Cluster { world, endpoint, router, stores }
    }

    pub fn options(&self) -> Options {
        let timeouts = Timeouts { attempt: Duration::from_millis(200), ..Timeouts::default() };
        Options::new([self.endpoint.clone()]).timeouts(timeouts)
    }

    pub async fn client(&self) -> Client {
        Client::connect(self.options()).await.expect("the cluster is there")
    }

    pub fn fault(&self, fault: Fault) {
        self.world.lock().faults.push_back(fault);
    }

    /// Another store leads, in a new term.
    pub fn elect(&self, store: u64) {
        let mut world = self.world.lock();
        world.leader = store;
        world.term += 1;
    }

    pub fn stop_router(&self) {
        self.router.begin();
    }

    pub fn stop_store(&self, store: u64) {
        self.stores[&store].begin();
    }

    pub fn push(&self, update: v1::route_update::Update) {
        let update = v1::RouteUpdate { update: Some(update), table: String::new() };
        self.world.lock().subscribers.retain(|s| s.try_send(Ok(update.clone())).is_ok());
    }
}

async fn serve(routes: rpc::Routes) -> (String, Shutdown) {
    let listener = rpc::bind("127.0.0.1:0", "test").await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    let shutdown = Shutdown::new(Duration::ZERO);
    tokio::spawn(rpc::serve(listener, routes, shutdown.clone()));
    (address, shutdown)
}

struct Store {
    id: u64,
    world: Shared,
}

#[tonic::async_trait]
impl kv_server::Kv for Store {
    type SessionStream = ReceiverStream<Result<v1::KvResponses, Status>>;

    async fn session(
        &self,
        request: Request<Streaming<v1::KvRequests>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let mut requests = request.into_inner();
        let (id, world) = (self.id, self.world.clone());
        let (answers, stream) = mpsc::channel(16);
        tokio::spawn(async move {
            while let Ok(Some(message)) = requests.message().await {
                world.lock().messages += 1;
                let mut responses = Vec::new();
                for request in message.requests {
                    match world.lock().handle(id, request) {
                        Handled::Answer(response) => responses.push(response),
                        Handled::Silence => {}
                        Handled::Break => return,
                    }
                }
                if answers.send(Ok(v1::KvResponses { responses })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

enum Handled {
    Answer(v1::KvResponse),
    Silence,
    Break,
}

impl World {
    fn handle(&mut self, store: u64, request: v1::KvRequest) -> Handled {
        let (id, header) = (request.id, request.header.expect("header"));
        self.requests.push(store);
        if self.silent.contains(&store) {
            return Handled::Silence;
        }
        let answer = |result| Handled::Answer(v1::KvResponse { id, result: Some(result) });
        let refuse = |error| answer(kv_response::Result::Error(error));
        if store != self.leader {
            let mut error = wire_error(ErrorCode::NotLeader, "");
            if self.tells_leader {
                error.leader_store_id = self.leader;
                error.leader_replica_id = header.shard_id * 10 + self.leader;
                error.term = self.term;
            }
            return refuse(error);
        }
        let known = self.shards.iter().find(|s| s.shard_id == header.shard_id);
        if known.is_none_or(|s| s.epoch != header.epoch) {
            let shards = self.shards.clone();
            return refuse(v1::Error { shards, ..wire_error(ErrorCode::EpochNotMatch, "") });
        }
        let fault = self.faults.pop_front();
        match fault {
            Some(Fault::Busy) => {
                return refuse(v1::Error { retry_after_ms: 5, ..wire_error(ErrorCode::ServerBusy, "") });
            }
            Some(Fault::TooOld) => return refuse(wire_error(ErrorCode::TooOld, "")),
            Some(Fault::Splitting) => return refuse(wire_error(ErrorCode::Splitting, "")),
            Some(Fault::DiskFull) => return refuse(wire_error(ErrorCode::DiskFull, "disk full")),
            _ => {}
        }
        let result = self.run(&header, request.op.expect("op"));
        match fault {
            Some(Fault::DropReply) => Handled::Break,
            Some(Fault::Ambiguous) => refuse(wire_error(ErrorCode::Ambiguous, "")),
            Some(Fault::Forget) => {
                let id = header.request_id.expect("writes carry an id");
                self.forgotten.insert((id.client, id.seq));
                Handled::Break
            }
            _ => answer(result),
        }
    }

    fn run(&mut self, header: &v1::Header, op: kv_request::Op) -> kv_response::Result {
        match op {
            kv_request::Op::Get(get) => {
                let record = |k: &Bytes| v1::MaybeRecord { record: self.records.get(k).cloned() };
                let records = get.keys.iter().map(record).collect();
                kv_response::Result::Get(v1::GetResponse { records })
            }
            kv_request::Op::Scan(scan) => kv_response::Result::Scan(self.scan(scan)),
            kv_request::Op::Write(write) => {
                let id = header.request_id.map(|r| (r.client, r.seq));
                if id.is_some_and(|id| self.forgotten.contains(&id)) {
                    return kv_response::Result::Error(wire_error(ErrorCode::TooOld, "forgotten"));
                }
                if let Some(answer) = id.and_then(|id| self.answered.get(&id)) {
                    return kv_response::Result::Write(answer.clone());
                }
                let answer = self.write(write);
                if let Some(id) = id {
                    self.answered.insert(id, answer.clone());
                }
                kv_response::Result::Write(answer)
            }
        }
    }

    fn scan(&self, scan: v1::ScanRequest) -> v1::ScanResponse {
        let range: undb_types::KeyRange = scan.range.expect("range").into();
        let limit = scan.limit as usize;
        let mut inside: Vec<_> = self.records.iter().filter(|(k, _)| range.contains(k)).collect();
        if scan.reverse {
            inside.reverse();
        }
        let more = inside.len() > limit;
        let with_key = |(k, r): (&Bytes, &v1::Record)| v1::Record { key: k.clone(), ..r.clone() };
        let records: Vec<_> = inside.iter().take(limit).map(|(k, r)| with_key((k, r))).collect();
        let next = match (more, scan.reverse) {
            (false, _) => Bytes::new(),
            (true, false) => inside[limit].0.clone(),
            (true, true) => inside[limit - 1].0.clone(),
        };
        v1::ScanResponse { records, next }
    }

    fn write(&mut self, write: v1::WriteRequest) -> v1::WriteResponse {
        for (index, mutation) in write.mutations.iter().enumerate() {
            let now = self.records.get(&mutation.key);
            let holds = match mutation.condition.as_ref().and_then(|c| c.want.as_ref()) {
                None => true,
                Some(Want::Absent(_)) => now.is_none(),
                Some(Want::Present(_)) => now.is_some(),
                Some(Want::Version(v)) => now.is_some_and(|r| r.version == *v),
                Some(Want::Value(v)) => now.is_some_and(|r| r.value == v),
            };
            if !holds {
                let mut results = vec![v1::MutationResult::default(); index + 1];
                results[index].previous = now.cloned();
                return v1::WriteResponse { applied: false, failed: index as u32, results };
            }
        }
        self.applies += 1;
        let results = write.mutations.into_iter().map(|m| self.mutate(m)).collect();
        v1::WriteResponse { applied: true, failed: 0, results }
    }

    fn mutate(&mut self, m: v1::Mutation) -> v1::MutationResult {
        let previous = self.records.get(&m.key).cloned();
        self.version += 1;
        let mut result = v1::MutationResult {
            version: self.version,
            existed: previous.is_some(),
            previous: previous.clone().filter(|_| m.return_previous),
            number: 0,
        };
        let mut put = |value: Bytes, kind| {
            let value_len = value.len() as u32;
            let record = v1::Record { value, kind, value_len, version: self.version, ..Default::default() };
            self.records.insert(m.key.clone(), record);
        };
        match m.op.expect("op") {
            mutation::Op::Put(p) => put(p.value, p.kind),
            mutation::Op::Increment(i) => {
                let old = previous.map_or(i.initial, |r| {
                    std::str::from_utf8(&r.value).expect("text").parse().expect("number")
                });
                result.number = old + i.by;
                put(result.number.to_string().into(), 0);
            }
            mutation::Op::Delete(_) => {
                self.records.remove(&m.key);
            }
            mutation::Op::DeleteRange(d) => {
                let range = undb_types::KeyRange { start: m.key.clone(), end: d.end };
                let before = self.records.len();
                self.records.retain(|k, _| !range.contains(k));
                result.number = (before - self.records.len()) as i64;
            }
            mutation::Op::SetExpiry(_) | mutation::Op::Check(_) => {}
        }
        result
    }

    pub fn route(&self) -> v1::TableRoute {
        let shards = self.stale_route.as_ref().unwrap_or(&self.shards);
        let shard = |s: &v1::Shard| v1::RouteShard { shard: Some(s.clone()), leader_replica_id: 0, term: 0 };
        let store = |(id, address): (&u64, &String)| v1::RouteStore {
            store_id: *id,
            address: address.clone(),
            zone: String::new(),
        };
        v1::TableRoute {
            table_id: 1,
            name: "default".into(),
            partitioning: v1::Partitioning::Range as i32,
            version: Some(v1::RouteVersion { incarnation: 1, version: self.route_version }),
            shards: shards.iter().map(shard).collect(),
            stores: self.addresses.iter().map(store).collect(),
            digest: 0,
            stale: false,
        }
    }
}

struct Front(Shared);

#[tonic::async_trait]
impl access_server::Access for Front {
    async fn discover(
        &self,
        _: Request<v1::DiscoverRequest>,
    ) -> Result<Response<v1::DiscoverResponse>, Status> {
        Ok(Response::new(v1::DiscoverResponse {
            cluster_id: "test".into(),
            incarnation: 1,
            routers: self.0.lock().routers.clone(),
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl router_server::Router for Front {
    type SubscribeStream = Pin<Box<dyn futures::Stream<Item = Result<v1::RouteUpdate, Status>> + Send>>;

    async fn resolve(
        &self,
        request: Request<v1::ResolveRequest>,
    ) -> Result<Response<v1::ResolveResponse>, Status> {
        let mut world = self.0.lock();
        world.resolves += 1;
        let table = request.into_inner().table;
        if table != "default" {
            let error = Some(wire_error(ErrorCode::TableNotFound, ""));
            return Ok(Response::new(v1::ResolveResponse { error, ..Default::default() }));
        }
        Ok(Response::new(v1::ResolveResponse { route: Some(world.route()), ..Default::default() }))
    }

    async fn subscribe(
        &self,
        request: Request<Streaming<v1::SubscribeRequest>>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let (updates, stream) = mpsc::channel(16);
        self.0.lock().subscribers.push(updates);
        let mut requests = request.into_inner();
        let world = self.0.clone();
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                let mut world = world.lock();
                let behind = |t: &v1::KnownTable| t.known.is_none_or(|k| k.version < world.route_version);
                if request.tables.iter().any(behind) {
                    let update = Some(v1::route_update::Update::Snapshot(world.route()));
                    let update = v1::RouteUpdate { update, table: String::new() };
                    world.subscribers.retain(|s| s.try_send(Ok(update.clone())).is_ok());
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn report(&self, _: Request<v1::RouteReport>) -> Result<Response<v1::Empty>, Status> {
        Ok(Response::new(v1::Empty {}))
    }
}
