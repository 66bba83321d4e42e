//! Many Raft groups on one log, over long-lived streams between stores.
//!
//! **What**: a [`Host`] opens [`Group`]s; each replicates opaque commands to a [`Machine`]. Messages of
//! all groups to one store share a few connections.
//! **Not**: what a command means, where replicas should be, when to purge.
//!
//! ```text
//!  propose ──► Group ──► openraft ──► GroupLog ──► undb-log (one fsync for many groups)
//!                          │   ▲
//!                          │   └── StateMachine ──► Machine::apply (entry + where it lies in the log)
//!                          └── Network ──► Peers: one link a store and lane ══ gRPC ══► Service ──► Group
//! ```
//!
//! Invariants:
//! - openraft hears that an append is flushed from the log's callback after the sync, and from nowhere
//!   else; votes are durable when `save_vote` returns.
//! - A command's bytes are in the log unchanged: `Log::locate(index)` is the command's place.
//! - A request of another cluster or for another store is refused before any group sees it.
//! - A replica that comes back gives no vote until the lease it may have backed is over.
//! - purge floor <= snapshot position <= applied, always.
//!
//! Where to start: `host.rs`, then `group.rs`; the wire is in `codec.rs` and `transport/`.

// The tests' machine names this crate as others do.
#[cfg(test)]
extern crate self as undb_raft;

mod codec;
mod config;
mod error;
mod group;
mod host;
mod kinds;
mod machine;
mod members;
mod room;
mod state_machine;
mod status;
mod storage;
mod transport;

pub use config::{AddressBook, HostOptions, LastKnown, Timing};
pub use error::RaftError;
pub use group::{Barrier, Group};
pub use host::Host;
pub use kinds::Member;
pub use machine::{Body, Committed, Machine, SnapshotSource};
pub use status::{GroupStatus, GroupWatch, PeerStatus};
pub use transport::Service;
