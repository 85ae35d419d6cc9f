//! The widget above the editor and the status line, as plain text. Pure.

use std::time::Duration;

use piw_protocol::definition::NodeType;
use piw_protocol::interaction::{SessionNode, SessionRun, SessionView};
use piw_protocol::run::{DisplayStatus, StoredUpdate};

use crate::follow::lines::{status_mark, status_name};
use crate::follow::{between, elapsed};
use crate::text;

/// Most lines of a widget; Pi takes no more.
pub(crate) const LINES: usize = 10;
/// Columns of a node's name before everything else gets less room.
const NAME: usize = 28;

/// The widget of a view: a head line, then one line a node. Nothing without a run. `is_stale` marks a view that nobody keeps
/// current. `now` is RFC 3339.
pub(crate) fn lines(view: &SessionView, is_stale: bool, columns: usize, now: &str) -> Vec<String> {
    let Some(run) = &view.run else { return Vec::new() };
    let mut lines = vec![head(view, run, is_stale, now)];
    let name = run
        .nodes
        .iter()
        .map(|node| text::width(&text::clean(&node.node_id)))
        .max()
        .unwrap_or(0)
        .min(NAME);
    let room = LINES - lines.len();
    // The server starts the window a few rows before the working node, so that the first rows are the wanted ones.
    let shown = &run.nodes[..run.nodes.len().min(room)];
    let hidden_after = run.node_total.saturating_sub(run.node_start + shown.len() as u64);
    let hidden = hidden_after + run.node_start;
    let (shown, cut) = if hidden > 0 && shown.len() == room {
        (&shown[..room - 1], true)
    } else {
        (shown, hidden > 0)
    };
    lines.extend(shown.iter().map(|node| row(run, node, name, is_stale, now)));
    if cut {
        let before = run.node_start;
        let after = run.node_total.saturating_sub(before + shown.len() as u64);
        let mut more = Vec::new();
        if before > 0 {
            more.push(format!("{before} above"));
        }
        if after > 0 {
            more.push(format!("{after} below"));
        }
        lines.push(format!("  … {} · Shift+Up/Down", more.join(", ")));
    }
    for line in &mut lines {
        *line = text::fit(line, columns).into_owned();
    }
    lines
}

fn head(view: &SessionView, run: &SessionRun, is_stale: bool, now: &str) -> String {
    let (glyph, _) = status_mark(run.display.status);
    let title = run.run_title.as_deref().unwrap_or(&run.workflow_name);
    let end = run.finished_at.as_deref().unwrap_or(now);
    let mut parts = vec![
        format!("{glyph} {}", text::clean(title)),
        status_name(run.display.status).to_owned(),
    ];
    if !is_stale || run.finished_at.is_some() {
        parts.push(elapsed(between(&run.started_at, end)));
    }
    if is_stale {
        parts.push("not connected, last known".into());
    } else if let Some(hint) = hint(view, run) {
        parts.push(hint);
    }
    parts.join(" · ")
}

/// What a person can do now.
fn hint(view: &SessionView, run: &SessionRun) -> Option<String> {
    let may = |control: &str| run.display.controls.iter().any(|known| known == control);
    if may("human-answer") || may("answer") {
        return Some("/workflow answer".into());
    }
    if run.display.status == DisplayStatus::Paused && may("resume") {
        return Some("/workflow resume".into());
    }
    if let Some(rejected) = view.interaction.as_ref().and_then(|request| request.rejection.as_ref()) {
        return Some(format!("rejected: {}", text::clean(rejected)));
    }
    let reason = run.display.reason.as_deref().filter(|reason| !reason.is_empty());
    reason.map(|reason| text::clean(reason).into_owned())
}

