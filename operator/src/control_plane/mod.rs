//! ControlPlane: metadata, control, access.
