//! Real processes: a cluster of separate roles, or `undb dev`, in a directory of its own; killed and
//! started at will; gone when the harness is.

mod cluster;
mod dev;
mod process;
mod roles;
mod table;

pub use cluster::{Cluster, Shape};
pub use dev::Dev;
pub use process::{Process, Ready, free_port};
pub use table::{apply, wait_for_table};

use std::path::PathBuf;

/// Why a case could not go on. What a case was looking for is not an error but its verdict.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The file system or a process call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A process did not get ready, or ended.
    #[error("{name} {problem}; the end of {log}:\n{tail}", log = log.display())]
    Process {
        /// Which.
        name: String,
        /// What happened.
        problem: String,
        /// Its log.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },
    /// The cluster answered something that a case cannot go on with.
    #[error("{what}: {source}")]
    Client {
        /// What was asked.
        what: String,
        /// What it answered.
        source: Box<undb_sdk::Error>,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// The harness's result.
pub type Result<T, E = HarnessError> = std::result::Result<T, E>;

impl HarnessError {
    /// An I/O error with what was being done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| HarnessError::Io { what, source }
    }

    /// An error of the SDK with what was being asked.
    pub fn client(what: impl Into<String>) -> impl FnOnce(undb_sdk::Error) -> Self {
        let what = what.into();
        move |source| HarnessError::Client { what, source: Box::new(source) }
    }
}

/// The `undb` binary: `UNDB_BIN`, or beside this one.
pub fn binary() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("UNDB_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().map_err(HarnessError::io("finding this program"))?;
    let path = own.with_file_name("undb");
    if path.is_file() {
        return Ok(path);
    }
    let path = path.display();
    Err(HarnessError::Other(format!("{path} is missing: run `cargo build --release`, or set UNDB_BIN")))
}
