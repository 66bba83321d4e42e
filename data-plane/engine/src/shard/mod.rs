//! The state machine of one shard over a tree.
