//! What can go wrong before and around a server's own work. Each message ends with a next step.

use std::path::PathBuf;

/// An error of the process shell.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// A file that the process was told to read cannot be read.
    #[error("cannot read {what} {}: {source}; check the path and its permissions", path.display())]
    Read { what: &'static str, path: PathBuf, source: std::io::Error },
    /// A configuration file that is not what it should be.
    #[error("{}:{line}:{column}: {message}\nnext: correct this line; `--print-config` in place of `--config` prints every field with its default", path.display())]
    Config { path: PathBuf, line: usize, column: usize, message: String },
    /// The address to listen on belongs to somebody else.
    #[error(
        "cannot listen on {address}: the port is in use; stop the process that holds it (`ss -ltnp` names it), or choose another address for {what}"
    )]
    PortInUse { what: String, address: String },
    /// The address to listen on is not one.
    #[error("cannot listen on {address}: {source}; {what} must be HOST:PORT of an interface of this machine")]
    Bind { what: String, address: String, source: std::io::Error },
    /// An address to connect to that is not one.
    #[error("`{address}` is not an address: {reason}; write HOST:PORT, for example 127.0.0.1:7380")]
    Address { address: String, reason: String },
    /// A token file that holds no token.
    #[error("token file {} {problem}; put one line of 8 to 512 visible characters into it, for example the output of `head -c 32 /dev/urandom | base64`", path.display())]
    Token { path: PathBuf, problem: &'static str },
    /// A certificate, a key or a CA that cannot be used.
    #[error("TLS: {} {problem}", file.display())]
    Tls { file: PathBuf, problem: String },
    /// A log filter that does not parse.
    #[error("`{filter}` is not a log filter: {reason}; write for example `info` or `info,undb_store=debug`")]
    Filter { filter: String, reason: String },
    /// A listener that stopped serving.
    #[error("serving ended: {0}")]
    Serve(String),
}
