//! control-plane/server:server
