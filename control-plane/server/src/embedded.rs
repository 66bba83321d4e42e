//! One of each role on one listener.
