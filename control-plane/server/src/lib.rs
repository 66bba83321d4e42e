//! The four roles that decide and tell, as servers: metadata, cluster control, routing and access.
//!
//! ```text
//!   stores --heartbeat--> control --propose--> meta (Raft group) --watch--> control, router, access
//!                            `--leaders--> router --routes--> SDK;  SDK --discover--> access
//! ```
//! Each role is `Config` + `start(config, shutdown)`; [`embedded`] runs one of each on one listener.
//!
//! Never: data of tables. Decisions are pure and live in `undb-meta`; here is only the I/O around.
//!
//! Where to look: what is true -> `meta`; who decides and does -> `control`; what clients are told
//! -> `router`; where they begin -> `access`; a copy of metadata in a process -> `client`.

pub mod access;
pub mod client;
pub mod control;
pub mod embedded;
mod error;
pub mod meta;
pub mod router;
mod running;
mod sealed;

pub use error::ServerError;
pub use running::Running;
