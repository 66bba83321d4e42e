//! The words of UNDB: ids, keys, epochs. Everybody imports this crate; it imports nobody.
//!
//! Never: I/O, async, clocks, wire formats.

mod id;
mod key;
mod limit;
mod log_id;

pub use id::{ReplicaId, ShardId, StoreId, TableId};
pub use key::{
    KeyError, KeyRange, Partitioning, decode_key, encode_key, hash_split_points, key_prefix, prefix_end,
    split_point,
};
pub use limit::{BATCH_BYTES_MAX, BATCH_LEN_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX};
pub use log_id::{Epoch, GroupId, LogId};
