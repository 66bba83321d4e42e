//! Reads: a barrier for all that wait, then the tree on a thread that may block.

use super::reply::Reply;
use crate::check::GET_BYTES_MAX;
use crate::replica::{Open, Replica};
use crate::store::Store;
use crate::wire::{check_key, raft_error, row_to_wire};
use bytes::Bytes;
use std::sync::Arc;
use tokio::time::Instant;
use undb_engine::command::Command;
use undb_engine::shard::{Page, Reading, ScanRequest, ShardError};
use undb_engine::{EngineError, tree::Row};
use undb_proto::v1::ErrorCode;
use undb_proto::{v1, wire_error};
use undb_types::KeyRange;
use v1::kv_response::Result as Answer;

/// The gets of one message, by shard: one barrier and one turn of a thread serve all of a shard.
#[derive(Default)]
pub struct Reads {
    by_shard: Vec<Gets>,
}

struct Gets {
    replica: Arc<Replica>,
    open: Arc<Open>,
    deadline: Instant,
    gets: Vec<(v1::GetRequest, Reply)>,
}

impl Reads {
    /// Adds a get.
    pub fn add(
        &mut self,
        replica: Arc<Replica>,
        open: Arc<Open>,
        get: v1::GetRequest,
        deadline: Instant,
        reply: Reply,
    ) {
        if let Some(error) = get.keys.iter().find_map(|key| check_key(key, &replica.range).err()) {
            return reply.send(Err(error));
        }
        match self.by_shard.iter_mut().find(|g| Arc::ptr_eq(&g.open, &open)) {
            Some(found) => {
                found.deadline = found.deadline.max(deadline);
                found.gets.push((get, reply));
            }
            None => self.by_shard.push(Gets { replica, open, deadline, gets: vec![(get, reply)] }),
        }
    }

    /// Serves them.
    pub fn start(self, store: &Arc<Store>) {
        for gets in self.by_shard {
            store.tasks.spawn("kv get", serve_gets(store.clone(), gets));
        }
    }
}

async fn serve_gets(store: Arc<Store>, gets: Gets) {
    let Gets { replica, open, deadline, gets } = gets;
    if let Err(error) = pass(&open, deadline).await {
        gets.into_iter().for_each(|(_, reply)| reply.send(Err(error.clone())));
        return;
    }
    let (requests, replies): (Vec<_>, Vec<_>) = gets.into_iter().unzip();
    let read = move |now_ms: u64, open: &Open| {
        requests.iter().map(|get| read_get(open, get, now_ms)).collect::<Vec<_>>()
    };
    let read = Arc::new(read);
    // Both readings are as of the same time: what the tick covers is all that the first one met.
    let now_ms = store.clock.now_ms();
    let mut answers = on_thread(now_ms, &open, read.clone()).await;
    if answers.iter().any(needs_tick) {
        match tick(&open, deadline).await {
            Ok(()) => answers = on_thread(now_ms, &open, read).await,
            Err(error) => answers = replies.iter().map(|_| Err(Failure::Wire(error.clone()))).collect(),
        }
    }
    // The thread panicked: nobody is left without an answer.
    answers.resize_with(replies.len(), || Err(Failure::Wire(wire_error(ErrorCode::Internal, "read failed"))));
    for (answer, reply) in answers.into_iter().zip(replies) {
        reply.send(match answer {
            Ok(reading) => Ok(Answer::Get(get_to_wire(reading))),
            Err(failure) => Err(store.read_failed(&replica, failure)),
        });
    }
}

/// Why a read did not succeed.
pub enum Failure {
    /// The caller's or the moment's fault.
    Wire(v1::Error),
    /// The replica's.
    Shard(ShardError),
}

fn needs_tick(answer: &Result<Reading, Failure>) -> bool {
    answer.as_ref().is_ok_and(|reading| reading.needs_tick)
}

fn read_get(open: &Open, get: &v1::GetRequest, now_ms: u64) -> Result<Reading, Failure> {
    let shard = open.machine.shard();
    let mut all = Reading { rows: Vec::with_capacity(get.keys.len()), needs_tick: false };
    let mut bytes = 0;
    for key in &get.keys {
        let one = shard.get(std::slice::from_ref(key), now_ms, get.no_value).map_err(Failure::Shard)?;
        bytes += one.rows.iter().flatten().map(row_bytes).sum::<usize>();
        if bytes > GET_BYTES_MAX && get.keys.len() > 1 {
            let message = format!("the records are larger than {GET_BYTES_MAX} bytes; ask for fewer keys");
            return Err(Failure::Wire(wire_error(ErrorCode::TooLarge, message)));
        }
        all.needs_tick |= one.needs_tick;
        all.rows.extend(one.rows);
    }
    Ok(all)
}

