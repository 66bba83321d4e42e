//! The eviction webhook.
