//! base/spec:spec
