//! What a command or an image can be refused for.

use undb_proto::v1;

/// A command that changes nothing, and why. Part of the protocol, not a surprise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Reject {
    /// What the caller acts on.
    pub code: v1::ErrorCode,
    /// What a person reads.
    pub message: String,
}

impl Reject {
    pub(crate) fn new(code: v1::ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(v1::ErrorCode::InvalidArgument, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(v1::ErrorCode::Conflict, message)
    }
}

impl From<Reject> for v1::Error {
    fn from(reject: Reject) -> Self {
        undb_proto::wire_error(reject.code, reject.message)
    }
}

/// Bytes that are not an image that this build can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// Written by a newer build.
    #[error(
        "the metadata image has format version {found}, this build reads up to {supported}; \
         start the build that wrote it, or a newer one"
    )]
    Newer { found: u32, supported: u32 },
    /// Not an image.
    #[error("the metadata image does not decode: {0}; restore it from another member")]
    Corrupt(String),
}
