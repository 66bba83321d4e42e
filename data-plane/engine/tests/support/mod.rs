//! What the suites share: a world with one shard over some kind of tree, a tree in memory, a model.
#![allow(dead_code)]

pub mod engine_home;
pub mod mem_tree;
pub mod model;
pub mod world;
