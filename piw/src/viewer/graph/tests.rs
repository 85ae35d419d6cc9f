//! What the drawing looks like, and that it keeps its promises for any graph.

use std::collections::BTreeSet;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::drawing::{Density, Drawing, Point};
use super::model::Graph;
use super::paint::{Overlay, Scene, paint};
use crate::viewer::fixtures;
use crate::viewer::theme::Theme;

/// The whole drawing as text.
fn picture(graph: &Graph, drawing: &Drawing, overlay: &Overlay) -> String {
    let area = Rect::new(0, 0, drawing.width as u16, drawing.height as u16);
    let mut buffer = Buffer::empty(area);
    let theme = Theme::plain();
    let scene = Scene {
        graph,
        drawing,
        overlay,
        origin: Point::default(),
        selected: None,
        theme: &theme,
    };
    paint(&scene, area, &mut buffer);
    let mut out = String::new();
    for y in 0..area.height {
        let line: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

#[test]
fn show() {
    for definition in [fixtures::release(), fixtures::composed()] {
        let graph = Graph::new(&definition);
        for density in Density::ALL {
            let drawing = super::lay_out(&graph, density, &BTreeSet::new());
            let mut overlay = Overlay::idle(&graph);
            for (from, to) in [
                ("inspect", "classify"),
                ("classify", "fix"),
                ("fix", "test"),
                ("test", "judge"),
                ("judge", "inspect"),
            ] {
                if let (Some(a), Some(b)) = (graph.node(from), graph.node(to)) {
                    overlay.taken[graph.edge(a, b).unwrap()] = 1;
                }
            }
            println!(
                "{} {}x{}\n{}",
                density.name(),
                drawing.width,
                drawing.height,
                picture(&graph, &drawing, &overlay)
            );
        }
    }
}
