//! One frame as plain text: 120 columns, 40 lines, the whole graph of a run with its state, its steps and its facts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use piw_protocol::client::{Client, ClientError, ConnectionState, Freshness};
use piw_protocol::definition::DefinitionSnapshot;
use piw_protocol::view::{DefinitionView, RunView};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::clock::{self, Millis};
use super::graph::drawing::{Drawing, Point};
use super::graph::paint::{Scene, paint};
use super::graph::{Density, Graph, lay_out};
use super::hosts::{HostId, Hosts, RunId};
use super::inspector::info::elapsed;
use super::inspector::rows::{Hints, Row, Rows};
use super::inspector::{info, steps};
use super::run::Run;
use super::theme::{Mark, Theme};
use super::timeline::{Playback, View};
use super::{outside, widgets};
use crate::text::{clean, fit, width};

/// Columns of the frame.
pub const COLUMNS: u16 = 120;
/// Lines of the frame.
pub const LINES: u16 = 40;
/// Longest wait for complete, verified data.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no frame.
#[derive(Debug, thiserror::Error)]
pub enum OnceError {
    /// The server refused, failed or cannot be reached; a run that does not exist is among these.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The definition could not be had.
    #[error("{0}")]
    Definition(String),
    /// Complete data did not arrive in time.
    #[error("the run's data did not arrive within {} seconds", PATIENCE.as_secs())]
    TimedOut,
}

/// Waits for the complete, verified view of a run and draws it: exactly [`LINES`] lines of [`COLUMNS`] columns, each ended
/// by a newline.
///
/// # Errors
///
/// When the run does not exist, the server fails, or the data does not arrive in time.
pub async fn once(client: &Client, run_id: &str) -> Result<String, OnceError> {
    let fetch = async {
        let view = client.watch_run(run_id).first().await?;
        let definition = match &view.workflow {
            DefinitionView::Inline(definition) => DefinitionSnapshot::clone(definition),
            DefinitionView::Content { content, .. } => {
                let fetched = outside::definition(client, run_id, &content.artifact).await;
                fetched.map_err(OnceError::Definition)?
            }
        };
        Ok::<_, OnceError>((view, definition))
    };
    let (view, definition) = tokio::time::timeout(PATIENCE, fetch)
        .await
        .map_err(|_| OnceError::TimedOut)??;
    Ok(frame(&view, &definition, clock::now()))
}

/// Draws the frame.
#[must_use]
pub fn frame(view: &RunView, definition: &DefinitionSnapshot, now: Millis) -> String {
    let theme = Theme::plain();
    let mut run = Run::new(RunId {
        host: HostId::default(),
        id: view.run_id.clone(),
    });
    // A definition that came as content is put where an inline one would be.
    let mut whole = view.clone();
    whole.workflow = DefinitionView::Inline(Box::new(definition.clone()));
    run.take_view(Some(Arc::new(whole)), Freshness::Live, now);
    let area = Rect::new(0, 0, COLUMNS, LINES);
    let mut buffer = Buffer::empty(area);
    let graph = Graph::new(definition);
    let tall = Rect::new(0, 2, 76, LINES - 4);
    let wide = Rect::new(0, 2, COLUMNS, LINES - 16);
    let (drawing, place) = choose(&graph, tall, wide);
    header(&run, &theme, area, &mut buffer, now);
    let inner = graph_panel(&drawing, &theme, place, &mut buffer);
    let origin = origin(&run, &drawing, inner);
    let scene = Scene {
        graph: &graph,
        drawing: &drawing,
        overlay: &run.overlay,
        origin,
        selected: None,
        theme: &theme,
    };
    paint(&scene, inner, &mut buffer);
    if place == tall {
        side(
            &run,
            &theme,
            Rect::new(76, 2, COLUMNS - 76, LINES - 4),
            &mut buffer,
            now,
        );
    } else {
        below(
            &run,
            &theme,
            Rect::new(0, place.bottom(), COLUMNS, LINES - 2 - place.bottom()),
            &mut buffer,
            now,
        );
    }
    let connected = ConnectionState::Connected {
        connection_id: String::new(),
        package_version: String::new(),
    };
    let mut hosts = Hosts::new(&[]);
    hosts.take(HostId::default(), connected);
    let timeline = View {
        run: Some(&run),
        hosts: &hosts,
        playback: Playback::default(),
        hints: &[],
        now,
        theme: &theme,
    };
    timeline.draw(Rect::new(0, LINES - 2, COLUMNS, 2), &mut buffer);
    text(&buffer)
}

