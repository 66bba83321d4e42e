//! data-plane/vfs:vfs
