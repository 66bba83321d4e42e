//! What a shard should do, written as plainly as possible: a map, cloned before each command.

use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use undb_engine::command::*;
use undb_engine::tree::{RecordMeta, Row};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelRow {
    pub value: Bytes,
    pub version: u64,
    pub expire_at_ms: u64,
    pub kind: u32,
}

#[derive(Clone, Debug, Default)]
pub struct Model {
    pub rows: BTreeMap<Bytes, ModelRow>,
    pub now_ms: u64,
    done: HashMap<(u64, u64), Outcome>,
}

impl ModelRow {
    fn record(&self, with_value: bool) -> Record {
        let meta = RecordMeta {
            version: self.version,
            expire_at_ms: self.expire_at_ms,
            kind: self.kind,
            value_len: self.value.len() as u32,
        };
        Record { meta, value: with_value.then(|| self.value.clone()) }
    }

    fn gone(&self, now_ms: u64) -> bool {
        self.expire_at_ms != 0 && self.expire_at_ms <= now_ms
    }
}

impl Model {
    pub fn apply(&mut self, now_ms: u64, ttl_ms: u64, version: u64, commands: &[Command]) -> Vec<Outcome> {
        self.now_ms = self.now_ms.max(now_ms);
        commands.iter().map(|command| self.command(ttl_ms, version, command)).collect()
    }

    fn command(&mut self, ttl_ms: u64, version: u64, command: &Command) -> Outcome {
        let id = command.request.map(|request| (request.client, request.seq));
        if let Some(outcome) = id.and_then(|id| self.done.get(&id)) {
            return outcome.clone();
        }
        let before = self.rows.clone();
        let outcome = match &command.action {
            Action::Tick => Outcome::Done,
            Action::Sweep { limit } => self.sweep(*limit as usize),
            Action::Write(mutations) => self.write(ttl_ms, version, mutations),
        };
        if matches!(outcome, Outcome::Rejected { .. }) {
            self.rows = before;
        }
        if let Some(id) = id {
            self.done.insert(id, outcome.clone());
        }
        outcome
    }

    fn sweep(&mut self, limit: usize) -> Outcome {
        // Of those that expire together, in the order of the index: by the keys' hashes.
        let mut gone: Vec<(u64, u128, Bytes)> = self
            .rows
            .iter()
            .filter(|(_, row)| row.gone(self.now_ms))
            .map(|(key, row)| (row.expire_at_ms, xxhash_rust::xxh3::xxh3_128(key), key.clone()))
            .collect();
        let more = gone.len() > limit;
        gone.sort();
        gone.truncate(limit);
        gone.iter().for_each(|(.., key)| drop(self.rows.remove(key)));
        Outcome::Swept { removed: gone.len() as u32, more }
    }

    pub fn live(&self, now_ms: u64, key: &[u8]) -> Option<&ModelRow> {
        self.rows.get(key).filter(|row| !row.gone(now_ms.max(self.now_ms)))
    }

    pub fn contents(&self, now_ms: u64) -> Vec<Row> {
        let live = self.rows.iter().filter(|(_, row)| !row.gone(now_ms.max(self.now_ms)));
        live.map(|(key, row)| {
            let record = row.record(true);
            Row { key: key.clone(), meta: record.meta, value: record.value }
        })
        .collect()
    }

    fn write(&mut self, ttl_ms: u64, version: u64, mutations: &[Mutation]) -> Outcome {
        for (i, m) in mutations.iter().enumerate() {
            let live = self.live(0, &m.key);
            let holds = match &m.condition {
                None => true,
                Some(Condition::Absent) => live.is_none(),
                Some(Condition::Present) => live.is_some(),
                Some(Condition::Version(version)) => live.map_or(0, |row| row.version) == *version,
                Some(Condition::Value(value)) => live.is_some_and(|row| row.value == value),
            };
            if !holds {
                let current = live.map(|row| row.record(m.return_previous));
                return Outcome::ConditionFailed { failed: i as u32, current };
            }
        }
        let mut results = Vec::new();
        for m in mutations {
            match self.mutate(ttl_ms, version, m) {
                Ok(result) => results.push(result),
                Err((code, message)) => return Outcome::Rejected { code, message: message.into() },
            }
        }
        Outcome::Applied { results }
    }

