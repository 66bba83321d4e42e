//! Running one entry's commands against the overlay.

use super::batch::{SystemChanges, batch};
use super::clients::{CLOCK_AHEAD_MS_MAX, Clients, Seen, remembered_outcome};
use super::expiry;
use super::overlay::{Current, Overlay, Slot, Value};
use super::state::State;
use super::{Result, ShardError};
use crate::command::{
    Action, Condition, DecodedCommand, Expiry, Mutation, MutationResult, NewExpiry, Op, Outcome,
    REMOVE_LEN_MAX, Record, RejectCode, RequestId,
};
use crate::error::EngineError;
use crate::tree::{RecordMeta, TREE_KEY_BYTES_MAX, Tree, TreeBatch, ValueAt};
use bytes::Bytes;
use undb_types::{BATCH_LEN_MAX, KeyRange, VALUE_BYTES_MAX};

/// One entry being applied.
pub(super) struct Run<'a> {
    pub tree: &'a dyn Tree,
    pub state: &'a mut State,
    pub clients: &'a mut Clients,
    /// Of every record that the entry writes.
    pub version: u64,
    pub default_ttl_ms: u64,
    pub at: Option<ValueAt>,
    pub overlay: Overlay,
    pub system: SystemChanges,
}

/// Why a mutation stops its command.
enum Stop {
    Reject(RejectCode, String),
    Fail(ShardError),
}

impl<E: Into<ShardError>> From<E> for Stop {
    fn from(e: E) -> Self {
        Stop::Fail(e.into())
    }
}

fn reject<T>(code: RejectCode, message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Reject(code, message.into()))
}

