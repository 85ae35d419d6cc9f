//! A whole graph as plain text, for `piw check`.

use std::collections::BTreeSet;

use piw_protocol::definition::DefinitionSnapshot;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::compose::lay_out;
use super::drawing::{Density, Point};
use super::model::Graph;
use super::paint::{Overlay, Scene, paint};
use crate::text::width;
use crate::viewer::theme::Theme;

/// Cells that a text may have; a larger graph is drawn at a lower density.
const MOST_CELLS: i32 = 400 * 400;

/// The graph of a definition, boxed when it is not enormous; every line ends with a newline and without trailing spaces.
#[must_use]
pub fn graph_text(definition: &DefinitionSnapshot) -> String {
    let graph = Graph::new(definition);
    let mut drawing = lay_out(&graph, Density::Boxed, &BTreeSet::new());
    for density in [Density::Compact, Density::Dots] {
        if drawing.width.saturating_mul(drawing.height) <= MOST_CELLS {
            break;
        }
        drawing = lay_out(&graph, density, &BTreeSet::new());
    }
    let cells = |size: i32| u16::try_from(size.max(1)).unwrap_or(u16::MAX);
    let area = Rect {
        x: 0,
        y: 0,
        width: cells(drawing.width),
        height: cells(drawing.height),
    };
    let mut buffer = Buffer::empty(area);
    let scene = Scene {
        graph: &graph,
        drawing: &drawing,
        overlay: &Overlay::default(),
        origin: Point::default(),
        selected: None,
        theme: &Theme::plain(),
    };
    paint(&scene, area, &mut buffer);
    let mut out = String::new();
    for y in 0..area.height {
        let mut line = String::new();
        let mut x = 0;
        while x < area.width {
            let symbol = buffer[(x, y)].symbol();
            line.push_str(symbol);
            x += u16::try_from(width(symbol)).unwrap_or(1).max(1);
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
