//! The hands of a pass: each call is one write (or one uncached read), so that a test can stop between
//! any two of them.

use crate::control::ControlApi;
use crate::error::Result;
use crate::fence::Fence;
use async_trait::async_trait;

/// What the actions are made of. All are idempotent; those that take a uid or a resource version are
/// refused when the object is another one by now.
#[async_trait]
pub trait World: Send + Sync {
    /// The gate, and the stores' records.
    fn control(&self) -> Option<&dyn ControlApi>;

    /// The number is written down before the Store is made, so that it is never used again.
    async fn create_store(&self, ordinal: u32, replaces: Option<&str>) -> Result<()>;
    async fn set_template(&self, store: &str) -> Result<()>;
    async fn set_offline(&self, store: &str, wish: Offline) -> Result<()>;
    /// With what the Store's status must say before.
    async fn delete_store(&self, store: &str) -> Result<()>;

    async fn create_claim(&self, store: &str) -> Result<()>;
    async fn delete_claim(&self, store: &str) -> Result<()>;

    async fn create_fence(&self, store: &str) -> Result<()>;
    async fn fence(&self, store: &str) -> Result<Option<Fence>>;
    async fn open_fence(&self, store: &str, resource_version: &str) -> Result<()>;
    async fn close_fence(&self, store: &str) -> Result<()>;
    /// Closes it for everybody who has read it before, too.
    async fn seal_fence(&self, store: &str, mark: &str) -> Result<()>;

    async fn create_pod(&self, store: &str) -> Result<()>;
    async fn write_zone(&self, store: &str, pod_uid: &str, zone: &str) -> Result<()>;
    /// Is this Pod there, and does its container run?
    async fn pod_runs(&self, store: &str, pod_uid: &str) -> Result<Option<bool>>;
    async fn evict(&self, store: &str, pod_uid: &str) -> Result<()>;
    async fn delete_pod(&self, store: &str, pod_uid: &str) -> Result<()>;

    /// The address that a store registers with.
    fn address(&self, store: &str) -> String;
}

/// What is written into a Store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offline {
    /// It leaves, as the victim of a scale-in.
    Take,
    /// It stays after all.
    BringBack,
    /// It has stayed.
    Forget,
}
