//! Exit codes that scripts rely on, and the one way in which a command fails.

use std::fmt::Display;
use std::process::ExitCode;
use undb_runtime::RuntimeError;
use undb_sdk::ErrorCode;

/// How a command ends. The numbers stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Ok = 0,
    /// The key is not there.
    Absent = 1,
    /// The command line is wrong.
    Usage = 2,
    /// Nobody answers, or they cannot do it now: the same call may succeed later.
    Unavailable = 3,
    /// The token is missing or wrong.
    Denied = 4,
    /// A table or another object does not exist.
    NotFound = 5,
    /// What was given is refused and will be again: YAML, sizes, types, changes that are not allowed.
    Invalid = 6,
    /// The condition of a write did not hold; nothing was changed.
    Condition = 7,
    /// The write may or may not have happened.
    Ambiguous = 8,
    /// Not supported yet.
    Unsupported = 9,
    /// Some of it was done; what was not is named.
    Partial = 10,
    /// This machine stands in the way: port in use, directory in use or of another cluster, files.
    Local = 11,
    /// Data is damaged, or a check found that it does not fit together.
    Corrupt = 12,
    /// `status` and waiting commands: the cluster answers, but something is not fine.
    Unhealthy = 13,
    /// A fault of ours.
    Internal = 20,
    /// Ended by Ctrl-C.
    Interrupted = 130,
}

/// For `undb help exit-codes`.
pub const TABLE: &str = "\
0   done
1   the key is not there (kv get, kv ttl, kv del of one key)
2   the command line is wrong; nothing was done
3   nobody answers in time, or the cluster cannot do it now; the same call may succeed later
4   the token is missing or wrong
5   the table, or another object, does not exist
6   what was given is refused and will be again: YAML, sizes, types, a change that is not allowed
7   the condition of a write did not hold (kv cas, kv put --if-...); nothing was changed
8   the write may or may not have happened; read before you decide
9   not supported yet
10  partly done: import rejected rows (they are in a file), apply failed for some objects
11  this machine stands in the way: port in use, directory in use or of another cluster, a file
12  data is damaged, or `inspect --check` found that it does not fit together
13  status: the cluster answers, but something is not fine
20  a fault of UNDB itself; please report it
130 ended by Ctrl-C before it was done
";

/// Why a command failed, for a person, and the code for a script.
#[derive(Debug)]
pub struct Failure {
    /// The code.
    pub exit: Exit,
    /// Printed on stderr; empty: nothing is.
    pub message: String,
}

/// What commands return.
pub type Outcome<T = Exit> = Result<T, Failure>;

impl Failure {
    pub fn new(exit: Exit, message: impl Display) -> Self {
        Self { exit, message: message.to_string() }
    }
    pub fn usage(message: impl Display) -> Self {
        Self::new(Exit::Usage, message)
    }
    pub fn invalid(message: impl Display) -> Self {
        Self::new(Exit::Invalid, message)
    }
    pub fn local(message: impl Display) -> Self {
        Self::new(Exit::Local, message)
    }
    pub fn internal(message: impl Display) -> Self {
        Self::new(Exit::Internal, message)
    }
    /// A file that cannot be read or written.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        let name = if path.as_os_str() == "-" { "stdin".into() } else { path.display().to_string() };
        Self::local(format!("{name}: {error}"))
    }
}

/// Prints a failure and gives its code.
pub fn report(failure: Failure) -> ExitCode {
    if !failure.message.is_empty() {
        eprintln!("undb: {}", failure.message);
    }
    ExitCode::from(failure.exit as u8)
}

fn exit_of(code: ErrorCode) -> Exit {
    match code {
        ErrorCode::Ambiguous => Exit::Ambiguous,
        ErrorCode::Unauthenticated | ErrorCode::PermissionDenied => Exit::Denied,
        ErrorCode::TableNotFound | ErrorCode::NotFound => Exit::NotFound,
        ErrorCode::NotSupported => Exit::Unsupported,
        ErrorCode::DeadlineExceeded => Exit::Unavailable,
        ErrorCode::Corruption => Exit::Corrupt,
        ErrorCode::Internal | ErrorCode::Unspecified => Exit::Internal,
        code if (code as i32) < 40 => Exit::Unavailable,
        _ => Exit::Invalid,
    }
}

/// The next step, where the error itself does not say it.
fn next_step(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::TableNotFound => {
            "; `undb get tables` lists those that exist, `undb apply -f FILE` creates one"
        }
        ErrorCode::Unauthenticated => "; give --token-file FILE or set UNDB_TOKEN",
        ErrorCode::Ambiguous => "; read the record before you decide to repeat it",
        ErrorCode::DiskFull => "; `undb get stores` shows which store is full",
        _ => "",
    }
}

impl From<undb_sdk::Error> for Failure {
    fn from(error: undb_sdk::Error) -> Self {
        let code = error.code();
        let message = error.to_string();
        let next = match &error {
            undb_sdk::Error::Unreachable { .. } => {
                "; is it running? `undb dev` starts one, --endpoint or UNDB_ENDPOINT names another"
            }
            _ if message.contains("-file") || message.contains("undb ") => "",
            _ => next_step(code),
        };
        Self::new(exit_of(code), format!("{message}{next}"))
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        let exit = match &error {
            RuntimeError::Config { .. } | RuntimeError::Tls { .. } => Exit::Invalid,
            RuntimeError::Address { .. } | RuntimeError::Filter { .. } => Exit::Usage,
            _ => Exit::Local,
        };
        Self::new(exit, error)
    }
}

impl From<undb_spec::SpecError> for Failure {
    fn from(error: undb_spec::SpecError) -> Self {
        Self::invalid(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_documented() {
        for exit in [
            Exit::Ok,
            Exit::Absent,
            Exit::Usage,
            Exit::Unavailable,
            Exit::Denied,
            Exit::NotFound,
            Exit::Invalid,
            Exit::Condition,
            Exit::Ambiguous,
            Exit::Unsupported,
            Exit::Partial,
            Exit::Local,
            Exit::Corrupt,
            Exit::Unhealthy,
            Exit::Internal,
            Exit::Interrupted,
        ] {
            let code = format!("{:<4}", exit as u8);
            assert!(TABLE.lines().any(|line| line.starts_with(&code)), "{exit:?}");
        }
    }

    #[test]
    fn wire_codes_map_to_their_documented_exit() {
        for (code, exit) in [
            (ErrorCode::ServerBusy, Exit::Unavailable),
            (ErrorCode::NotLeader, Exit::Unavailable),
            (ErrorCode::Ambiguous, Exit::Ambiguous),
            (ErrorCode::TooLarge, Exit::Invalid),
            (ErrorCode::Unauthenticated, Exit::Denied),
            (ErrorCode::NotSupported, Exit::Unsupported),
        ] {
            assert_eq!(exit_of(code), exit, "{code:?}");
        }
    }
}
