//! The `piw` binary's library half: the viewer and the text rules that every command shares.

pub mod text;
pub mod viewer;
