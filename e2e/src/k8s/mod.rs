//! UNDB on a real Kubernetes cluster, through what its users have: kubectl, Helm, the SDK and Redis.
//!
//! ```text
//! case ── Stage ── Kube      kubectl and helm as processes, JSON out
//!           ├───── Machines  what hurts a machine: own cluster, kind, or "skipped"
//!           ├───── Steps     the time of everything
//!           └───── Client, LoadPod   Pods of the image undb-e2e
//! ```
//! - **What**: each case brings up what it lacks (cluster, images, installation), says how long every step
//!   took, and keeps logs, events and descriptions of everything in a folder when it fails.
//! - **What not**: no call into the operator's inside, and no decision from what the operator says about
//!   replicas: the stores are asked ([`crate::load::availability`]).
//! - **Where to start**: [`Stage::prepare`], then a file of [`case`].

pub mod case;
mod client;
mod images;
mod keep;
mod kube;
mod load_pod;
mod machine;
mod objects;
pub mod phases;
mod stage;
mod state;
mod steps;

pub use client::Client;
pub use kube::Kube;
pub use load_pod::{LoadPod, LoadShape};
pub use machine::{Done, Machines};
pub use stage::Stage;
pub use steps::Steps;