/// The roomiest density that fits either place; the last resort is the densest, cut off.
fn choose(graph: &Graph, tall: Rect, wide: Rect) -> (Drawing, Rect) {
    let mut last = None;
    for density in Density::ALL {
        let drawing = lay_out(graph, density, &BTreeSet::new());
        for place in [tall, wide] {
            let (w, h) = (i32::from(place.width - 2), i32::from(place.height - 2));
            if drawing.width <= w && drawing.height <= h {
                return (drawing, place);
            }
        }
        last = Some(drawing);
    }
    (
        last.unwrap_or_else(|| lay_out(graph, Density::Dots, &BTreeSet::new())),
        tall,
    )
}

/// Centres a drawing that fits; of a larger one shows what is around the active node.
fn origin(run: &Run, drawing: &Drawing, inner: Rect) -> Point {
    let (w, h) = (i32::from(inner.width), i32::from(inner.height));
    let focus = run
        .focus_node()
        .and_then(|node| drawing.card_of(node))
        .map(|card| card.area.center());
    let axis = |size: i32, room: i32, at: Option<i32>| {
        if size <= room {
            -(room - size) / 2
        } else {
            (at.unwrap_or(0) - room / 2).clamp(0, size - room)
        }
    };
    Point {
        x: axis(drawing.width, w, focus.map(|at| at.x)),
        y: axis(drawing.height, h, focus.map(|at| at.y)),
    }
}

fn header(run: &Run, theme: &Theme, area: Rect, buffer: &mut Buffer, now: Millis) {
    let Some(view) = &run.view else { return };
    let mark = Mark::of(view.display.status);
    let title = clean(view.state.run_title.as_deref().unwrap_or(&view.state.workflow_name)).into_owned();
    let time = elapsed(view, now).map_or_else(String::new, clock::duration);
    let right = format!("{} {} · {time} ", theme.glyph(mark), mark.word());
    let room = usize::from(area.width).saturating_sub(width(&right) + 8);
    buffer.set_stringn(
        1,
        0,
        format!("piw · {}", fit(&title, room)),
        usize::from(area.width),
        theme.accent(),
    );
    buffer.set_stringn(
        area.right() - width(&right) as u16,
        0,
        &right,
        usize::from(area.width),
        theme.status(mark),
    );
    let line = format!("{} · run {}", clean(&view.state.workflow_name), clean(&view.run_id));
    buffer.set_stringn(1, 1, fit(&line, 118), 118, theme.subtext());
    let active = view
        .state
        .current_node
        .as_deref()
        .map(|node| format!("now: {}", clean(node)));
    let waiting = view
        .state
        .waiting_on
        .as_deref()
        .map(|node| format!("waiting on: {}", clean(node)));
    if let Some(text) = active.or(waiting) {
        let text = fit(&text, 50).into_owned();
        buffer.set_stringn(area.right() - width(&text) as u16 - 1, 1, &text, 50, theme.active());
    }
}

fn graph_panel(drawing: &Drawing, theme: &Theme, place: Rect, buffer: &mut Buffer) -> Rect {
    let (w, h) = (i32::from(place.width - 2), i32::from(place.height - 2));
    let note = if drawing.width > w || drawing.height > h {
        " · larger than this frame"
    } else {
        ""
    };
    let title = format!(" Graph · {}{note} ", drawing.density.name());
    widgets::panel(Line::raw(title), theme, false, place, buffer)
}

