//! base/runtime:runtime