    fn after(&self, ttl_ms: u64) -> u64 {
        self.now_ms.saturating_add(ttl_ms).max(1)
    }

    fn mutate(
        &mut self,
        ttl_ms: u64,
        version: u64,
        m: &Mutation,
    ) -> Result<MutationResult, (RejectCode, &'static str)> {
        if let Op::DeleteRange { end } = &m.op {
            let inside = |key: &&Bytes| **key >= m.key && (end.is_empty() || *key < end);
            let mut keys: Vec<Bytes> = self.rows.keys().filter(inside).cloned().collect();
            let next = keys.get(REMOVE_LEN_MAX).cloned();
            keys.truncate(REMOVE_LEN_MAX);
            let number = keys.iter().filter(|key| self.live(0, key).is_some()).count() as i64;
            keys.iter().for_each(|key| drop(self.rows.remove(key)));
            return Ok(MutationResult { existed: number > 0, number, next, ..Default::default() });
        }
        let live = self.live(0, &m.key).cloned();
        let default = if ttl_ms == 0 { 0 } else { self.after(ttl_ms) };
        let mut result = MutationResult { existed: live.is_some(), ..Default::default() };
        if m.return_previous {
            result.previous = live.as_ref().map(|row| row.record(true));
        }
        let next = match &m.op {
            Op::Check => {
                result.version = live.map_or(0, |row| row.version);
                return Ok(result);
            }
            Op::Delete | Op::DeleteRange { .. } => None,
            Op::Put { value, kind, expiry } => {
                let expire_at_ms = match expiry {
                    Expiry::TtlMs(ms) => self.after(*ms),
                    Expiry::AtMs(ms) => (*ms).max(1),
                    Expiry::Keep => live.map_or(default, |row| row.expire_at_ms),
                    Expiry::Default => default,
                };
                Some(ModelRow { value: value.clone(), version, expire_at_ms, kind: *kind })
            }
            Op::Increment { by, initial, ttl_ms } => {
                let created = if *ttl_ms == 0 { default } else { self.after(*ttl_ms) };
                let (number, expire_at_ms) = match &live {
                    None => (*initial, created),
                    Some(row) if row.kind != 0 => {
                        return Err((RejectCode::WrongKind, "the record is not a plain value"));
                    }
                    Some(row) => {
                        let text = String::from_utf8_lossy(&row.value).into_owned();
                        match text.parse::<i64>() {
                            Ok(number) if number.to_string() == text => (number, row.expire_at_ms),
                            _ => {
                                let message = "the value is not an integer of 64 bits in decimal";
                                return Err((RejectCode::NotAnInteger, message));
                            }
                        }
                    }
                };
                let message = "the sum does not fit an integer of 64 bits";
                result.number = number.checked_add(*by).ok_or((RejectCode::Overflow, message))?;
                let value = Bytes::from(result.number.to_string());
                Some(ModelRow { value, version, expire_at_ms, kind: 0 })
            }
            Op::SetExpiry(expiry) => live.map(|row| {
                let expire_at_ms = match expiry {
                    NewExpiry::Never => 0,
                    NewExpiry::TtlMs(ms) => self.after(*ms),
                    NewExpiry::AtMs(ms) => (*ms).max(1),
                };
                ModelRow { version, expire_at_ms, ..row }
            }),
        };
        match next.filter(|row| !row.gone(self.now_ms)) {
            Some(row) => {
                result.version = row.version;
                self.rows.insert(m.key.clone(), row);
            }
            None => drop(self.rows.remove(&m.key)),
        }
        Ok(result)
    }
}
