//! A small client: one session a store, follows leaders, retries what is safe to retry.

use super::{FakeControl, PATIENCE};
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use undb_proto::v1;
use undb_proto::v1::ErrorCode;
use undb_proto::v1::kv_client::KvClient;
use undb_runtime::rpc;
use v1::kv_request::Op;
use v1::kv_response::Result as Answer;

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<v1::KvResponse>>>>;

struct Session {
    requests: mpsc::Sender<v1::KvRequests>,
    waiting: Waiting,
}

#[derive(Clone)]
pub struct Caller {
    inner: Arc<Inner>,
}

struct Inner {
    control: Arc<FakeControl>,
    shard: v1::Shard,
    sessions: tokio::sync::Mutex<HashMap<String, Arc<Session>>>,
    guess: AtomicU64,
    ids: AtomicU64,
}

impl Session {
    async fn open(address: &str) -> Result<Session, String> {
        let (requests, outbound) = mpsc::channel(64);
        let mut client = KvClient::new(rpc::channel(address).map_err(|e| e.to_string())?)
            .max_decoding_message_size(rpc::MESSAGE_BYTES_MAX);
        let answered = client.session(ReceiverStream::new(outbound)).await.map_err(|e| e.to_string())?;
        let mut inbound = answered.into_inner();
        let waiting = Waiting::default();
        let answers = waiting.clone();
        tokio::spawn(async move {
            while let Ok(Some(message)) = inbound.message().await {
                for response in message.responses {
                    if let Some(caller) = answers.lock().remove(&response.id) {
                        let _gone = caller.send(response);
                    }
                }
            }
            // Dropping the senders tells the callers that the session broke.
            answers.lock().clear();
        });
        Ok(Session { requests, waiting })
    }
}

impl Caller {
    pub fn new(control: Arc<FakeControl>, shard: v1::Shard) -> Self {
        let inner = Inner {
            control,
            shard,
            sessions: Default::default(),
            guess: AtomicU64::new(1),
            ids: AtomicU64::new(1),
        };
        Self { inner: Arc::new(inner) }
    }

    pub fn header(&self, store_id: u64) -> v1::Header {
        v1::Header {
            cluster_id: "test".into(),
            incarnation: 1,
            table_id: self.inner.shard.table_id,
            shard_id: self.inner.shard.shard_id,
            epoch: self.inner.shard.epoch,
            store_id,
            deadline_ms: 5_000,
            ..Default::default()
        }
    }

    /// One attempt at one store; `None`: the connection broke, so the outcome is not known.
    pub async fn attempt(&self, store: u64, header: v1::Header, op: Op) -> Option<Result<Answer, v1::Error>> {
        let address = self.inner.control.address_of(store)?;
        let session = {
            let mut sessions = self.inner.sessions.lock().await;
            match sessions.get(&address) {
                Some(session) if !session.requests.is_closed() => session.clone(),
                _ => {
                    let session = Arc::new(Session::open(&address).await.ok()?);
                    sessions.insert(address.clone(), session.clone());
                    session
                }
            }
        };
        let id = self.inner.ids.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        session.waiting.lock().insert(id, sender);
        let request = v1::KvRequest { id, header: Some(header), op: Some(op) };
        let sent = session.requests.send(v1::KvRequests { requests: vec![request] }).await;
        let answer = match sent {
            Ok(()) => tokio::time::timeout(PATIENCE, answer).await.ok().and_then(|a| a.ok()),
            Err(_) => None,
        };
        if answer.is_none() {
            self.inner.sessions.lock().await.remove(&address);
        }
        match answer?.result? {
            Answer::Error(error) => Some(Err(error)),
            other => Some(Ok(other)),
        }
    }

    /// Until it succeeds or is refused for good. `Ambiguous` is asked again only with a request id.
    pub async fn call(&self, op: Op, id: Option<v1::RequestId>) -> Result<Answer, v1::Error> {
        let read = !matches!(op, Op::Write(_));
        let started = tokio::time::Instant::now();
        loop {
            assert!(started.elapsed() < PATIENCE, "no answer to {op:?}");
            let store = self.inner.guess.load(Ordering::Relaxed);
            let header = v1::Header { request_id: id, ..self.header(store) };
            let error = match self.attempt(store, header, op.clone()).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => error,
                None => undb_proto::wire_error(ErrorCode::Ambiguous, "the connection broke"),
            };
            let unknown = matches!(error.code(), ErrorCode::Ambiguous | ErrorCode::DeadlineExceeded);
            if unknown && !read && id.is_none() {
                return Err(error);
            }
            match error.code() {
                ErrorCode::NotLeader if error.leader_store_id != 0 => {
                    self.inner.guess.store(error.leader_store_id, Ordering::Relaxed);
                }
                ErrorCode::NotLeader
                | ErrorCode::Unavailable
                | ErrorCode::Ambiguous
                | ErrorCode::ShardNotFound => {
                    let stores = self.inner.control.state.lock().stores.len() as u64;
                    self.inner.guess.store(store % stores + 1, Ordering::Relaxed);
                }
                ErrorCode::ServerBusy | ErrorCode::DeadlineExceeded | ErrorCode::RecoveryInProgress => {}
                _ => return Err(error),
            }
            self.inner.control.next_heartbeat().await;
        }
    }

    pub async fn write(
        &self,
        mutations: Vec<v1::Mutation>,
        id: Option<v1::RequestId>,
    ) -> Result<v1::WriteResponse, v1::Error> {
        match self.call(Op::Write(v1::WriteRequest { mutations }), id).await? {
            Answer::Write(response) => Ok(response),
            other => panic!("a write was answered with {other:?}"),
        }
    }

    pub async fn put(&self, key: &str, value: impl Into<Bytes>) -> Result<v1::WriteResponse, v1::Error> {
        self.write(vec![put(key, value)], None).await
    }

    /// A put that is safe to retry; `seq` must not repeat within a test.
    pub async fn put_once(
        &self,
        key: &str,
        value: impl Into<Bytes>,
        seq: u64,
    ) -> Result<v1::WriteResponse, v1::Error> {
        let id = v1::RequestId { client: 9, seq, first_attempt_ms: 1_700_000_000_000 };
        self.write(vec![put(key, value)], Some(id)).await
    }

    pub async fn get(&self, key: &str) -> Option<v1::Record> {
        let op = Op::Get(v1::GetRequest {
            keys: vec![Bytes::copy_from_slice(key.as_bytes())],
            ..Default::default()
        });
        match self.call(op, None).await.expect("a read succeeds in the end") {
            Answer::Get(mut response) => response.records.remove(0).record,
            other => panic!("a get was answered with {other:?}"),
        }
    }

    pub async fn scan(&self, request: v1::ScanRequest) -> v1::ScanResponse {
        match self.call(Op::Scan(request), None).await.expect("a read succeeds in the end") {
            Answer::Scan(response) => response,
            other => panic!("a scan was answered with {other:?}"),
        }
    }
}

pub fn put(key: &str, value: impl Into<Bytes>) -> v1::Mutation {
    let op = v1::mutation::Op::Put(v1::Put { value: value.into(), ..Default::default() });
    mutation(key, op)
}

pub fn mutation(key: &str, op: v1::mutation::Op) -> v1::Mutation {
    v1::Mutation {
        key: Bytes::copy_from_slice(key.as_bytes()),
        condition: None,
        return_previous: false,
        op: Some(op),
    }
}
