//! Claims about what is planned and done for a StoreCluster.

mod calls;
mod drive;
mod model;
mod scenarios;
mod sim;
mod status;
