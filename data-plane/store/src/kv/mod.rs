//! The `Kv` service: sessions, reads, writes.

mod read;
mod reply;
mod session;
mod write;

pub use session::KvService;