fn rows(run: &Run, theme: &Theme, columns: usize, build: impl FnOnce(&mut Rows<'_>)) -> Vec<Row> {
    let toggled = std::collections::HashSet::new();
    let hints = Hints::default();
    let mut rows = Rows::new(run, theme, &toggled, &hints, columns);
    rows.still = true;
    build(&mut rows);
    rows.rows
}

fn list(title: &str, rows: &[Row], theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let inner = widgets::panel(Line::raw(format!(" {title} ")), theme, false, area, buffer);
    for (y, row) in (inner.y..inner.bottom()).zip(rows) {
        buffer.set_line(inner.x, y, &row.line, inner.width);
    }
}

/// Steps above, facts below, beside the graph.
fn side(run: &Run, theme: &Theme, area: Rect, buffer: &mut Buffer, now: Millis) {
    let columns = usize::from(area.width - 2);
    let facts = rows(run, theme, columns, |rows| info::build(rows, now));
    let listed = rows(run, theme, columns, |rows| steps::build(rows, now));
    let steps_height = (listed.len() as u16 + 2).clamp(4, area.height / 2);
    let (upper, lower) = (
        Rect {
            height: steps_height,
            ..area
        },
        Rect {
            y: area.y + steps_height,
            height: area.height - steps_height,
            ..area
        },
    );
    newest(&listed, theme, upper, buffer);
    list("Info", &facts, theme, lower, buffer);
}

/// Steps on the left, facts on the right, below the graph.
fn below(run: &Run, theme: &Theme, area: Rect, buffer: &mut Buffer, now: Millis) {
    let half = area.width / 2;
    let listed = rows(run, theme, usize::from(half - 2), |rows| steps::build(rows, now));
    let facts = rows(run, theme, usize::from(area.width - half - 2), |rows| {
        info::build(rows, now);
    });
    newest(&listed, theme, Rect { width: half, ..area }, buffer);
    list(
        "Info",
        &facts,
        theme,
        Rect {
            x: half,
            width: area.width - half,
            ..area
        },
        buffer,
    );
}

/// The last steps that fit.
fn newest(listed: &[Row], theme: &Theme, area: Rect, buffer: &mut Buffer) {
    let room = usize::from(area.height - 2);
    let from = listed.len().saturating_sub(room);
    let title = if from > 0 { "Steps · newest" } else { "Steps" };
    list(title, &listed[from..], theme, area, buffer);
}

/// The buffer as lines; a wide character takes the cell after it.
fn text(buffer: &Buffer) -> String {
    let mut out = String::with_capacity(usize::from(COLUMNS + 1) * usize::from(LINES) * 2);
    for y in 0..LINES {
        let mut x = 0;
        while x < COLUMNS {
            let symbol = buffer[(x, y)].symbol();
            out.push_str(symbol);
            x += (width(symbol) as u16).max(1);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::viewer::fixtures;

    #[test]
    fn a_plain_frame_names_no_keys_for_content() {
        let fixture = fixtures::waiting();
        let mut view = fixture.view();
        view.state.human_decision.as_mut().unwrap()["request"]["request"] = serde_json::json!({"$artifact": {
            "path": "artifacts/sha256/ab.json", "mediaType": "application/json", "bytes": 50_000_000, "sha256": "ab".repeat(32),
        }});
        let text = frame(&view, &fixture.definition, fixtures::START + 31_000);
        assert!(
            text.contains("47.7 MiB, not shown") && !text.contains("Enter"),
            "{text}"
        );
        assert!(text.contains("Publish 1.4.0 with these notes?"), "{text}");
    }

    #[test]
    fn frames_are_exact_and_show_the_whole_graph() {
        for (name, fixture) in [
            ("running", fixtures::running()),
            ("failed", fixtures::failed()),
            ("waiting", fixtures::waiting()),
        ] {
            let text = frame(&fixture.view(), &fixture.definition, fixtures::START + 31_000);
            assert_eq!(text.lines().count(), usize::from(LINES));
            for line in text.lines() {
                assert_eq!(width(line), usize::from(COLUMNS), "{line}");
            }
            for node in &fixture.definition.node_order {
                assert!(text.contains(node.as_str()), "{node} is named");
            }
            let again = frame(&fixture.view(), &fixture.definition, fixtures::START + 31_000);
            assert_eq!(text, again);
            insta::assert_snapshot!(name, text);
        }
    }
}
