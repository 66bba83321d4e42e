//! From heartbeats to observations.
