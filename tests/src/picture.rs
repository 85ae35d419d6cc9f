//! A terminal screen as SVG, cell by cell, with its real colours.

use std::fmt::Write as _;
use std::time::Duration;

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
    let mut out = head(screen);
    for row in 0..screen.size().0.get() {
        out.push_str(&line(screen, row));
    }
    out.push_str("</svg>\n");
    out
}

/// Screens shown one after the other, each for its time, as an animated SVG document that begins again at its end. A row that
/// stays as it is from one screen to the next is there once.
///
/// # Panics
/// When there is no screen.
#[must_use]
pub fn animated(screens: &[(vt100::Screen, Duration)]) -> String {
    let mut out = head(&screens.first().expect("a screen").0);
    let total: f64 = screens.iter().map(|(_, time)| time.as_secs_f64()).sum();
    for row in 0..screens[0].0.size().0.get() {
        // What the row shows, with the parts of the whole time at which it begins and ends to show it.
        let mut shown: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
        let mut begin = 0.0;
        for (screen, time) in screens {
            let end = begin + time.as_secs_f64() / total;
            let content = line(screen, row);
            match shown.iter_mut().find(|(known, _)| *known == content) {
                Some((_, spans)) => match spans.last_mut() {
                    Some(last) if (last.1 - begin).abs() < 1e-9 => last.1 = end,
                    _ => spans.push((begin, end)),
                },
                None => shown.push((content, vec![(begin, end)])),
            }
            begin = end;
        }
        for (content, spans) in shown.iter().filter(|(content, _)| !content.is_empty()) {
            out.push_str(&timed(content, spans, total));
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Content that is visible during parts of the whole time.
fn timed(content: &str, spans: &[(f64, f64)], total: f64) -> String {
    let mut changes: Vec<(f64, &str)> = Vec::new();
    if spans[0].0 > 0.0 {
        changes.push((0.0, "hidden"));
    }
    for (begin, end) in spans {
        changes.push((*begin, "visible"));
        if *end < 1.0 - 1e-9 {
            changes.push((*end, "hidden"));
        }
    }
    if changes.len() == 1 {
        return content.to_owned();
    }
    let times: Vec<String> = changes.iter().map(|(at, _)| format!("{at:.4}")).collect();
    let values: Vec<&str> = changes.iter().map(|(_, value)| *value).collect();
    // Without animation the end is shown.
    let still = if spans.last().is_some_and(|span| span.1 > 1.0 - 1e-9) {
        "visible"
    } else {
        "hidden"
    };
    format!(
        "<g visibility=\"{still}\"><animate attributeName=\"visibility\" calcMode=\"discrete\" dur=\"{total:.2}s\" \
         repeatCount=\"indefinite\" keyTimes=\"{}\" values=\"{}\"/>\n{content}</g>\n",
        times.join(";"),
        values.join(";"),
    )
}

fn head(screen: &vt100::Screen) -> String {
    let (rows, cols) = screen.size();
    let width = f64::from(cols.get()) * CELL_WIDTH + 2.0 * MARGIN;
    let height = f64::from(rows.get()) * CELL_HEIGHT + 2.0 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace\" font-size=\"14\" fill=\"{FOREGROUND}\" \
         xml:space=\"preserve\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    )
}

/// One row; empty when nothing is to be seen in it.
fn line(screen: &vt100::Screen, row: u16) -> String {
    let mut out = String::new();
    for (start, text, style) in runs(screen, row, screen.size().1.get()) {
        run(&mut out, row, start, &text, &style);
    }
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
    if let Some(background) = style.background.as_ref().filter(|colour| *colour != BACKGROUND) {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{CELL_HEIGHT}\" fill=\"{background}\"/>"
        );
    }
    let ink = text.trim();
    if ink.is_empty() {
        return;
    }
    let weight = if style.bold { " font-weight=\"bold\"" } else { "" };
    let fill = if style.foreground == FOREGROUND {
        String::new()
    } else {
        format!(" fill=\"{}\"", style.foreground)
    };
    // Lines meet their neighbours in every font.
    let stretch = if ink.is_ascii() {
        ""
    } else {
        " lengthAdjust=\"spacingAndGlyphs\""
    };
    let before = text.chars().take_while(|letter| letter.is_whitespace()).count();
    #[expect(clippy::cast_precision_loss, reason = "at most some hundred columns")]
    let (x, width) = (x + before as f64 * CELL_WIDTH, ink.chars().count() as f64 * CELL_WIDTH);
    let escaped = ink.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\"{stretch}{fill}{weight}>{escaped}</text>",
        y + CELL_HEIGHT * 0.77,
    );
}
