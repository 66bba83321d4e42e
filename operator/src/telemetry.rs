//! Metrics of the operator.
