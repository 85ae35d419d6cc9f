//! The layered drawing of a workflow graph: a pure function from a definition to cells.
//!
//! | module | owns |
//! | --- | --- |
//! | [`model`] | the graph as read from a definition |
//! | [`drawing`] | the result |
//! | [`compose`] | includes as nested boxes |
//! | `level` | one level: items and edges in, placed items and lines out |
//! | `rank`, `order`, `place`, `route`, `tracks` | the phases |
//! | [`canvas`] | lines as box-drawing characters |

pub mod canvas;
pub mod compose;
pub mod drawing;
mod layered;
mod level;
pub mod model;
mod order;
pub mod paint;
mod place;
mod rank;
mod route;
pub mod text;
mod tracks;

pub use compose::lay_out;
pub use drawing::{Density, Drawing};
pub use model::Graph;

#[cfg(test)]
mod tests;
