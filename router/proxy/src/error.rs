//! Why a command fails, as Redis would say it.

use std::borrow::Cow;
use undb_sdk::ErrorCode;

/// The text of an error reply, its code word first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub Cow<'static, str>);

impl Failure {
    /// The key holds another type.
    pub const WRONG_TYPE: Failure =
        Failure(Cow::Borrowed("WRONGTYPE Operation against a key holding the wrong kind of value"));
    /// A number was expected.
    pub const NOT_AN_INTEGER: Failure = Failure(Cow::Borrowed("ERR value is not an integer or out of range"));
    /// A number was expected.
    pub const NOT_A_FLOAT: Failure = Failure(Cow::Borrowed("ERR value is not a valid float"));
    /// The sum leaves the range of an i64.
    pub const OVERFLOW: Failure = Failure(Cow::Borrowed("ERR increment or decrement would overflow"));
    /// The words make no sense together.
    pub const SYNTAX: Failure = Failure(Cow::Borrowed("ERR syntax error"));
    /// Somebody else kept changing the same key.
    pub const CONTENDED: Failure =
        Failure(Cow::Borrowed("BUSY the key was changed by others at every attempt, try again"));

    /// An error of the command.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }
}

impl From<undb_sdk::Error> for Failure {
    fn from(error: undb_sdk::Error) -> Self {
        match error.code() {
            ErrorCode::WrongKind => Failure::WRONG_TYPE,
            ErrorCode::NotAnInteger => Failure::NOT_AN_INTEGER,
            ErrorCode::Unauthenticated | ErrorCode::PermissionDenied => {
                Failure::new(format!("NOPERM {error}"))
            }
            ErrorCode::Overflow => Failure::OVERFLOW,
            ErrorCode::InvalidArgument | ErrorCode::TooLarge => Failure::new(format!("ERR {error}")),
            // The code first, so that a client can act on it: AMBIGUOUS, UNAVAILABLE, DISK_FULL ...
            _ => Failure::new(format!("{} {error}", error.code_name())),
        }
    }
}
