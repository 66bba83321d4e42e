//! One stream to one store, and its life: down -> (a message) -> connecting -> up -> down.
//!
//! One task owns the stream. While down and before the next attempt is due, every message is refused
//! at once. An answer that nobody waits for any more is dropped.

use super::peers::{Client, Lane, Peers};
use super::{BATCH_BYTES_MAX, BATCH_LEN_MAX, LINK_BYTES_MAX, body_len};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use undb_proto::v1::raft_message::Body;
use undb_proto::v1::{ErrorCode, RaftBatch, RaftGroup, RaftMessage};
use undb_runtime::Backoff;

const QUEUE_LEN: usize = 256;
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_CAP: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum LinkError {
    #[error("store {store} is not reachable: {reason}")]
    Down { store: u64, reason: String },
    #[error("store {store} refuses: {reason}")]
    Refused { store: u64, reason: String },
    #[error("no answer within {0:?}")]
    TooLate(Duration),
}

/// How to reach a store.
pub(crate) struct Dial {
    pub peers: Peers,
    pub store: u64,
    pub lane: Lane,
    /// Where a group last knew the store. Leaf lock.
    pub fallback: Arc<Mutex<String>>,
}

impl Dial {
    fn client(&self) -> Result<Client, Status> {
        let fallback = self.fallback.lock().clone();
        self.peers.client(self.store, &fallback)
    }
}

struct Outgoing {
    message: RaftMessage,
    answer: oneshot::Sender<Result<Body, LinkError>>,
}

/// Sends messages to a store. Clones share one stream.
#[derive(Clone)]
pub(crate) struct Link {
    store: u64,
    queue: mpsc::Sender<Outgoing>,
    // Bytes in flight; a caller waits for its share.
    budget: Arc<Semaphore>,
    fallback: Arc<Mutex<String>>,
}

/// An answer to come.
pub(crate) struct Answer {
    store: u64,
    answer: oneshot::Receiver<Result<Body, LinkError>>,
    _budget: Option<OwnedSemaphorePermit>,
}

impl Answer {
    pub async fn within(self, within: Duration) -> Result<Body, LinkError> {
        match tokio::time::timeout(within, self.answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(LinkError::Down { store: self.store, reason: "the host shuts down".into() }),
            Err(_) => Err(LinkError::TooLate(within)),
        }
    }
}

impl Link {
    pub fn start(dial: Dial, ended: CancellationToken) -> Self {
        let (queue, messages) = mpsc::channel(QUEUE_LEN);
        let fallback = dial.fallback.clone();
        let store = dial.store;
        tokio::spawn(async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = run(dial, messages) => {}
            }
        });
        Self { store, queue, budget: Arc::new(Semaphore::new(LINK_BYTES_MAX)), fallback }
    }

    pub fn set_fallback(&self, address: &str) {
        let mut fallback = self.fallback.lock();
        if !address.is_empty() && *fallback != address {
            *fallback = address.to_owned();
        }
    }

    /// Queues a message; waits while the link has too much in flight. Messages of one caller keep
    /// their order.
    pub async fn send(&self, group: RaftGroup, body: Body) -> Answer {
        let message = RaftMessage { id: 0, group: Some(group), body: Some(body) };
        let bytes = u32::try_from(body_len(&message).min(LINK_BYTES_MAX)).unwrap_or(u32::MAX);
        // Closed never happens: nobody closes the budget. The queue is closed at shutdown.
        let budget = self.budget.clone().acquire_many_owned(bytes).await.ok();
        let (tx, answer) = oneshot::channel();
        let _ = self.queue.send(Outgoing { message, answer: tx }).await;
        Answer { store: self.store, answer, _budget: budget }
    }
}

async fn run(dial: Dial, mut messages: mpsc::Receiver<Outgoing>) {
    let mut backoff = Backoff::new(RETRY_FIRST, RETRY_CAP);
    let mut down_until = Instant::now();
    let mut reason = String::new();
    let labels = [("store", dial.peers.store_label()), ("lane", dial.lane.name().into())];
    while let Some(first) = messages.recv().await {
        let store = dial.store;
        if Instant::now() < down_until {
            let _ = first.answer.send(Err(LinkError::Down { store, reason: reason.clone() }));
            continue;
        }
        metrics::counter!("undb_raft_link_connects_total", &labels).increment(1);
        let up = connect(&dial).await;
        let status = match up {
            Ok((out, incoming)) => {
                tracing::info!(store, lane = dial.lane.name(), "link up");
                let since = Instant::now();
                let status =
                    Session::new(store, labels.clone()).run(first, &mut messages, out, incoming).await;
                if since.elapsed() > RETRY_CAP {
                    backoff.reset();
                }
                status
            }
            Err(status) => {
                let refused = LinkError::Down { store, reason: status.message().to_owned() };
                let _ = first.answer.send(Err(refused));
                status
            }
        };
        reason = status.message().to_owned();
        down_until = Instant::now() + backoff.next_delay();
        metrics::counter!("undb_raft_link_failures_total", &labels).increment(1);
        tracing::info!(store, lane = dial.lane.name(), reason, "link down");
    }
}

