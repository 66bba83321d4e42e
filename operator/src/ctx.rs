//! What all controllers share.
