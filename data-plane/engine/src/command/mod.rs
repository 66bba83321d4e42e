//! What a shard's log entries say, and what applying them answers: types and their binary formats.
//!
//! ```text
//! leader:   several clients' commands --encode--> one entry's payload --raft--> every replica's log
//! replica:  payload --decode--> commands + the place of each value record --Shard::apply--> outcomes
//! ```
//! Both formats begin with a version byte and are fixed by golden files in `tests/golden`. Decoding
//! never panics: whatever the bytes, the answer is a value or a `FormatError`.

mod decode;
mod encode;
mod outcome;
mod wire;

use bytes::Bytes;

pub use decode::{Decoded, DecodedCommand, decode};
pub use encode::{FORMAT_VERSION, encode, encoded_len};
pub use outcome::{
    MutationResult, OUTCOMES_FORMAT_VERSION, Outcome, Outcomes, Record, RejectCode, decode_outcomes,
    encode_outcomes,
};
pub(crate) use outcome::{put_outcome, read_outcome};
pub use wire::FormatError;
pub(crate) use wire::{Reader, put_bytes};

/// Most records that one delete-range or sweep command removes.
pub const REMOVE_LEN_MAX: usize = 1000;

/// What the leader says about a whole entry: what replicas must not decide by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryHeader {
    /// The leader's clock, in ms since 1970. The replicated time never goes back behind it.
    pub now_ms: u64,
    /// The table's default TTL as the leader knows it; 0: records live for ever by default. It travels
    /// in the entry because replicas learn of a changed table at different times.
    pub default_ttl_ms: u64,
}

/// Names one logical write over all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// The client; never 0.
    pub client: u64,
    /// The client's own count of its writes.
    pub seq: u64,
    /// The client's clock at the first attempt, in ms since 1970.
    pub first_attempt_ms: u64,
}

/// One client's request, or one of the leader's own; atomic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Deduplicates it; none: an attempt more is an effect more.
    pub request: Option<RequestId>,
    /// What it does.
    pub action: Action,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// All of these, or none when a condition does not hold.
    Write(Vec<Mutation>),
    /// Nothing but moving the replicated time to the entry's.
    Tick,
    /// Removes up to `limit` (at most `REMOVE_LEN_MAX`) records that the replicated time has expired. Works
    /// by the index as of before the entry, so it should be the entry's only command.
    Sweep {
        /// Most records to remove.
        limit: u32,
    },
}

/// One change of one key (delete-range: of the keys from `key` on).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Encoded key.
    pub key: Bytes,
    /// Must hold for the command to be applied.
    pub condition: Option<Condition>,
    /// The answer carries the record that was there before.
    pub return_previous: bool,
    /// The change.
    pub op: Op,
}

/// What must be true of the live record of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is none.
    Absent,
    /// There is one.
    Present,
    /// It has this version; 0: there is none.
    Version(u64),
    /// It has this value.
    Value(Bytes),
}

/// When a record that is put expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// By the entry's default TTL.
    Default,
    /// This long after the entry's replicated time.
    TtlMs(u64),
    /// As the record that it replaces; when there is none, as `Default`.
    Keep,
    /// At this time; at or before the replicated time: the record is removed.
    AtMs(u64),
}

/// The new expiry of an existing record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewExpiry {
    /// It never expires.
    Never,
    /// This long after the entry's replicated time.
    TtlMs(u64),
    /// At this time; at or before the replicated time: the record is removed.
    AtMs(u64),
}

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes the record.
    Put {
        /// Its value.
        value: Bytes,
        /// 0: a plain value; others belong to a proxy's data model.
        kind: u32,
        /// When it expires.
        expiry: Expiry,
    },
    /// Removes the record.
    Delete,
    /// Adds to a value that is an i64 in decimal.
    Increment {
        /// What is added.
        by: i64,
        /// What an absent record counts as.
        initial: i64,
        /// TTL of a record that this creates; 0: the entry's default.
        ttl_ms: u64,
    },
    /// Changes when the record expires; an absent record stays absent.
    SetExpiry(NewExpiry),
    /// Removes up to `REMOVE_LEN_MAX` records from the mutation's key on; must be alone.
    DeleteRange {
        /// First key that stays; empty: no bound.
        end: Bytes,
    },
    /// Nothing: only the condition.
    Check,
}

impl Command {
    /// A write that is not deduplicated.
    pub fn write(mutations: Vec<Mutation>) -> Self {
        Self { request: None, action: Action::Write(mutations) }
    }

    /// Moves the replicated time.
    pub fn tick() -> Self {
        Self { request: None, action: Action::Tick }
    }

    /// Removes expired records.
    pub fn sweep() -> Self {
        Self { request: None, action: Action::Sweep { limit: REMOVE_LEN_MAX as u32 } }
    }
}

impl Mutation {
    /// An unconditional change.
    pub fn new(key: impl Into<Bytes>, op: Op) -> Self {
        Self { key: key.into(), condition: None, return_previous: false, op }
    }

    /// A plain put.
    pub fn put(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self::new(key, Op::Put { value: value.into(), kind: 0, expiry: Expiry::Default })
    }

    /// The same with a condition.
    pub fn when(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// The same, answering the record that was there before.
    pub fn with_previous(mut self) -> Self {
        self.return_previous = true;
        self
    }
}
