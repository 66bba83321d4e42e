//! Routes: the pure table, its copy on disk, and the task that keeps it fresh.

mod cache;
mod discover;
mod live;
mod subscribe;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use cache::Cache;
pub(crate) use discover::{Discovery, discover, resolve};
pub(crate) use live::LiveRoute;
pub(crate) use subscribe::subscribe;
pub(crate) use table::{RouteTable, ShardRoute, pick};
