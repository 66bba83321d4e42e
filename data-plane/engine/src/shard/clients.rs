//! Request ids: which writes of which clients were run, so that none is run twice.
//!
//! ```text
//! 'r' | client u64 BE | slot u8  ->  version u8 = 1 | seq u64 | first_attempt_ms u64 | seen_ms u64
//!                                    | ordinal u64 | floor_seq u64 | floor_ms u64 | outcome
//! ```
//! A client's last `WINDOW_LEN` writes lie in a ring of slots, so that remembering one is one overwrite.
//! A write that fell out of the ring has a seq of at most `floor_seq` and a first attempt of at most
//! `floor_ms`; so an unknown request is run unless both say that it may have been there. A client that
//! is idle for ten minutes of replicated time, or that is the longest idle when there are too many, is
//! forgotten, and the shard's watermark says up to which first attempt.
//!
//! What runs is remembered whatever became of it, or a late duplicate of a write that was answered
//! "condition failed" could still come true.

use super::batch::SystemChanges;
use super::{Result, state::State};
use crate::command::{FormatError, Outcome, Reader, RequestId};
use crate::tree::Tree;
use bytes::{BufMut, Bytes};
use std::collections::{BTreeSet, HashMap};

/// Most clients remembered by a shard.
pub const CLIENTS_MAX: usize = 4096;
/// Writes remembered of a client: it should not have more than this under way on one shard.
pub const WINDOW_LEN: usize = 128;
/// Replicated time after which an idle client is forgotten, in ms.
pub const CLIENT_IDLE_MS_MAX: u64 = 600_000;
/// How far ahead of the replicated time a first attempt may be, in ms. Not more than the idle time, so
/// that forgetting an idle client never puts the watermark ahead of the time.
pub const CLOCK_AHEAD_MS_MAX: u64 = CLIENT_IDLE_MS_MAX;

const PREFIX: &[u8] = b"r";
const RECORD_FORMAT_VERSION: u8 = 1;
/// Larger outcomes are remembered as `Forgotten`.
const OUTCOME_BYTES_MAX: usize = 1024;
/// Clients forgotten per entry at most, so that no entry takes long.
const FORGET_PER_ENTRY_MAX: usize = 32;
const LOAD_PAGE: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Clients {
    by_id: HashMap<u64, Client>,
    /// (last seen, client), to find the longest idle.
    by_seen: BTreeSet<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Client {
    seen_ms: u64,
    /// Writes run; the next takes slot `ordinal % WINDOW_LEN`.
    ordinal: u64,
    /// (seq, first attempt) by slot.
    ring: Vec<(u64, u64)>,
    floor_seq: u64,
    floor_ms: u64,
}

/// What is known of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Never,
    /// Run; its outcome is in the system record of this key.
    Before(Bytes),
    /// Perhaps run.
    TooOld {
        watermark_ms: u64,
    },
}

impl Clients {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn seen(&self, request: &RequestId, state: &State) -> Seen {
        let mut watermark_ms = state.forgotten_ms;
        if let Some(client) = self.by_id.get(&request.client) {
            if let Some(slot) = client.ring.iter().position(|(seq, _)| *seq == request.seq) {
                return Seen::Before(record_key(request.client, slot));
            }
            if request.seq <= client.floor_seq {
                watermark_ms = watermark_ms.max(client.floor_ms);
            }
        }
        // A watermark of 0: nothing was ever forgotten.
        if watermark_ms != 0 && request.first_attempt_ms <= watermark_ms {
            return Seen::TooOld { watermark_ms };
        }
        Seen::Never
    }

    /// Remembers a request that was run just now.
    pub(super) fn remember(
        &mut self,
        request: &RequestId,
        outcome: &Outcome,
        state: &mut State,
        system: &mut SystemChanges,
    ) {
        if !self.by_id.contains_key(&request.client) && self.by_id.len() >= CLIENTS_MAX {
            self.forget_idlest(state, system);
        }
        let client = self.by_id.entry(request.client).or_default();
        self.by_seen.remove(&(client.seen_ms, request.client));
        self.by_seen.insert((state.now_ms, request.client));
        client.seen_ms = state.now_ms;
        let slot = (client.ordinal % WINDOW_LEN as u64) as usize;
        let mark = (request.seq, request.first_attempt_ms);
        if let Some(old) = client.ring.get_mut(slot) {
            client.floor_seq = client.floor_seq.max(old.0);
            client.floor_ms = client.floor_ms.max(old.1);
            *old = mark;
        } else {
            client.ring.push(mark);
        }
        let value = encode_record(request, client, outcome);
        client.ordinal += 1;
        system.insert(record_key(request.client, slot), Some(value));
    }

