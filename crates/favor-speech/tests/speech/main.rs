//! The recogniser: its losses against all alignments, itself against itself, and whole runs.

mod common;
mod recogniser;
mod runs;
