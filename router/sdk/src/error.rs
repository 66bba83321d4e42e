//! What can go wrong, by what the caller does about it.

use std::time::Duration;
use undb_proto::v1::{self, ErrorCode};

pub use undb_proto::ErrorKind as Kind;

/// Why a call did not answer. A condition that did not hold is not an error but an outcome.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The write may or may not have been applied, and asking again cannot tell. Read before deciding.
    #[error("outcome unknown, the write may have been applied: {reason}")]
    Ambiguous {
        /// What kept the answer away.
        reason: String,
    },
    /// Time ran out and nothing was changed.
    #[error("no answer within {waited:?}: {last}")]
    DeadlineExceeded {
        /// The whole call's time.
        waited: Duration,
        /// What the last attempt ran into.
        last: String,
    },
    /// No access address or router answered.
    #[error("cannot reach any of {addresses:?}: {cause}")]
    Unreachable {
        /// Those that were tried.
        addresses: Vec<String>,
        /// What the last one said.
        cause: String,
    },
    /// There is no such table.
    #[error("table {table:?} does not exist")]
    TableNotFound {
        /// The name asked for.
        table: String,
    },
    /// A key, value or batch above the limit; nothing was sent.
    #[error("{what} of {size} is above the limit of {max}")]
    TooLarge {
        /// "key bytes", "value bytes", "batch mutations" or "batch bytes".
        what: &'static str,
        /// As given.
        size: usize,
        /// The limit.
        max: usize,
    },
    /// The call itself is wrong; nothing was sent.
    #[error("{message}")]
    InvalidArgument {
        /// What is wrong with it.
        message: String,
    },
    /// The cluster refused, and will refuse again.
    #[error("{message}")]
    Rejected {
        /// Why, as a code.
        code: ErrorCode,
        /// Why, for a person.
        message: String,
    },
    /// The cluster cannot do it now; nothing was changed.
    #[error("{message}")]
    Unavailable {
        /// Why, as a code.
        code: ErrorCode,
        /// Why, for a person.
        message: String,
    },
    /// A person must look at the cluster.
    #[error("{message}")]
    Fatal {
        /// Why, as a code.
        code: ErrorCode,
        /// Why, for a person.
        message: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn kind(&self) -> Kind {
        match self {
            Error::Ambiguous { .. } => Kind::Unknown,
            Error::DeadlineExceeded { .. } | Error::Unreachable { .. } | Error::Unavailable { .. } => {
                Kind::Retry
            }
            Error::TableNotFound { .. }
            | Error::TooLarge { .. }
            | Error::InvalidArgument { .. }
            | Error::Rejected { .. } => Kind::Reject,
            Error::Fatal { .. } => Kind::Fatal,
        }
    }

    /// The stable code, as on the wire.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::Ambiguous { .. } => ErrorCode::Ambiguous,
            Error::DeadlineExceeded { .. } => ErrorCode::DeadlineExceeded,
            Error::Unreachable { .. } => ErrorCode::Unavailable,
            Error::TableNotFound { .. } => ErrorCode::TableNotFound,
            Error::TooLarge { .. } => ErrorCode::TooLarge,
            Error::InvalidArgument { .. } => ErrorCode::InvalidArgument,
            Error::Rejected { code, .. } | Error::Unavailable { code, .. } | Error::Fatal { code, .. } => {
                *code
            }
        }
    }

    /// The code's name in capitals, for logs, JSON and scripts.
    pub fn code_name(&self) -> &'static str {
        self.code().as_str_name()
    }

    /// True when a write may have been applied.
    pub fn is_ambiguous(&self) -> bool {
        matches!(self, Error::Ambiguous { .. })
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Error::InvalidArgument { message: message.into() }
    }

    /// From an error of the wire that ends a call.
    pub(crate) fn from_wire(error: &v1::Error) -> Self {
        let code = error.code();
        let message =
            if error.message.is_empty() { code.as_str_name().to_lowercase() } else { error.message.clone() };
        match code.kind() {
            Kind::Redirect | Kind::Retry => Error::Unavailable { code, message },
            Kind::Unknown => Error::Ambiguous { reason: message },
            Kind::Reject => Error::Rejected { code, message },
            Kind::Fatal => Error::Fatal { code, message },
        }
    }

    /// From a failed unary call of the control plane.
    pub(crate) fn from_status(status: &tonic::Status) -> Self {
        let message = status.message().to_owned();
        let code = match status.code() {
            tonic::Code::Unauthenticated => ErrorCode::Unauthenticated,
            tonic::Code::PermissionDenied => ErrorCode::PermissionDenied,
            tonic::Code::Unimplemented => ErrorCode::NotSupported,
            tonic::Code::InvalidArgument => ErrorCode::InvalidArgument,
            // Not the status itself: it prints its source in the form for programmers.
            _ => return Error::Unavailable { code: ErrorCode::Unavailable, message },
        };
        Error::Rejected { code, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_failure_is_told_in_its_own_words() {
        let error = Error::from_status(&tonic::Status::unavailable("tcp connect error"));
        assert_eq!(error.to_string(), "tcp connect error");
    }

    #[test]
    fn every_code_keeps_its_kind_through_the_error() {
        for code in [ErrorCode::ServerBusy, ErrorCode::Ambiguous, ErrorCode::TooLarge, ErrorCode::Corruption]
        {
            let error = Error::from_wire(&undb_proto::wire_error(code, "x"));
            assert_eq!(error.kind(), code.kind());
            assert_eq!(error.code(), code);
        }
    }
}
