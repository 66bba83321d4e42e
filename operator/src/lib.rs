//! The Kubernetes operator: custom resources in, control-plane operations out.
//!
//! ```text
//! observe (cluster, control plane) --> plan (pure) --> act (one disruptive step at most) --> status
//! ```
//! Never: stops, drains or removes a Pod unless the control plane's gate granted it.

pub mod apply;
pub mod certs;
pub mod cli;
mod client;
pub mod conditions;
pub mod config;
pub mod control;
pub mod control_plane;
pub mod crds;
pub mod ctx;
pub mod elector;
pub mod error;
pub mod fence;
pub mod gate;
pub mod router;
pub mod run;
#[cfg(test)]
mod scenarios;
pub mod scope;
pub mod store_cluster;
pub mod table;
pub mod telemetry;
#[cfg(test)]
pub(crate) mod testing;
pub mod webhook;
pub mod workload;
