//! To be filled in next.
mod config;
pub use config::*;
