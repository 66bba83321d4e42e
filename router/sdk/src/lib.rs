//! The client of UNDB.
//!
//! **What it does.** Finds a cluster at any access address, keeps routes, sends each operation to the
//! leader of the right shard, retries what may be retried, and answers with a typed result. A write
//! carries a request id, so that it happens exactly once however often it is sent; where the outcome
//! cannot be known the error is [`Error::Ambiguous`].
//!
//! **What it never does.** It decides nothing about data: no caching of values, no conflict resolution.
//!
//! ```text
//! Client ── Discover ──> access         Table ── locate(key) ──> routes (memory, last good on disk)
//!        ── Subscribe ─> router           └───── invoke: pick replica, attempt, decide, again
//!                                                   └── Session: one gRPC stream a store, batched
//! ```
//!
//! **Invariants.** Routes never go back to a lower incarnation or epoch; an update with a hole keeps the
//! last good one. A write is sent again only under the same request id. Of one request-id lane at most
//! [`LANE_AHEAD_MAX`] newer writes are outstanding beside the oldest, so a store's window always holds
//! what may still be asked about.
//!
//! **Where to start.** [`Client::connect`], [`Table`]; inside: `invoke.rs`, then `retry.rs` (pure) and
//! `route/table.rs` (pure).
//!
//! ```no_run
//! use undb_sdk::{Batch, Client, Expect, Mutation, Options, PutOptions};
//! # async fn example() -> Result<(), undb_sdk::Error> {
//! let client = Client::connect(Options::new(["127.0.0.1:7380"])).await?;
//! let users = client.table("default").await?;
//!
//! users.put("greeting", "hello").await?;
//! let record = users.get("greeting").await?.expect("just written");
//! assert_eq!(&record.value[..], b"hello");
//!
//! // A lost race is an ordinary outcome, not an error.
//! let swapped = users.compare_and_set("greeting", Expect::Version(record.version), "hi").await?;
//! assert!(swapped.is_applied());
//!
//! // All keys with one hash key live in one shard, so a batch on them is atomic.
//! users
//!     .write(
//!         Batch::new()
//!             .and(Mutation::put(("user:1", "name"), "Ada").when(Expect::Absent))
//!             .and(Mutation::increment(("user:1", "visits"), 1)),
//!     )
//!     .await?;
//!
//! // A lock that frees itself.
//! let lock = PutOptions::new().if_absent().ttl(std::time::Duration::from_secs(30));
//! let mine = users.put_with("lock", "me", lock).await?.is_applied();
//! # let _ = mine;
//! # Ok(()) }
//! ```

mod admin;
mod client;
mod error;
mod invoke;
mod lane;
mod many;
mod op;
mod options;
mod retry;
mod route;
mod scan;
mod session;
mod table;

pub use admin::{Admin, ApplyOutcome};
pub use client::Client;
pub use error::{Error, Kind};
pub use lane::LANE_AHEAD_MAX;
pub use op::{Batch, Change, Expect, Expiry, Key, Mutation, PutOptions, Record, WriteOutcome};
pub use options::{Options, Timeouts};
pub use scan::{Scan, ScanOptions, Span};
pub use table::{IncrementOptions, Table, Ttl};
pub use undb_proto::v1::ErrorCode;
pub use undb_runtime::{TlsFiles, TlsOptions, TlsPem};
pub use undb_types::Partitioning;

/// What a result of this crate is.
pub type Result<T, E = Error> = std::result::Result<T, E>;
