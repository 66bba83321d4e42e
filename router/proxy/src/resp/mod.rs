//! The Redis serialization protocol, versions 2 and 3.
//!
//! Source: the protocol description of redis.io ("RESP protocol description"); bounds as in redis-server 7.0.

mod parse;
mod reply;

pub use parse::{Args, parse};
pub use reply::{Protocol, Reply};
