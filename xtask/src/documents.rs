//! The documents with Rust in them. Every snippet is compiled and run by `cargo test`.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/guide.md")]
struct Guide;

#[cfg(doctest)]
#[doc = include_str!("../../docs/adding-a-family.md")]
struct AddingAFamily;

#[cfg(doctest)]
#[doc = include_str!("../../docs/tables.md")]
struct Tables;
