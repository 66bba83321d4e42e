//! data-plane/engine:engine
