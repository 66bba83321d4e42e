//! The CA and the certificates of a control plane.
