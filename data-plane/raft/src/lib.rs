//! data-plane/raft:raft
