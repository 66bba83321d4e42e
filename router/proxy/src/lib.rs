//! router/proxy:proxy
