//! One store: a long-lived stream of requests, answered in any order.
//!
//! ```text
//! closed ── first call ──> connecting ──> live ── stream ends ──> closed (all that waits fails: Lost)
//!              ^                │ fails
//!              └── pause, doubling to 1 s ──┘   calls in the pause fail at once
//! ```
//! Whatever is queued when the stream is ready to take more goes out as one message.

use arc_swap::ArcSwapOption;
use futures::Stream;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use undb_proto::v1::{self, kv_client::KvClient, kv_response};
use undb_runtime::{Credentials, backoff, rpc};

use crate::retry::{Breaker, Trouble};

const QUEUE_LEN_MAX: usize = 1024;
const MESSAGE_REQUESTS_MAX: usize = 256;
const MESSAGE_BYTES_SOFT_MAX: usize = 1 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

type Answer = Result<kv_response::Result, String>;

/// The way to one store at one address.
#[derive(Debug)]
pub(crate) struct Session {
    pub store: u64,
    pub address: String,
    credentials: Credentials,
    slots: Vec<Slot>,
    next_slot: AtomicUsize,
    next_id: AtomicU64,
    // Leaf lock.
    breaker: Mutex<Breaker>,
}

#[derive(Debug, Default)]
struct Slot {
    live: ArcSwapOption<Connection>,
    // Held while connecting, so that one call connects for all.
    connecting: tokio::sync::Mutex<Pause>,
}

#[derive(Debug, Default)]
struct Pause {
    failures: u32,
    until: Option<Instant>,
}

#[derive(Debug)]
struct Connection {
    queue: mpsc::Sender<v1::KvRequest>,
    waiting: Arc<Waiting>,
    // Keeps the channel, and so the stream, alive.
    _client: KvClient<rpc::AuthChannel>,
}

/// Who waits for which answer; `None` once the stream has ended, so that nobody waits in vain.
#[derive(Debug)]
struct Waiting(Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>);

impl Waiting {
    fn add(&self, id: u64) -> Option<oneshot::Receiver<Answer>> {
        let (tx, rx) = oneshot::channel();
        self.0.lock().as_mut()?.insert(id, tx);
        Some(rx)
    }

    fn answer(&self, response: v1::KvResponse) {
        let waiter = self.0.lock().as_mut().and_then(|all| all.remove(&response.id));
        if let (Some(waiter), Some(result)) = (waiter, response.result) {
            let _ = waiter.send(Ok(result));
        }
    }

    fn forget(&self, id: u64) {
        if let Some(all) = self.0.lock().as_mut() {
            all.remove(&id);
        }
    }

    fn end(&self, reason: &str) {
        let all = self.0.lock().take().unwrap_or_default();
        for waiter in all.into_values() {
            let _ = waiter.send(Err(reason.to_owned()));
        }
    }

    fn has_ended(&self) -> bool {
        self.0.lock().is_none()
    }
}

/// Takes a caller that gave up off the list.
struct Forget<'a>(&'a Waiting, u64);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.0.forget(self.1);
    }
}

impl Session {
    pub fn new(store: u64, address: String, credentials: Credentials, connections: usize) -> Self {
        Self {
            store,
            address,
            credentials,
            slots: (0..connections.clamp(1, 4)).map(|_| Slot::default()).collect(),
            next_slot: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            breaker: Mutex::default(),
        }
    }

    /// True while calls should go to other replicas.
    pub fn is_avoided(&self) -> bool {
        self.breaker.lock().is_open(std::time::Instant::now())
    }

    /// Tells the breaker how an attempt ended.
    pub fn record(&self, answered: bool) {
        let mut breaker = self.breaker.lock();
        if answered { breaker.success() } else { breaker.failure(std::time::Instant::now()) }
    }

    /// Sends one request and waits for its answer, at most `timeout`.
    pub async fn call(
        &self,
        mut request: v1::KvRequest,
        timeout: Duration,
    ) -> Result<kv_response::Result, Trouble> {
        let deadline = Instant::now() + timeout;
        let slot = self.next_slot.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let connection = self.connection(&self.slots[slot], deadline).await?;
        request.id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let lost = |sent, reason: &str| Trouble::Lost { sent, reason: reason.to_owned() };
        let Some(answer) = connection.waiting.add(request.id) else {
            return Err(lost(false, "stream ended"));
        };
        let _forget = Forget(&connection.waiting, request.id);
        let queued = tokio::time::timeout_at(deadline, connection.queue.send(request)).await;
        match queued {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(lost(false, "stream ended")),
            Err(_) => return Err(Trouble::TimedOut),
        }
        match tokio::time::timeout_at(deadline, answer).await {
            Ok(Ok(Ok(kv_response::Result::Error(error)))) => Err(Trouble::Wire(error)),
            Ok(Ok(Ok(result))) => Ok(result),
            Ok(Ok(Err(reason))) => Err(lost(true, &reason)),
            Ok(Err(_)) => Err(lost(true, "stream ended")),
            Err(_) => Err(Trouble::TimedOut),
        }
    }

