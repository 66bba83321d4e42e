//! One session: a client's stream of requests, answered in any order.
//!
//! Bounds: `session_requests` in flight a session (more wait in the socket), the store's budget of
//! request bytes (more are answered SERVER_BUSY).

use super::read::{Reads, serve_scan};
use super::reply::{Outgoing, Reply};
use super::write;
use crate::check::{check_op, check_store, epoch_matches, touched};
use crate::meters::Kind;
use crate::replica::{Open, Replica};
use crate::store::Store;
use crate::writer::busy;
use futures::Stream;
use futures::stream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};
use undb_proto::v1::kv_request::Op;
use undb_proto::v1::kv_server::Kv;
use undb_proto::v1::{ErrorCode, KvRequest, KvRequests, KvResponses};
use undb_proto::{v1, wire_error};

/// Answers that share one message on the wire.
const RESPONSES_MAX: usize = 256;
/// Bytes after which a message is closed.
const RESPONSES_BYTES: usize = 1 << 20;
/// What a get is counted as before its answer is known, a key.
const GET_COST_BYTES: u64 = 4096;

/// The service.
pub struct KvService {
    pub(crate) store: Arc<Store>,
}

type Responses = Pin<Box<dyn Stream<Item = Result<KvResponses, Status>> + Send>>;

#[tonic::async_trait]
impl Kv for KvService {
    type SessionStream = Responses;

    async fn session(&self, request: Request<Streaming<KvRequests>>) -> Result<Response<Responses>, Status> {
        let inbound = request.into_inner();
        let slots = self.store.config.limits.session_requests;
        let (queue, outgoing) = mpsc::channel(slots);
        let session = Session { store: self.store.clone(), queue, slots: Arc::new(Semaphore::new(slots)) };
        self.store.tasks.spawn("kv session", session.run(inbound));
        Ok(Response::new(Box::pin(packed(outgoing))))
    }
}

/// Answers, as many as are ready, in one message.
fn packed(outgoing: mpsc::Receiver<Outgoing>) -> impl Stream<Item = Result<KvResponses, Status>> {
    stream::unfold(outgoing, |mut outgoing| async move {
        let first = outgoing.recv().await?;
        let mut bytes = size_of_answer(&first.response);
        let mut responses = vec![first.response];
        while responses.len() < RESPONSES_MAX && bytes < RESPONSES_BYTES {
            let Ok(next) = outgoing.try_recv() else { break };
            bytes += size_of_answer(&next.response);
            responses.push(next.response);
        }
        Some((Ok(KvResponses { responses }), outgoing))
    })
}

fn size_of_answer(response: &v1::KvResponse) -> usize {
    use v1::kv_response::Result as R;
    let records = |records: &[v1::Record]| records.iter().map(|r| 48 + r.key.len() + r.value.len()).sum();
    match &response.result {
        Some(R::Get(get)) => {
            get.records.iter().map(|r| 48 + r.record.as_ref().map_or(0, |r| r.value.len())).sum()
        }
        Some(R::Scan(scan)) => records(&scan.records),
        Some(R::Write(write)) => {
            write.results.iter().map(|r| 48 + r.previous.as_ref().map_or(0, |p| p.value.len())).sum()
        }
        _ => 64,
    }
}

/// What one message has queued and not started yet.
#[derive(Default)]
struct Begun {
    reads: Reads,
    written: Vec<Arc<Open>>,
}

impl Begun {
    fn go(&mut self, store: &Arc<Store>) {
        self.written.drain(..).for_each(|open| open.writer.pump());
        std::mem::take(&mut self.reads).start(store);
    }
}

struct Session {
    store: Arc<Store>,
    queue: mpsc::Sender<Outgoing>,
    slots: Arc<Semaphore>,
}

impl Session {
    async fn run(self, mut inbound: Streaming<KvRequests>) {
        loop {
            let message = tokio::select! {
                message = inbound.message() => message,
                () = self.queue.closed() => return,
                () = self.store.closing.cancelled() => return,
            };
            match message {
                Ok(Some(requests)) => self.take(requests).await,
                // The client ended it, or its connection broke: both are its business.
                Ok(None) | Err(_) => return,
            }
        }
    }

