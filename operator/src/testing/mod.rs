//! A scripted Kubernetes API server in this process: objects in memory behind a `kube::Client`.
//!
//! ```text
//! operator A -- Link A --.                      .-- watch: history from a resourceVersion
//! operator B -- Link B --+--> ApiServer: Cluster +-- eviction: asks the PDBs, and the webhook if there is one
//! the test  -------------'    (objects, history) '-- deletes: finalizers, preconditions, owners
//! ```
//! It keeps what the operator relies on: resourceVersion, uid and generation; preconditions and 409; the status
//! subresource; server-side apply (fields that a manager no longer names go); PDBs whose status may lag.
//! A `Link` is one process's connection: it fails, hangs, loses answers, dies at its n-th call or sleeps before
//! one. No schemas, no versions of an API, no admission but the one above.
//!
//! Where to look: a path -> `request`; what a verb does -> `cluster`; apply and merge -> `patch`;
//! evictions -> `pdb`; watches -> `watch`; faults -> `link`; a control plane to go with it -> `gate`.

#![allow(unused_imports, dead_code)] // what a test module needs differs

mod cluster;
mod gate;
mod link;
mod patch;
mod pdb;
mod request;
mod serve;
mod watch;

pub use cluster::Cluster;
pub use cluster::Refusal;
pub use gate::{FakeGate, FakeStore, store_pods};
pub use link::{Fault, Link};
pub use request::{Call, Key, Target, Verb};
pub use serve::{ApiServer, pod, review};

#[cfg(test)]
mod tests;
