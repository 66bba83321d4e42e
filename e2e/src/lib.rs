//! The long tests: real processes, kill -9, linearizability, redis side by side.
//!
//! - **What**: cases that a person or the gate starts with `e2e/run CASE`. Each prints how it goes, and its
//!   last line is its figure.
//! - **What not**: nothing that a unit test could prove; no knowledge of a crate's inside, only of the
//!   binary, its configuration and the SDK.
//! - **Where to start**: [`harness::Cluster`] starts and kills processes, [`linear`] judges histories, each
//!   case stands in a file of [`case`].

pub mod case;
pub mod harness;
pub mod k8s;
pub mod linear;
pub mod load;
pub mod tool;
