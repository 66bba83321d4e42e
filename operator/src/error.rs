//! What can go wrong.