type Up = (mpsc::Sender<RaftBatch>, Streaming<RaftBatch>);

async fn connect(dial: &Dial) -> Result<Up, Status> {
    let mut client = dial.client()?;
    let (out, batches) = mpsc::channel(4);
    let exchange = client.exchange(ReceiverStream::new(batches));
    match tokio::time::timeout(CONNECT_WITHIN, exchange).await {
        Ok(Ok(response)) => Ok((out, response.into_inner())),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(Status::deadline_exceeded("connecting took too long")),
    }
}

type Waiting = HashMap<u64, oneshot::Sender<Result<Body, LinkError>>>;

/// One stream while it is up.
struct Session {
    store: u64,
    labels: [(&'static str, String); 2],
    // Leaf lock; shared by the two halves of `run`.
    waiting: Mutex<Waiting>,
}

impl Session {
    fn new(store: u64, labels: [(&'static str, String); 2]) -> Self {
        Self { store, labels, waiting: Mutex::default() }
    }

    /// Runs until the stream breaks; then everybody who waits learns why.
    async fn run(
        self,
        first: Outgoing,
        messages: &mut mpsc::Receiver<Outgoing>,
        out: mpsc::Sender<RaftBatch>,
        incoming: Streaming<RaftBatch>,
    ) -> Status {
        let status = tokio::select! {
            status = self.write(first, messages, out) => status,
            status = self.read(incoming) => status,
        };
        for (_, answer) in self.waiting.lock().drain() {
            let reason = status.message().to_owned();
            let _ = answer.send(Err(LinkError::Down { store: self.store, reason }));
        }
        status
    }

    /// Puts messages that are ready together into one batch.
    async fn write(
        &self,
        first: Outgoing,
        messages: &mut mpsc::Receiver<Outgoing>,
        out: mpsc::Sender<RaftBatch>,
    ) -> Status {
        let mut next_id = 1;
        let mut next = Some(first);
        let sent = metrics::counter!("undb_raft_messages_total", &self.labels);
        let batches = metrics::counter!("undb_raft_batches_total", &self.labels);
        loop {
            let message = match next.take() {
                Some(message) => message,
                None => match messages.recv().await {
                    Some(message) => message,
                    None => return Status::cancelled("the host shuts down"),
                },
            };
            let mut batch = RaftBatch { messages: Vec::new() };
            let mut bytes = self.pack(&mut batch, message, &mut next_id);
            while bytes < BATCH_BYTES_MAX && batch.messages.len() < BATCH_LEN_MAX {
                let Ok(message) = messages.try_recv() else { break };
                bytes += self.pack(&mut batch, message, &mut next_id);
            }
            // All of them may have given up by now.
            if batch.messages.is_empty() {
                continue;
            }
            sent.increment(batch.messages.len() as u64);
            batches.increment(1);
            if out.send(batch).await.is_err() {
                return Status::unavailable("the stream was closed");
            }
        }
    }

    fn pack(&self, batch: &mut RaftBatch, outgoing: Outgoing, next_id: &mut u64) -> usize {
        let Outgoing { mut message, answer } = outgoing;
        if answer.is_closed() {
            return 0;
        }
        let bytes = body_len(&message);
        message.id = *next_id;
        *next_id += 1;
        let mut waiting = self.waiting.lock();
        // Callers that gave up leave their entry behind.
        if waiting.len().is_multiple_of(1024) {
            waiting.retain(|_, answer| !answer.is_closed());
        }
        waiting.insert(message.id, answer);
        batch.messages.push(message);
        bytes
    }

    async fn read(&self, mut incoming: Streaming<RaftBatch>) -> Status {
        loop {
            let batch = match incoming.message().await {
                Ok(Some(batch)) => batch,
                Ok(None) => return Status::unavailable("the peer ended the stream"),
                Err(status) => return status,
            };
            for message in batch.messages {
                if let Some(wrong_peer) = self.deliver(message) {
                    return wrong_peer;
                }
            }
        }
    }

    /// Hands an answer to who waits. Some if this is not the store it should be: dial again.
    fn deliver(&self, message: RaftMessage) -> Option<Status> {
        let waiting = self.waiting.lock().remove(&message.id);
        let (answer, wrong_peer) = match message.body {
            Some(Body::Error(error)) => {
                let code = error.code();
                let wrong = matches!(code, ErrorCode::StoreMismatch | ErrorCode::ClusterMismatch);
                let wrong = wrong.then(|| Status::failed_precondition(error.message.clone()));
                (Err(LinkError::Refused { store: self.store, reason: error.message }), wrong)
            }
            Some(body) => (Ok(body), None),
            None => {
                let reason = "an answer of a kind that this build does not know".into();
                (Err(LinkError::Refused { store: self.store, reason }), None)
            }
        };
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
        wrong_peer
    }
}
