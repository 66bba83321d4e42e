//! The Redis protocol: bytes to commands, replies to bytes. No commands' meaning here.

mod parse;
mod reply;

pub(crate) use parse::Parser;
pub(crate) use reply::{Protocol, Reply};
