//! What every process of UNDB is made of, apart from what it does: configuration, telemetry,
//! named tasks, an orderly end, time, admin endpoints and connections, with TLS where it is asked for.
//!
//! Never: anything about tables, shards or stores.
//!
//! A server reads top-down like this:
//! ```text
//! let config: Config = config::load(path)?;          // unknown fields are refused
//! telemetry::init(Format::Text, "info")?;
//! let shutdown = Shutdown::on_signals(config.grace);  // SIGTERM, SIGINT; twice: at once
//! let tasks = Tasks::new(shutdown.clone());
//! let listener = rpc::bind(&config.listen).await?;    // says what to do when the port is taken
//! tasks.spawn_critical("rpc", rpc::serve(listener, routes, shutdown.clone()));
//! tasks.join().await?;                                // the first failure, by name
//! ```
//!
//! Where to look: an order of ending -> `shutdown`; a lost task -> `tasks`; a metric -> `admin`;
//! a connection that does not heal -> `rpc::channel`; a certificate -> `tls`.

pub mod admin;
pub mod backoff;
mod clock;
pub mod config;
mod credentials;
mod error;
pub mod rpc;
mod shutdown;
mod tasks;
pub mod telemetry;
pub mod tls;
mod token;

pub use backoff::Backoff;
pub use clock::Clock;
pub use credentials::{Credentials, InternalCheck};
pub use error::RuntimeError;
pub use shutdown::Shutdown;
pub use tasks::{TaskFailure, Tasks};
pub use tls::{Tls, TlsFiles, TlsOptions, TlsPem};
pub use token::{Bearer, TokenCheck, read_token_file};
