//! `e2e CASE... --seconds N --seed N`.
fn main() {}
