//! The machine's own small state, which travels with every batch and every snapshot.
//!
//! ```text
//! version u8 = 1 | now_ms u64 | forgotten_ms u64 | keys u64 | bytes u64 | timed_keys u64
//! ```

use crate::command::{FormatError, Reader};
use bytes::{BufMut, Bytes};

const STATE_FORMAT_VERSION: u8 = 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The replicated time.
    pub now_ms: u64,
    /// The eviction watermark: the latest first attempt of any client that was forgotten.
    pub forgotten_ms: u64,
    /// Records in the tree.
    pub keys: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Of them, records with an expiry.
    pub timed_keys: u64,
}

impl State {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(41);
        out.put_u8(STATE_FORMAT_VERSION);
        for field in [self.now_ms, self.forgotten_ms, self.keys, self.bytes, self.timed_keys] {
            out.put_u64_le(field);
        }
        out.into()
    }

    /// Empty bytes are the state of a new shard.
    pub(super) fn decode(bytes: &Bytes) -> Result<State, FormatError> {
        if bytes.is_empty() {
            return Ok(State::default());
        }
        let mut reader = Reader::new("shard state", bytes);
        reader.version(STATE_FORMAT_VERSION)?;
        let state = State {
            now_ms: reader.u64()?,
            forgotten_ms: reader.u64()?,
            keys: reader.u64()?,
            bytes: reader.u64()?,
            timed_keys: reader.u64()?,
        };
        reader.end()?;
        Ok(state)
    }
}
