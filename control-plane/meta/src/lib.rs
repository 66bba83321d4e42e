//! control-plane/meta:meta
