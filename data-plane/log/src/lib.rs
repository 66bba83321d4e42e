//! data-plane/log:log
