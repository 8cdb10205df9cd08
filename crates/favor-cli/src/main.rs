//! The `favor` command.
fn main() {}
