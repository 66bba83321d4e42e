//! Router: routing and proxies.