fn row_bytes(row: &Row) -> usize {
    row.value.as_ref().map_or(0, Bytes::len)
}

fn get_to_wire(reading: Reading) -> v1::GetResponse {
    let record = |row: Option<Row>| v1::MaybeRecord { record: row.map(|row| row_to_wire(row, Bytes::new())) };
    v1::GetResponse { records: reading.rows.into_iter().map(record).collect() }
}

/// Serves one scan.
pub async fn serve_scan(
    store: Arc<Store>,
    replica: Arc<Replica>,
    open: Arc<Open>,
    scan: v1::ScanRequest,
    deadline: Instant,
    reply: Reply,
) {
    let answer = scan_page(&store, &open, scan, deadline).await;
    reply.send(match answer {
        Ok(page) => Ok(Answer::Scan(page_to_wire(page))),
        Err(failure) => Err(store.read_failed(&replica, failure)),
    });
}

async fn scan_page(
    store: &Arc<Store>,
    open: &Arc<Open>,
    scan: v1::ScanRequest,
    deadline: Instant,
) -> Result<Page, Failure> {
    let request = ScanRequest {
        range: KeyRange::from(scan.range.unwrap_or_default()),
        reverse: scan.reverse,
        limit: scan.limit as usize,
        bytes_max: scan.max_bytes as usize,
        keys_only: scan.keys_only,
    };
    pass(open, deadline).await.map_err(Failure::Wire)?;
    let read = Arc::new(move |now_ms: u64, open: &Open| {
        vec![open.machine.shard().scan(&request, now_ms).map_err(Failure::Shard)]
    });
    let lost = || Failure::Wire(wire_error(ErrorCode::Internal, "read failed"));
    let now_ms = store.clock.now_ms();
    let page = on_thread(now_ms, open, read.clone()).await.pop().unwrap_or_else(|| Err(lost()))?;
    if !page.needs_tick {
        return Ok(page);
    }
    tick(open, deadline).await.map_err(Failure::Wire)?;
    on_thread(now_ms, open, read).await.pop().unwrap_or_else(|| Err(lost()))
}

fn page_to_wire(page: Page) -> v1::ScanResponse {
    let record = |row: Row| {
        let key = row.key.clone();
        row_to_wire(row, key)
    };
    v1::ScanResponse {
        records: page.rows.into_iter().map(record).collect(),
        next: page.next.unwrap_or_default(),
    }
}

async fn pass(open: &Open, deadline: Instant) -> Result<(), v1::Error> {
    match tokio::time::timeout_at(deadline, open.barrier.pass()).await {
        Ok(passed) => passed.map_err(raft_error),
        Err(_) => Err(wire_error(ErrorCode::DeadlineExceeded, "no quorum confirmed the leader in time")),
    }
}

/// Commits the leader's time, so that what a reader saw expire never shows again.
async fn tick(open: &Open, deadline: Instant) -> Result<(), v1::Error> {
    open.writer.write(Command::tick(), deadline).await.map(|_| ())
}

async fn on_thread<T: Send + 'static>(
    now_ms: u64,
    open: &Arc<Open>,
    read: Arc<impl Fn(u64, &Open) -> Vec<T> + Send + Sync + 'static>,
) -> Vec<T> {
    let open = open.clone();
    tokio::task::spawn_blocking(move || read(now_ms, &open)).await.unwrap_or_default()
}

impl Store {
    /// The answer to a read that failed; corruption takes the replica out of service.
    pub(super) fn read_failed(self: &Arc<Self>, replica: &Arc<Replica>, failure: Failure) -> v1::Error {
        let error = match failure {
            Failure::Wire(error) => return error,
            Failure::Shard(error) => error,
        };
        match error {
            ShardError::Engine(EngineError::Gone(_)) => {
                wire_error(ErrorCode::RecoveryInProgress, "the replica was replaced by a snapshot")
            }
            error => {
                let why = error.to_string();
                self.quarantine(replica, &why);
                wire_error(ErrorCode::Unavailable, why)
            }
        }
    }
}
