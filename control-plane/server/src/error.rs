//! Why a server does not start, or what a call to another role ended with.

use std::path::PathBuf;
use undb_proto::v1;

/// An error of a role. Each message that a person sees ends with a next step.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// From the shell around every process.
    #[error(transparent)]
    Runtime(#[from] undb_runtime::RuntimeError),
    /// The configuration holds a value that cannot work.
    #[error("{field}: {problem}")]
    Config { field: &'static str, problem: String },
    /// The directory belongs to another cluster or another member.
    #[error("directory {} belongs to {found}, not to {wanted}; give this member its own directory", dir.display())]
    OtherDirectory { dir: PathBuf, found: String, wanted: String },
    /// Another process uses the directory.
    #[error("directory {} is in use ({holder}); stop that process or choose another directory", dir.display())]
    DirectoryInUse { dir: PathBuf, holder: String },
    /// Written by a newer build.
    #[error("{} has format version {found}, this build reads up to {supported}; start the build that wrote it, or a newer one", path.display())]
    NewerFormat { path: PathBuf, found: u32, supported: u32 },
    /// A file that should be readable is not what it should be.
    #[error("{} is damaged: {problem}; move the directory away and let the member catch up from the others", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// The disk.
    #[error("{what} in {}: {source}; check the path, its permissions and the space left", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    /// The log.
    #[error("{0}")]
    Log(String),
    /// The Raft group.
    #[error("the metadata group: {0}")]
    Raft(#[from] undb_raft::RaftError),
}

/// A call that another role refused, or that reached nobody.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The callee's own answer.
    #[error("{}", .0.message)]
    Refused(v1::Error),
    /// Nobody answered in time; the call may have been done.
    #[error("{0}")]
    Unavailable(String),
}

impl CallError {
    /// The code to act on.
    pub fn code(&self) -> v1::ErrorCode {
        match self {
            Self::Refused(error) => error.code(),
            Self::Unavailable(_) => v1::ErrorCode::Unavailable,
        }
    }
}

impl From<CallError> for v1::Error {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(error) => error,
            CallError::Unavailable(message) => undb_proto::wire_error(v1::ErrorCode::Unavailable, message),
        }
    }
}