    async fn take(&self, requests: KvRequests) {
        let mut begun = Begun::default();
        for request in requests.requests {
            let slot = match self.slots.clone().try_acquire_owned() {
                Ok(slot) => slot,
                Err(_) => {
                    // IMPORTANT: what this message has queued so far holds slots; it must run before we
                    // wait for one, or the session waits for itself.
                    begun.go(&self.store);
                    let Ok(slot) = self.slots.clone().acquire_owned().await else { return };
                    slot
                }
            };
            let permit = self.store.budget.take(cost(&request));
            let over = permit.is_none();
            let bytes = permit.unwrap_or_else(|| self.store.budget.nothing());
            let (id, queue) = (request.id, self.queue.clone());
            let kind = match &request.op {
                Some(Op::Write(_)) => Kind::Write,
                Some(Op::Scan(_)) => Kind::Scan,
                _ => Kind::Get,
            };
            let reply = Reply {
                id,
                queue,
                slot,
                bytes,
                kind,
                began: Instant::now(),
                meters: self.store.meters.clone(),
            };
            if over {
                reply.send(Err(busy("the store's memory for requests is in use", 50)));
                continue;
            }
            self.dispatch(request, reply, &mut begun);
        }
        begun.go(&self.store);
    }

    fn dispatch(&self, request: KvRequest, reply: Reply, begun: &mut Begun) {
        let header = request.header.unwrap_or_default();
        let Some(op) = request.op else {
            return reply
                .send(Err(wire_error(ErrorCode::NotSupported, "this store does not know the operation")));
        };
        let replica = match self.replica(&header, &op) {
            Ok(replica) => replica,
            Err(error) => return reply.send(Err(error)),
        };
        let open = match replica.serving() {
            Ok(open) => open,
            Err(error) => return reply.send(Err(error)),
        };
        let wait_ms = match header.deadline_ms {
            0 => self.store.config.limits.default_deadline_ms,
            ms => u64::from(ms),
        };
        let deadline = Instant::now() + Duration::from_millis(wait_ms);
        match op {
            Op::Get(get) => begun.reads.add(replica, open, get, deadline, reply),
            Op::Scan(scan) => {
                let store = self.store.clone();
                self.store.tasks.spawn("kv scan", serve_scan(store, replica, open, scan, deadline, reply));
            }
            Op::Write(write) => {
                write::submit(&self.store, &replica, &open, write, header.request_id, deadline, reply);
                if !begun.written.iter().any(|w| Arc::ptr_eq(w, &open)) {
                    begun.written.push(open);
                }
            }
        }
    }

    /// The replica that a request means, if the request fits it.
    fn replica(&self, header: &v1::Header, op: &Op) -> Result<Arc<Replica>, v1::Error> {
        check_store(header, &self.store.cluster_id, self.store.store_id)?;
        check_op(op)?;
        let replica = self.store.replica(header.shard_id).ok_or_else(|| {
            wire_error(ErrorCode::ShardNotFound, format!("shard {} is not on this store", header.shard_id))
        })?;
        let (table_id, version) = {
            let descriptor = replica.descriptor.lock();
            (descriptor.table_id, descriptor.epoch_version)
        };
        let range = touched(op);
        if !epoch_matches(header, table_id, version) || !replica.range.covers(&range) {
            return Err(self.store.epoch_error(table_id, &range));
        }
        Ok(replica)
    }
}

fn cost(request: &KvRequest) -> u64 {
    let bytes = match &request.op {
        Some(Op::Get(get)) => get.keys.len() as u64 * GET_COST_BYTES,
        Some(Op::Scan(scan)) if scan.max_bytes == 0 => 1 << 20,
        Some(Op::Scan(scan)) => u64::from(scan.max_bytes.min(8 << 20)),
        Some(Op::Write(write)) => write.mutations.iter().map(mutation_bytes).sum(),
        None => 0,
    };
    256 + bytes
}

fn mutation_bytes(mutation: &v1::Mutation) -> u64 {
    let value = match &mutation.op {
        Some(v1::mutation::Op::Put(put)) => put.value.len(),
        _ => 0,
    };
    (128 + mutation.key.len() + value) as u64
}
