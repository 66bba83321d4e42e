//! What the operator asks a control plane.
