//! Garbage collection: what is dead is deleted, what lives among much that is dead is moved.

pub mod victim;
