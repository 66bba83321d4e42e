//! Leases of the availability gate, step by step.
