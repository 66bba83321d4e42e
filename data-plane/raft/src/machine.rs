//! What a group drives: the replicated state, behind one object-safe trait.

use bytes::Bytes;
use std::io;
use undb_log::EntryLocation;
use undb_types::LogId;

/// The replicated state of one group.
///
/// All calls are synchronous and come one at a time, from threads that may block. An error from
/// `applied`, `apply` or `snapshot` is fatal for the group: it stops, and its status says why.
pub trait Machine: Send + Sync + 'static {
    /// The last entry that the state reflects, and the membership as of it (empty: none yet). After
    /// a restart entries from the next one on are applied again, so this must be what is *there*,
    /// not what once was in memory.
    fn applied(&self) -> io::Result<(Option<LogId>, Bytes)>;

    /// Applies committed entries, in order and without a gap; one response per entry.
    fn apply(&self, entries: Vec<Committed>) -> io::Result<Vec<Bytes>>;

    /// A view of the state that costs O(1): a position that is durable here, and a pin.
    fn snapshot(&self) -> io::Result<Box<dyn SnapshotSource>>;

    /// Replaces the state by a snapshot whose chunks arrive while this runs. When a chunk is an
    /// error the transfer broke: return it and keep the old state, whole. After `Ok` the new state
    /// is durable.
    fn install(
        &self,
        log_id: Option<LogId>,
        membership: Bytes,
        chunks: &mut dyn Iterator<Item = io::Result<Bytes>>,
    ) -> io::Result<()>;
}

/// A snapshot being read. Dropping it releases what it pins.
pub trait SnapshotSource: Send {
    /// The last entry that the snapshot reflects.
    fn log_id(&self) -> Option<LogId>;
    /// The membership as of that entry, in the encoding that `Body::Membership` had.
    fn membership(&self) -> Bytes;
    /// The next piece, at most a few MiB; `None` after the last. May block.
    fn next_chunk(&mut self) -> io::Result<Option<Bytes>>;
}

/// A committed entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its position.
    pub id: LogId,
    /// What it says.
    pub body: Body,
    /// Where the command's first byte lies in this store's log; `None` for other bodies, and for an
    /// entry that the log no longer locates.
    pub at: Option<EntryLocation>,
}

/// What a committed entry says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Nothing: a new leader's first entry.
    Blank,
    /// A command, as proposed.
    Command(Bytes),
    /// A membership, opaque: keep the newest and hand it back from `Machine::applied`.
    Membership(Bytes),
}
