//! What a load can be put on.

use bytes::Bytes;
use futures::future::BoxFuture;

/// Why a request failed, in its target's words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TargetError(pub String);

/// A store of keys. Writes answer when they are durable.
pub trait Target: Send + Sync + 'static {
    /// The value's length, if there is one.
    fn read(&self, key: Bytes) -> BoxFuture<'_, Result<Option<usize>, TargetError>>;

    /// Writes.
    fn write(&self, key: Bytes, value: Bytes) -> BoxFuture<'_, Result<(), TargetError>>;

    /// Bytes of the file system and of memory, where the target counts them; before and after a run.
    fn counters(&self) -> BoxFuture<'_, Result<Option<crate::Counters>, TargetError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}