fn row(run: &SessionRun, node: &SessionNode, name: usize, is_stale: bool, now: &str) -> String {
    let glyph = node.status.map_or('·', |status| status_mark(status).0);
    let kind = match node.node_type {
        NodeType::Agent => '●',
        NodeType::Compute => 'ƒ',
        NodeType::Action => '*',
        NodeType::Notify => '!',
        NodeType::Checkpoint => '◆',
    };
    let attempts = match node.attempts {
        0 | 1 => String::new(),
        more => format!("↻{more}"),
    };
    let time = match (&node.started_at, &node.finished_at) {
        (Some(start), Some(end)) => elapsed(between(start, end)),
        (Some(start), None) if !is_stale => elapsed(between(start, now)),
        _ => String::new(),
    };
    let detail = progress(&run.progress, node)
        .or_else(|| node.status_detail.clone())
        .unwrap_or_default();
    let line = format!(
        "{glyph} {kind} {}  {attempts:<4}{time:>7}  {}",
        text::pad(&text::clean(&node.node_id), name),
        text::clean(&detail)
    );
    line.trim_end().to_owned()
}

/// The newest progress that the node published, while it works.
fn progress(updates: &[StoredUpdate], node: &SessionNode) -> Option<String> {
    if node.finished_at.is_some() {
        return None;
    }
    let newest = updates
        .iter()
        .filter(|stored| stored.node_id == node.node_id && stored.update.update_type == "progress")
        .max_by_key(|stored| stored.seq)?;
    let data = &newest.update.data;
    let number = |field: &str| data.get(field).and_then(serde_json::Value::as_f64);
    let label = data.get("label").and_then(|label| label.as_str()).unwrap_or_default();
    let counts = match (number("completed"), number("total")) {
        (Some(done), Some(total)) => format!("{done}/{total}"),
        (Some(done), None) => format!("{done}"),
        _ => String::new(),
    };
    let both = format!("{counts} {label}");
    let both = both.trim();
    (!both.is_empty()).then(|| both.to_owned())
}

/// The status line: the run in one glance, or why there is none. Nothing when there is nothing to say.
pub(crate) fn status(view: Option<&SessionView>, trouble: Option<&str>) -> Option<String> {
    let run = view.and_then(|view| view.run.as_ref());
    if let Some(trouble) = trouble {
        return run
            .is_some()
            .then(|| text::fit(&format!("piw: {}", text::clean(trouble)), 60).into_owned());
    }
    let run = run?;
    let (glyph, _) = status_mark(run.display.status);
    let node = run
        .waiting_on
        .as_deref()
        .or(run.current_node.as_deref())
        .unwrap_or_default();
    let whole = format!(
        "{glyph} {} {} {}",
        text::clean(&run.workflow_name),
        status_name(run.display.status),
        text::clean(node)
    );
    Some(text::fit(whole.trim_end(), 60).into_owned())
}

/// Whether the text changes as time passes.
pub(crate) fn moves(view: &SessionView) -> bool {
    view.run.as_ref().is_some_and(|run| run.finished_at.is_none())
}

