//! Conversions between wire messages and the words.

use crate::v1;
use undb_types::{Epoch, KeyRange};

impl From<Epoch> for v1::Epoch {
    fn from(e: Epoch) -> Self {
        Self { version: e.version, conf: e.conf }
    }
}

impl From<v1::Epoch> for Epoch {
    fn from(e: v1::Epoch) -> Self {
        Self { version: e.version, conf: e.conf }
    }
}

impl From<KeyRange> for v1::KeyRange {
    fn from(r: KeyRange) -> Self {
        Self { start: r.start, end: r.end }
    }
}

impl From<v1::KeyRange> for KeyRange {
    fn from(r: v1::KeyRange) -> Self {
        Self { start: r.start, end: r.end }
    }
}

/// An error with a code and a message and nothing else; callers fill in the hints they have.
pub fn wire_error(code: v1::ErrorCode, message: impl Into<String>) -> v1::Error {
    v1::Error { code: code as i32, message: message.into(), ..Default::default() }
}

/// What a caller does about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Ask somebody else: refresh the route.
    Redirect,
    /// The same call may succeed later.
    Retry,
    /// It may have been applied.
    Unknown,
    /// The same call will fail again.
    Reject,
    /// A person must act.
    Fatal,
}

impl v1::ErrorCode {
    /// The class that decides a caller's behaviour; the numbers of the codes are grouped by it.
    pub fn kind(self) -> ErrorKind {
        match self as i32 {
            1..=19 => ErrorKind::Redirect,
            20..=39 => ErrorKind::Retry,
            40..=59 => ErrorKind::Unknown,
            60..=89 => ErrorKind::Reject,
            _ => ErrorKind::Fatal,
        }
    }
}
