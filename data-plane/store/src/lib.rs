//! data-plane/store:store
