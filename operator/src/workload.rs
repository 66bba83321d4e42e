//! Pods, the way every role of UNDB runs.
