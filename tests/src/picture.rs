//! A terminal screen as SVG, cell by cell, with its real colours.

use std::fmt::Write as _;

const CELL_WIDTH: f64 = 8.4;
const CELL_HEIGHT: f64 = 17.0;
const MARGIN: f64 = 12.0;
const BACKGROUND: &str = "#1e1e2e";
const FOREGROUND: &str = "#cdd6f4";
/// Palette of the sixteen basic colours.
const BASIC: [&str; 16] = [
    "#45475a", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#f5c2e7", "#94e2d5", "#bac2de", "#585b70", "#f38ba8",
    "#a6e3a1", "#f9e2af", "#89b4fa", "#f5c2e7", "#94e2d5", "#a6adc8",
];

#[derive(Clone, PartialEq)]
struct Style {
    foreground: String,
    background: Option<String>,
    bold: bool,
}

/// The screen as an SVG document.
#[must_use]
pub fn svg(screen: &vt100::Screen) -> String {
    let (rows, cols) = screen.size();
    let (rows, cols) = (rows.get(), cols.get());
    let width = f64::from(cols) * CELL_WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows) * CELL_HEIGHT + 2.0 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for row in 0..rows {
        for (start, text, style) in runs(screen, row, cols) {
            run(&mut out, row, start, &text, &style);
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Runs of cells of one style: first column, text (a space for an empty cell), style.
fn runs(screen: &vt100::Screen, row: u16, cols: u16) -> Vec<(u16, String, Style)> {
    let mut runs: Vec<(u16, String, Style)> = Vec::new();
    for col in 0..cols {
        let Some(cell) = screen.cell(row, col) else { continue };
        if cell.is_wide_continuation() {
            continue;
        }
        let style = style_of(cell);
        let text = if cell.contents().is_empty() {
            " "
        } else {
            cell.contents()
        };
        match runs.last_mut() {
            Some((_, known, same)) if *same == style => known.push_str(text),
            _ => runs.push((col, text.to_owned(), style)),
        }
    }
    runs
}

fn style_of(cell: &vt100::Cell) -> Style {
    let mut foreground = colour(cell.fgcolor()).unwrap_or_else(|| FOREGROUND.to_owned());
    let mut background = colour(cell.bgcolor());
    if cell.inverse() {
        let swapped = background.take().unwrap_or_else(|| BACKGROUND.to_owned());
        background = Some(std::mem::replace(&mut foreground, swapped));
    }
    Style {
        foreground,
        background,
        bold: cell.bold(),
    }
}

fn colour(colour: vt100::Color) -> Option<String> {
    match colour {
        vt100::Color::Default => None,
        vt100::Color::Rgb(r, g, b) => Some(format!("#{r:02x}{g:02x}{b:02x}")),
        vt100::Color::Idx(index @ 0..16) => Some(BASIC[usize::from(index)].to_owned()),
        vt100::Color::Idx(index @ 16..232) => {
            let level = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
            let index = index - 16;
            Some(format!(
                "#{:02x}{:02x}{:02x}",
                level(index / 36),
                level(index / 6 % 6),
                level(index % 6)
            ))
        }
        vt100::Color::Idx(index) => {
            let grey = 8 + 10 * (index - 232);
            Some(format!("#{grey:02x}{grey:02x}{grey:02x}"))
        }
    }
}

fn run(out: &mut String, row: u16, col: u16, text: &str, style: &Style) {
    let x = MARGIN + f64::from(col) * CELL_WIDTH;
    let y = MARGIN + f64::from(row) * CELL_HEIGHT;
    let columns: usize = text.chars().count();
    #[expect(clippy::cast_precision_loss, reason = "at most some hundred columns")]
    let width = columns as f64 * CELL_WIDTH;
    if let Some(background) = &style.background {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{CELL_HEIGHT}\" fill=\"{background}\"/>"
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let weight = if style.bold { " font-weight=\"bold\"" } else { "" };
    let escaped = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{}\" textLength=\"{width:.1}\" lengthAdjust=\"spacingAndGlyphs\" \
         xml:space=\"preserve\"{weight}>{escaped}</text>",
        y + CELL_HEIGHT * 0.77,
        style.foreground,
    );
}
