//! Bounds of what a client may send.

/// Largest key: hash key and sort key together, in bytes.
pub const KEY_BYTES_MAX: usize = 64 * 1024;
/// Largest value, in bytes.
pub const VALUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most mutations in one atomic batch.
pub const BATCH_LEN_MAX: usize = 1000;
/// Most bytes of keys and values in one atomic batch that has more than one mutation.
pub const BATCH_BYTES_MAX: usize = 8 * 1024 * 1024;
