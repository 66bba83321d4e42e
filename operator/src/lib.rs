//! The Kubernetes operator.