    /// Forgets clients that are idle for too long.
    pub(super) fn expire(&mut self, state: &mut State, system: &mut SystemChanges) {
        for _ in 0..FORGET_PER_ENTRY_MAX {
            match self.by_seen.first() {
                Some((seen_ms, _)) if seen_ms.saturating_add(CLIENT_IDLE_MS_MAX) <= state.now_ms => {
                    self.forget_idlest(state, system);
                }
                _ => break,
            }
        }
    }

    fn forget_idlest(&mut self, state: &mut State, system: &mut SystemChanges) {
        let Some((_, id)) = self.by_seen.pop_first() else { return };
        let Some(client) = self.by_id.remove(&id) else { return };
        let latest_ms = client.ring.iter().map(|(_, ms)| *ms).max().unwrap_or(0).max(client.floor_ms);
        state.forgotten_ms = state.forgotten_ms.max(latest_ms).max(1);
        for slot in 0..client.ring.len() {
            system.insert(record_key(id, slot), None);
        }
    }

    /// Reads back what the tree holds.
    pub(super) fn load(tree: &dyn Tree) -> Result<Clients> {
        let mut clients = Clients::default();
        let mut after: Option<Bytes> = None;
        loop {
            let page = tree.scan_system(PREFIX, after.as_deref(), LOAD_PAGE)?;
            for (key, value) in &page {
                clients.load_record(key, value)?;
            }
            match page.last() {
                Some((key, _)) if page.len() == LOAD_PAGE => after = Some(key.clone()),
                _ => break,
            }
        }
        clients.by_seen = clients.by_id.iter().map(|(id, client)| (client.seen_ms, *id)).collect();
        Ok(clients)
    }

    fn load_record(&mut self, key: &Bytes, value: &Bytes) -> Result<(), FormatError> {
        let mut reader = Reader::new("request id record", value);
        reader.version(RECORD_FORMAT_VERSION)?;
        let mark = (reader.u64()?, reader.u64()?);
        let (seen_ms, ordinal, floor_seq, floor_ms) =
            (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let short = FormatError::Short { what: "request id key", at: key.len() };
        let id = key.get(PREFIX.len()..).and_then(|rest| rest.first_chunk::<8>()).ok_or(short)?;
        let client = self.by_id.entry(u64::from_be_bytes(*id)).or_default();
        let slot = (ordinal % WINDOW_LEN as u64) as usize;
        if client.ring.len() <= slot {
            client.ring.resize(slot + 1, (0, 0));
        }
        client.ring[slot] = mark;
        // The newest record says what holds for the client.
        if ordinal >= client.ordinal {
            client.ordinal = ordinal + 1;
            (client.seen_ms, client.floor_seq, client.floor_ms) = (seen_ms, floor_seq, floor_ms);
        }
        Ok(())
    }
}

fn record_key(client: u64, slot: usize) -> Bytes {
    let mut out = Vec::with_capacity(10);
    out.put_slice(PREFIX);
    out.put_u64(client);
    out.put_u8(slot as u8);
    out.into()
}

fn encode_record(request: &RequestId, client: &Client, outcome: &Outcome) -> Bytes {
    let mut out = Vec::with_capacity(96);
    out.put_u8(RECORD_FORMAT_VERSION);
    let ordinal = client.ordinal;
    for field in
        [request.seq, request.first_attempt_ms, client.seen_ms, ordinal, client.floor_seq, client.floor_ms]
    {
        out.put_u64_le(field);
    }
    let head = out.len();
    crate::command::put_outcome(&mut out, outcome);
    if out.len() - head > OUTCOME_BYTES_MAX {
        out.truncate(head);
        crate::command::put_outcome(&mut out, &Outcome::Forgotten);
    }
    out.into()
}

/// The outcome in a request id record.
pub(super) fn remembered_outcome(value: &Bytes) -> Result<Outcome, FormatError> {
    let mut reader = Reader::new("request id record", value);
    reader.version(RECORD_FORMAT_VERSION)?;
    for _ in 0..6 {
        reader.u64()?;
    }
    let outcome = crate::command::read_outcome(&mut reader)?;
    reader.end()?;
    Ok(outcome)
}
