//! Server-side apply, owner references, hashes.
