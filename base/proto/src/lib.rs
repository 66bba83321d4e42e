//! The wire contracts of UNDB: everything that two processes say to each other.
//!
//! Never: logic. Only `proto/`, the code generated from it, and conversions to the words of
//! `undb-types`. Formats are versioned by protobuf's own rules: fields are added, never reused.

/// Version 1 of every contract.
pub mod v1 {
    #![allow(clippy::all, missing_docs)]
    tonic::include_proto!("undb.v1");
}

mod convert;

pub use convert::{ErrorKind, wire_error};
