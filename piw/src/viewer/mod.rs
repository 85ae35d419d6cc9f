//! The terminal viewer.

pub mod graph;
pub mod theme;

#[cfg(test)]
pub(crate) mod fixtures;
