//! Which part of the terminal belongs to which part of the screen. A pure function of sizes and switches, used by drawing,
//! by the mouse and by scrolling alike.

use ratatui::layout::Rect;

/// Smallest usable terminal.
pub const SMALLEST: (u16, u16) = (60, 20);
/// Narrowest terminal in which the browser starts at full width.
const FULL_BROWSER: u16 = 100;
/// Width of the status rail, borders included.
const RAIL: u16 = 5;
/// Least and most width of the browser unless somebody asks for another: wide terminals show whole titles.
const SIDEBAR: (u16, u16) = (34, 56);
/// Width from which graph and inspector stand side by side.
const SIDE_BY_SIDE: u16 = 108;

/// How the run browser is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrowserSize {
    /// Full, or as a rail on narrow terminals.
    Auto,
    /// Full.
    Full,
    /// Only status glyphs.
    Rail,
    /// Not at all.
    Hidden,
}

/// What the layout depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wishes {
    /// How the browser is shown.
    pub browser: BrowserSize,
    /// Width of the full browser; 0 chooses.
    pub sidebar: u16,
    /// Height (below the graph) or width (beside it) of the inspector; 0 chooses.
    pub inspector: u16,
    /// The part that has the whole screen, when one is zoomed.
    pub zoom: Option<Part>,
}

/// A part of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// The list of runs.
    Browser,
    /// The drawing.
    Graph,
    /// The tabs.
    Inspector,
}

/// Where everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Screen {
    /// The run browser.
    pub browser: Option<Rect>,
    /// Whether the browser shows status glyphs only.
    pub rail: bool,
    /// The graph.
    pub graph: Rect,
    /// The inspector.
    pub inspector: Rect,
    /// Whether the inspector stands to the right of the graph.
    pub beside: bool,
    /// The timeline.
    pub timeline: Rect,
}

/// Divides a terminal; `None` below [`SMALLEST`].
#[must_use]
pub fn divide(width: u16, height: u16, wishes: Wishes) -> Option<Screen> {
    if width < SMALLEST.0 || height < SMALLEST.1 {
        return None;
    }
    let lines = if height >= 24 { 2 } else { 1 };
    let timeline = Rect {
        x: 0,
        y: height - lines,
        width,
        height: lines,
    };
    let mut rest = Rect {
        x: 0,
        y: 0,
        width,
        height: height - lines,
    };
    let mut screen = Screen {
        timeline,
        ..Screen::default()
    };
    if let Some(part) = wishes.zoom {
        match part {
            Part::Browser => screen.browser = Some(rest),
            Part::Graph => screen.graph = rest,
            Part::Inspector => screen.inspector = rest,
        }
        return Some(screen);
    }
    let wanted = if wishes.sidebar == 0 {
        (width / 5).clamp(SIDEBAR.0, SIDEBAR.1)
    } else {
        wishes.sidebar
    };
    let full = wanted.clamp(16, width / 2);
    let (columns, rail) = match wishes.browser {
        BrowserSize::Hidden => (0, false),
        BrowserSize::Rail => (RAIL, true),
        BrowserSize::Auto if width < FULL_BROWSER => (RAIL, true),
        BrowserSize::Auto | BrowserSize::Full => (full, false),
    };
    if columns > 0 {
        screen.browser = Some(Rect { width: columns, ..rest });
        screen.rail = rail;
        rest = Rect {
            x: columns,
            width: rest.width - columns,
            ..rest
        };
    }
    screen.beside = rest.width >= SIDE_BY_SIDE;
    if screen.beside {
        let wanted = if wishes.inspector == 0 {
            (rest.width * 2 / 5).min(90)
        } else {
            wishes.inspector
        };
        let columns = wanted.clamp(30, rest.width - 40);
        screen.graph = Rect {
            width: rest.width - columns,
            ..rest
        };
        screen.inspector = Rect {
            x: rest.x + rest.width - columns,
            width: columns,
            ..rest
        };
    } else {
        let wanted = if wishes.inspector == 0 {
            rest.height * 2 / 5
        } else {
            wishes.inspector
        };
        let rows = wanted.clamp(5, rest.height - 6);
        screen.graph = Rect {
            height: rest.height - rows,
            ..rest
        };
        screen.inspector = Rect {
            y: rest.y + rest.height - rows,
            height: rows,
            ..rest
        };
    }
    Some(screen)
}

/// What is inside a panel's border.
#[must_use]
pub fn inside(panel: Rect) -> Rect {
    Rect {
        x: panel.x.saturating_add(1),
        y: panel.y.saturating_add(1),
        width: panel.width.saturating_sub(2),
        height: panel.height.saturating_sub(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_never_overlap_and_always_fit() {
        for browser in [
            BrowserSize::Auto,
            BrowserSize::Full,
            BrowserSize::Rail,
            BrowserSize::Hidden,
        ] {
            for width in (1..1000).step_by(7) {
                for height in (1..300).step_by(3) {
                    for (inspector, sidebar) in [(0, 0), (12, 34), (500, 500)] {
                        let wishes = Wishes {
                            browser,
                            sidebar,
                            inspector,
                            zoom: None,
                        };
                        let Some(screen) = divide(width, height, wishes) else {
                            assert!(width < 60 || height < 20);
                            continue;
                        };
                        let mut parts = vec![screen.graph, screen.inspector, screen.timeline];
                        parts.extend(screen.browser);
                        let cells: u32 = parts
                            .iter()
                            .map(|part| u32::from(part.width) * u32::from(part.height))
                            .sum();
                        assert_eq!(
                            cells,
                            u32::from(width) * u32::from(height),
                            "{width}x{height} {screen:?}"
                        );
                        assert!(
                            screen.graph.width >= 20 && screen.graph.height >= 6,
                            "{width}x{height} {screen:?}"
                        );
                    }
                }
            }
        }
    }
}
