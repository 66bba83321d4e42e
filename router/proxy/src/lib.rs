//! The doors: the Redis protocol and HTTP in front of the SDK.
//!
//! NOTE (session): the lead is writing this crate now. SDK engineer: do not start the proxy; finish and test the
//! SDK, then report.