impl Run<'_> {
    pub(super) fn expire_clients(&mut self) {
        self.clients.expire(self.state, &mut self.system);
    }

    pub(super) fn into_batch(self) -> TreeBatch {
        batch(self.overlay.into_slots(), self.system, self.state)
    }

    /// Runs a command, unless an attempt before did.
    pub(super) fn command(&mut self, command: DecodedCommand) -> Result<Outcome> {
        let DecodedCommand { command, records } = command;
        if let Some(request) = &command.request {
            if request.first_attempt_ms > self.state.now_ms.saturating_add(CLOCK_AHEAD_MS_MAX) {
                let ahead_s = (request.first_attempt_ms - self.state.now_ms) / 1000;
                let message =
                    format!("the client's clock is {ahead_s} s ahead of the store's; set one of them right");
                return Ok(Outcome::Rejected { code: RejectCode::ClockAhead, message });
            }
            match self.clients.seen(request, self.state) {
                Seen::Never => {}
                Seen::Before(key) => return self.remembered(&key),
                Seen::TooOld { watermark_ms } => return Ok(Outcome::TooOld { watermark_ms }),
            }
        }
        let outcome = match command.action {
            Action::Tick => Outcome::Done,
            Action::Sweep { limit } => self.sweep(limit)?,
            Action::Write(mutations) => self.write(&mutations, &records)?,
        };
        if let Some(request) = &command.request {
            self.remember(request, &outcome);
        }
        Ok(outcome)
    }

    fn remember(&mut self, request: &RequestId, outcome: &Outcome) {
        self.clients.remember(request, outcome, self.state, &mut self.system);
    }

    fn remembered(&self, key: &Bytes) -> Result<Outcome> {
        let value = match self.system.get(key) {
            Some(value) => value.clone(),
            None => self.tree.system(key)?,
        };
        match value {
            Some(value) => Ok(remembered_outcome(&value)?),
            None => Err(EngineError::corrupt("tree", "the record of a remembered request is missing").into()),
        }
    }

    fn write(&mut self, mutations: &[Mutation], records: &[Option<u32>]) -> Result<Outcome> {
        match self.try_write(mutations, records) {
            Ok(outcome) => {
                self.overlay.commit();
                Ok(outcome)
            }
            Err(Stop::Reject(code, message)) => {
                self.overlay.abort();
                Ok(Outcome::Rejected { code, message })
            }
            Err(Stop::Fail(e)) => Err(e),
        }
    }

    fn try_write(&mut self, mutations: &[Mutation], records: &[Option<u32>]) -> Result<Outcome, Stop> {
        check_shape(mutations)?;
        // All conditions speak of the state before the command.
        for (i, mutation) in mutations.iter().enumerate() {
            let Some(condition) = &mutation.condition else { continue };
            let slot = self.overlay.load(self.tree, &mutation.key)?;
            if !self.holds(&mutation.key, &slot, condition)? {
                let current = match slot.live(self.state.now_ms) {
                    Some(current) => Some(self.record(&mutation.key, current, mutation.return_previous)?),
                    None => None,
                };
                return Ok(Outcome::ConditionFailed { failed: i as u32, current });
            }
        }
        let mut results = Vec::with_capacity(mutations.len());
        for (i, mutation) in mutations.iter().enumerate() {
            let at = match (self.at, records.get(i)) {
                (Some(at), Some(Some(place))) => {
                    Some(ValueAt { segment: at.segment, offset: at.offset + u64::from(*place) })
                }
                _ => None,
            };
            results.push(self.mutate(mutation, at)?);
        }
        Ok(Outcome::Applied { results })
    }

    fn holds(&self, key: &Bytes, slot: &Slot, condition: &Condition) -> Result<bool, Stop> {
        let live = slot.live(self.state.now_ms);
        Ok(match condition {
            Condition::Absent => live.is_none(),
            Condition::Present => live.is_some(),
            Condition::Version(version) => live.map_or(0, |current| current.meta.version) == *version,
            Condition::Value(value) => match live {
                Some(current) if current.meta.value_len as usize == value.len() => {
                    self.overlay.value(self.tree, key, current)? == value
                }
                _ => false,
            },
        })
    }

    fn record(&self, key: &Bytes, current: &Current, with_value: bool) -> Result<Record, Stop> {
        let value = if with_value { Some(self.overlay.value(self.tree, key, current)?) } else { None };
        Ok(Record { meta: current.meta, value })
    }

    fn mutate(&mut self, mutation: &Mutation, at: Option<ValueAt>) -> Result<MutationResult, Stop> {
        let key = &mutation.key;
        let slot = self.overlay.load(self.tree, key)?;
        let live = slot.live(self.state.now_ms).cloned();
        let mut result = MutationResult { existed: live.is_some(), ..Default::default() };
        if let (true, Some(current)) = (mutation.return_previous, &live) {
            result.previous = Some(self.record(key, current, true)?);
        }
        let next = match &mutation.op {
            Op::Check => {
                result.version = live.map_or(0, |current| current.meta.version);
                return Ok(result);
            }
            Op::DeleteRange { end } => return self.delete_range(key, end),
            Op::Delete => None,
            Op::Put { value, kind, expiry } => self.put(value, *kind, *expiry, live.as_ref(), at),
            Op::Increment { by, initial, ttl_ms } => {
                let (number, next) = self.increment(key, live.as_ref(), *by, *initial, *ttl_ms)?;
                result.number = number;
                Some(next)
            }
            Op::SetExpiry(expiry) => live.map(|current| self.set_expiry(current, *expiry)),
        };
        // An expiry that has passed already: there is no record.
        let next = next.filter(|current| !expiry::expired(current.meta.expire_at_ms, self.state.now_ms));
        result.version = next.as_ref().map_or(0, |current| current.meta.version);
        self.overlay.set(key.clone(), Slot { stored: slot.stored, current: next });
        Ok(result)
    }

    fn put(
        &self,
        value: &Bytes,
        kind: u32,
        expiry: Expiry,
        live: Option<&Current>,
        at: Option<ValueAt>,
    ) -> Option<Current> {
        let expire_at_ms = match (expiry, live) {
            (Expiry::TtlMs(ttl_ms), _) => self.after(ttl_ms),
            (Expiry::AtMs(at_ms), _) => at_ms.max(1),
            (Expiry::Keep, Some(current)) => current.meta.expire_at_ms,
            (Expiry::Keep | Expiry::Default, _) => self.default_expiry(),
        };
        let meta = RecordMeta { version: self.version, expire_at_ms, kind, value_len: value.len() as u32 };
        Some(Current { meta, value: Value::New(value.clone(), at) })
    }

    fn increment(
        &self,
        key: &Bytes,
        live: Option<&Current>,
        by: i64,
        initial: i64,
        ttl_ms: u64,
    ) -> Result<(i64, Current), Stop> {
        let (before, expire_at_ms) = match live {
            Some(current) if current.meta.kind != 0 => {
                return reject(RejectCode::WrongKind, "the record is not a plain value");
            }
            Some(current) => match parse_number(&self.overlay.value(self.tree, key, current)?) {
                Some(number) => (number, current.meta.expire_at_ms),
                None => {
                    return reject(
                        RejectCode::NotAnInteger,
                        "the value is not an integer of 64 bits in decimal",
                    );
                }
            },
            None if ttl_ms != 0 => (initial, self.after(ttl_ms)),
            None => (initial, self.default_expiry()),
        };
        let Some(number) = before.checked_add(by) else {
            return reject(RejectCode::Overflow, "the sum does not fit an integer of 64 bits");
        };
        let text = Bytes::from(number.to_string());
        let meta = RecordMeta { version: self.version, expire_at_ms, kind: 0, value_len: text.len() as u32 };
        Ok((number, Current { meta, value: Value::New(text, None) }))
    }

    fn set_expiry(&self, current: Current, expiry: NewExpiry) -> Current {
        let expire_at_ms = match expiry {
            NewExpiry::Never => 0,
            NewExpiry::TtlMs(ttl_ms) => self.after(ttl_ms),
            NewExpiry::AtMs(at_ms) => at_ms.max(1),
        };
        Current { meta: RecordMeta { version: self.version, expire_at_ms, ..current.meta }, ..current }
    }

    fn after(&self, ttl_ms: u64) -> u64 {
        self.state.now_ms.saturating_add(ttl_ms).max(1)
    }

    fn default_expiry(&self) -> u64 {
        if self.default_ttl_ms == 0 { 0 } else { self.after(self.default_ttl_ms) }
    }

    fn delete_range(&mut self, start: &Bytes, end: &Bytes) -> Result<MutationResult, Stop> {
        let range = KeyRange { start: start.clone(), end: end.clone() };
        if range.is_empty() {
            return Ok(MutationResult::default());
        }
        let mut keys = self.overlay.keys(self.tree, &range, REMOVE_LEN_MAX + 1)?;
        let next = keys.get(REMOVE_LEN_MAX).cloned();
        keys.truncate(REMOVE_LEN_MAX);
        let mut result = MutationResult { next, ..Default::default() };
        for key in keys {
            let slot = self.overlay.load(self.tree, &key)?;
            result.number += i64::from(slot.live(self.state.now_ms).is_some());
            self.overlay.set(key, Slot { stored: slot.stored, current: None });
        }
        result.existed = result.number > 0;
        Ok(result)
    }

    fn sweep(&mut self, limit: u32) -> Result<Outcome> {
        let limit = (limit as usize).min(REMOVE_LEN_MAX);
        let page = self.tree.scan_system(expiry::PREFIX, None, limit + 1)?;
        let mut removed = 0;
        let mut more = false;
        for (i, (index_key, key)) in page.into_iter().enumerate() {
            let expire_at_ms = expiry::expire_at_ms(&index_key)?;
            if !expiry::expired(expire_at_ms, self.state.now_ms) {
                break;
            }
            if i == limit {
                more = true;
                break;
            }
            let slot = self.overlay.load(self.tree, &key)?;
            if slot.current.as_ref().is_some_and(|current| current.meta.expire_at_ms == expire_at_ms) {
                self.overlay.set(key, Slot { stored: slot.stored, current: None });
                removed += 1;
            } else if slot.stored.is_none_or(|meta| meta.expire_at_ms != expire_at_ms) {
                // It points at nothing; the record it was made for is gone.
                self.system.insert(index_key, None);
            }
        }
        self.overlay.commit();
        Ok(Outcome::Swept { removed, more })
    }
}

fn check_shape(mutations: &[Mutation]) -> Result<(), Stop> {
    if mutations.len() > BATCH_LEN_MAX {
        return reject(
            RejectCode::TooLarge,
            format!("{} mutations in one batch; at most {BATCH_LEN_MAX}", mutations.len()),
        );
    }
    for mutation in mutations {
        let len = mutation.key.len();
        let range = matches!(mutation.op, Op::DeleteRange { .. });
        if range && mutations.len() > 1 {
            return reject(RejectCode::Invalid, "a delete-range must be alone in its request");
        }
        if len > TREE_KEY_BYTES_MAX {
            let message = format!("encoded key of {len} bytes; at most {TREE_KEY_BYTES_MAX}");
            return reject(RejectCode::TooLarge, message);
        }
        if len == 0 && !range {
            return reject(RejectCode::Invalid, "the encoded key is empty");
        }
        if let Op::Put { value, .. } = &mutation.op
            && value.len() > VALUE_BYTES_MAX
        {
            let message = format!("value of {} bytes; at most {VALUE_BYTES_MAX}", value.len());
            return reject(RejectCode::TooLarge, message);
        }
    }
    Ok(())
}

/// An i64 in the one way that it is written: no plus, no spaces, no leading zeros.
fn parse_number(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}
