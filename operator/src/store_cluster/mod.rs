//! StoreCluster and its Stores.
//!
//! ```text
//! observe (API server, control plane: uncached) --> plan (pure) --> act (through `World`) --> status
//! ```
//! Where to look: what is decided and why -> `plan`; what a disruption is made of -> `act`; the objects
//! -> `build`; conditions -> `status`. State lives in the objects, the leases and the fences: a pass that
//! is cut off anywhere is gone on with by the next.

pub mod act;
pub mod model;
pub mod plan;
pub mod world;
