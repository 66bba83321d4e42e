//! The PodDisruptionBudget of a store: closed, unless the gate says that it may stop.
