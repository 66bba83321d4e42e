//! The binary `undb-operator`.

fn main() {}