    async fn connection(&self, slot: &Slot, deadline: Instant) -> Result<Arc<Connection>, Trouble> {
        if let Some(live) = slot.live.load_full().filter(|c| !c.waiting.has_ended()) {
            return Ok(live);
        }
        let lost = |reason: String| Trouble::Lost { sent: false, reason };
        let connecting = tokio::time::timeout_at(deadline, slot.connecting.lock()).await;
        let Ok(mut pause) = connecting else { return Err(lost(format!("{} does not answer", self.address))) };
        if let Some(live) = slot.live.load_full().filter(|c| !c.waiting.has_ended()) {
            return Ok(live);
        }
        if pause.until.is_some_and(|until| Instant::now() < until) {
            return Err(lost(format!("{} was not reachable a moment ago", self.address)));
        }
        match self.connect().await {
            Ok(connection) => {
                *pause = Pause::default();
                let connection = Arc::new(connection);
                slot.live.store(Some(connection.clone()));
                Ok(connection)
            }
            Err(reason) => {
                let wait = backoff::delay(PAUSE_FIRST, PAUSE_MAX, pause.failures, rand::random());
                pause.failures += 1;
                pause.until = Some(Instant::now() + wait);
                metrics::counter!("undb_sdk_connect_failures_total").increment(1);
                tracing::debug!(store = self.store, reason, "store not reachable");
                Err(lost(reason))
            }
        }
    }

    async fn connect(&self) -> Result<Connection, String> {
        let channel =
            rpc::auth_channel(&self.address, self.credentials.clone()).map_err(|e| e.to_string())?;
        let mut client = KvClient::new(channel)
            .max_decoding_message_size(rpc::MESSAGE_BYTES_MAX)
            .max_encoding_message_size(rpc::MESSAGE_BYTES_MAX);
        let (queue, requests) = mpsc::channel(QUEUE_LEN_MAX);
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, client.session(messages(requests))).await;
        let mut answers = match opened {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return Err(format!("{}: {}", self.address, status.message())),
            Err(_) => return Err(format!("{} does not answer", self.address)),
        };
        let waiting = Arc::new(Waiting(Mutex::new(Some(HashMap::new()))));
        let readers = waiting.clone();
        // Ends with the stream, which ends when the connection is dropped: its queue closes then.
        tokio::spawn(async move {
            let reason = loop {
                match answers.message().await {
                    Ok(Some(message)) => message.responses.into_iter().for_each(|r| readers.answer(r)),
                    Ok(None) => break "the store ended the stream".to_owned(),
                    Err(status) => break status.message().to_owned(),
                }
            };
            readers.end(&reason);
        });
        Ok(Connection { queue, waiting, _client: client })
    }
}

/// The outgoing half: each message takes what is queued, up to a bound.
fn messages(requests: mpsc::Receiver<v1::KvRequest>) -> impl Stream<Item = v1::KvRequests> + Send + 'static {
    futures::stream::unfold(requests, |mut requests| async move {
        let first = requests.recv().await?;
        let mut size = request_bytes(&first);
        let mut message = v1::KvRequests { requests: vec![first] };
        while message.requests.len() < MESSAGE_REQUESTS_MAX && size < MESSAGE_BYTES_SOFT_MAX {
            let Ok(next) = requests.try_recv() else { break };
            size += request_bytes(&next);
            message.requests.push(next);
        }
        Some((message, requests))
    })
}

fn request_bytes(request: &v1::KvRequest) -> usize {
    const HEADER: usize = 100;
    let body = match &request.op {
        Some(v1::kv_request::Op::Write(write)) => write.mutations.iter().map(crate::op::mutation_bytes).sum(),
        Some(v1::kv_request::Op::Get(get)) => get.keys.iter().map(|k| k.len()).sum(),
        _ => 0,
    };
    HEADER + body
}