/// Pause between two looks at a moving widget.
pub(crate) const REFRESH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use piw_protocol::interaction::SESSION_VIEW_SCHEMA;
    use piw_protocol::run::Update;
    use piw_protocol::view::Display;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:01:00.000Z";

    fn node(id: &str, status: Option<DisplayStatus>) -> SessionNode {
        SessionNode {
            node_id: id.into(),
            node_type: NodeType::Agent,
            status,
            attempts: u32::from(status.is_some()),
            started_at: status.map(|_| "2026-01-01T00:00:30.000Z".into()),
            finished_at: status
                .filter(|status| *status == DisplayStatus::Completed)
                .map(|_| "2026-01-01T00:00:42.000Z".into()),
            status_detail: None,
        }
    }

    fn view(nodes: Vec<SessionNode>) -> SessionView {
        SessionView {
            schema: SESSION_VIEW_SCHEMA.into(),
            session_id: "s".into(),
            coordinator_epoch: 1,
            coordinator_active: true,
            branch_report_required: false,
            run: Some(SessionRun {
                run_id: "r".into(),
                run_revision: 1,
                origin_session_id: "s".into(),
                workflow_name: "review".into(),
                run_title: None,
                display: Display {
                    status: DisplayStatus::Running,
                    activity: None,
                    controls: vec!["pause".into()],
                    reason: None,
                    reason_content: None,
                },
                current_node: Some("write".into()),
                waiting_on: None,
                paused: false,
                started_at: "2026-01-01T00:00:00.000Z".into(),
                finished_at: None,
                updated_at: NOW.into(),
                node_start: 0,
                node_total: nodes.len() as u64,
                nodes,
                progress: vec![],
            }),
            interaction: None,
            workflow_message: None,
            open_workflow_turn: None,
        }
    }

    #[test]
    fn one_line_a_node_with_status_type_attempts_time_and_progress() {
        let mut shown = view(vec![
            node("plan", Some(DisplayStatus::Completed)),
            node("write", Some(DisplayStatus::Running)),
            node("judge", None),
        ]);
        let run = shown.run.as_mut().unwrap();
        run.nodes[1].attempts = 3;
        run.progress = vec![StoredUpdate {
            update: Update {
                update_type: "progress".into(),
                key: "files".into(),
                data: json!({"completed": 2, "total": 5, "label": "files"}),
            },
            node_id: "write".into(),
            attempt_id: "a".into(),
            seq: 1,
            at: NOW.into(),
            estimate: None,
            rate: None,
        }];
        assert_eq!(
            lines(&shown, false, 80, NOW),
            [
                "◉ review · running · 1m00s",
                "✓ ● plan           12s",
                "◉ ● write  ↻3      30s  2/5 files",
                "· ● judge",
            ]
        );
        assert_eq!(status(Some(&shown), None).as_deref(), Some("◉ review running write"));
        let stale = lines(&shown, true, 80, NOW);
        assert_eq!(stale[0], "◉ review · running · not connected, last known");
        assert!(!stale[2].contains("30s"), "time does not go on in a stale view");
    }

    #[test]
    fn a_person_is_told_what_to_type() {
        let mut shown = view(vec![]);
        shown.run.as_mut().unwrap().display.controls = vec!["human-answer".into()];
        assert!(lines(&shown, false, 80, NOW)[0].ends_with("/workflow answer"));
        shown.run.as_mut().unwrap().display.controls = vec!["resume".into()];
        shown.run.as_mut().unwrap().display.status = DisplayStatus::Paused;
        assert!(lines(&shown, false, 80, NOW)[0].ends_with("/workflow resume"));
    }

    #[test]
    fn long_workflows_fit_ten_lines_and_say_what_is_hidden() {
        let mut shown = view((0..32).map(|n| node(&format!("n{n}"), None)).collect());
        let run = shown.run.as_mut().unwrap();
        run.node_start = 4;
        run.node_total = 40;
        let lines = lines(&shown, false, 80, NOW);
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[9], "  … 4 above, 28 below · Shift+Up/Down");
        assert!(lines[8].contains("n7"));
    }

    #[test]
    fn nothing_is_shown_without_a_run() {
        let mut shown = view(vec![]);
        shown.run = None;
        assert_eq!(lines(&shown, false, 80, NOW), Vec::<String>::new());
        assert_eq!(status(Some(&shown), Some("the server is away")), None);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal_nor_holds_a_control(
            name in "\\PC{0,60}", title in ".{0,200}", columns in 1_usize..120
        ) {
            let mut shown = view(vec![node(&name, Some(DisplayStatus::Failed))]);
            shown.run.as_mut().unwrap().run_title = Some(title);
            for line in lines(&shown, false, columns, NOW) {
                prop_assert!(text::width(&line) <= columns, "{line:?}");
                prop_assert!(!line.chars().any(char::is_control), "{line:?}");
            }
        }
    }
}
