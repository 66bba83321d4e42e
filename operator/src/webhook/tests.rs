//! The webhook against the scripted API server and a fake control plane.
