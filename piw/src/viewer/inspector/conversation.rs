//! The Conversation tab: the settled entries of the recorded Pi session as a reader sees them, then what is still streamed. A
//! run without a session says so.

use piw_protocol::session::{CaptureState, Conversation, LiveTool, SessionEntryView, SessionRunView};
use piw_protocol::view::ViewValue;
use ratatui::style::{Modifier, Style};
use ratatui::text::Span;
use serde_json::Value;

use super::rows::{Action, Rows, Whole};
use crate::text::{clean, counted};
use crate::viewer::clock::{self, Millis};
use crate::viewer::message::Content;
use crate::viewer::theme::{Mark, Theme};

/// Longest text of a tool's result that is open by itself, in lines.
const OPEN_RESULT: usize = 8;
/// Bytes of a streamed text that are shown: its end.
const STREAMED: usize = 16 * 1024;

/// Adds the conversation at the shown position.
pub fn build(rows: &mut Rows<'_>, now: Millis) {
    let run = rows.run;
    let Some(session) = run.session() else {
        let text = if run.view.is_some() {
            "This run is bound to no session: there is no conversation."
        } else {
            "Nothing is known of this run yet."
        };
        return rows.push(vec![Span::styled(text, rows.theme.muted())], None);
    };
    capture(rows, session);
    let (start, settled, entries) = run.entries();
    let end = start + entries.len() as u64;
    if start > 0 || end < settled {
        let text = format!(
            "entries {} – {end} of {settled}{}",
            start + 1,
            rows.hints.pages(start, end, settled)
        );
        rows.push(vec![Span::styled(text, rows.theme.muted())], None);
    }
    for entry in entries {
        settled_entry(rows, entry);
    }
    if end == settled
        && let Some(conversation) = run.replay.conversation()
    {
        live(rows, conversation, now);
    }
}

/// How the recording stands, and what is missing in it.
pub fn capture(rows: &mut Rows<'_>, session: &SessionRunView) {
    let theme = rows.theme;
    let (mark, text) = match session.capture.state {
        CaptureState::None => (Mark::Idle, "nothing is recorded yet"),
        CaptureState::Recording => (Mark::Running, "recording"),
        CaptureState::Complete => (Mark::Ok, "recorded whole"),
        CaptureState::Failed => (Mark::Failed, "capture failed"),
    };
    let mut spans = vec![Span::styled(
        format!("{} {text}", theme.glyph(mark)),
        theme.status(mark),
    )];
    let session_id = clean(&session.binding.session_id).into_owned();
    spans.push(Span::styled(format!("  session {session_id}"), theme.muted()));
    rows.push(spans, None);
    if let Some(reason) = &session.capture.reason {
        rows.text(2, reason, theme.error());
    }
    for finding in &session.integrity {
        rows.text(2, finding, theme.warning());
    }
}

/// An entry: who it is from, then its parts. Enter on the head shows the raw record.
fn settled_entry<'a>(rows: &mut Rows<'a>, entry: &'a SessionEntryView) {
    let key = format!("entry/{}", entry.index);
    rows.gap();
    let from = rows.rows.len();
    let content = match ViewValue::from_wire(&entry.content) {
        ViewValue::Artifact(reference) => {
            head(rows, &key, &entry.kind, Some(&entry.at), "");
            match rows.fetched(2, "entry", &reference) {
                Some(Content::Json(value)) => Some(value.as_ref()),
                _ => None,
            }
            .map(|value| (value, Some(reference)))
        }
        ViewValue::Inline(_) => {
            let content = entry.content.get("$escaped").unwrap_or(&entry.content);
            head(
                rows,
                &key,
                role(&entry.kind, content),
                Some(&entry.at),
                tool_of(content),
            );
            Some((content, None))
        }
    };
    let Some((content, reference)) = content else {
        return rows.stands_for(from, "entry", || whole(entry));
    };
    if rows.is_open(&format!("{key}/raw"), false) {
        rows.json(2, &format!("{key}/raw/value"), "raw", content, 0);
    } else {
        parts(rows, &key, content);
    }
    rows.stands_for(from, &format!("entry {}", entry.index + 1), || match reference {
        Some(reference) => Whole::Fetched(reference, None),
        None => whole(entry),
    });
}

fn whole(entry: &SessionEntryView) -> Whole {
    match ViewValue::from_wire(&entry.content) {
        ViewValue::Artifact(reference) => Whole::Fetched(reference, None),
        ViewValue::Inline(value) => Whole::Json(value),
    }
}

/// The message of an entry; entries without one are their own.
fn message(content: &Value) -> &Value {
    content
        .get("message")
        .filter(|message| message.is_object())
        .unwrap_or(content)
}

fn role<'a>(kind: &'a str, content: &'a Value) -> &'a str {
    let message = message(content);
    let role = message.get("role").or_else(|| message.get("customType"));
    role.and_then(Value::as_str).unwrap_or(kind)
}

fn tool_of(content: &Value) -> &str {
    message(content).get("toolName").and_then(Value::as_str).unwrap_or("")
}

/// Name and colour of who speaks.
fn speaker(theme: &Theme, role: &str) -> (String, Style) {
    let palette = &theme.palette;
    let (name, color) = match role {
        "user" => ("user", palette.teal),
        "assistant" => ("assistant", palette.mauve),
        "toolResult" => ("result", palette.peach),
        other => (other, palette.lavender),
    };
    let style = Style::new().fg(color).add_modifier(Modifier::BOLD);
    (clean(name).into_owned(), style)
}

fn head(rows: &mut Rows<'_>, key: &str, role: &str, at: Option<&str>, note: &str) {
    let theme = rows.theme;
    let (name, style) = speaker(theme, role);
    let bar = if theme.ascii { "# " } else { "▌ " };
    let mut spans = vec![Span::styled(bar, style), Span::styled(name, style)];
    if !note.is_empty() {
        spans.push(Span::styled(
            format!(" {}", clean(note)),
            Style::new().fg(theme.palette.text),
        ));
    }
    if let Some(at) = at {
        spans.push(Span::styled(
            format!("  {}", clean(clock::time_of_day(at))),
            theme.muted(),
        ));
    }
    let raw = format!("{key}/raw");
    if rows.is_open(&raw, false) {
        spans.push(Span::styled("  raw", theme.key()));
    }
    rows.push(spans, Some(Action::Toggle(raw)));
}

/// The parts of a message, each as what it is.
fn parts(rows: &mut Rows<'_>, key: &str, content: &Value) {
    let message = message(content);
    let failed = message.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let result = message.get("role").and_then(Value::as_str) == Some("toolResult");
    let body = message.get("content").unwrap_or(&Value::Null);
    match body {
        Value::String(text) => said(rows, &format!("{key}/text"), text, result, failed),
        Value::Array(list) => {
            for (index, part) in list.iter().enumerate() {
                let key = format!("{key}/{index}");
                let text = |name: &str| part.get(name).and_then(Value::as_str);
                match (text("type"), text("text"), text("thinking")) {
                    (Some("text"), Some(text), _) => said(rows, &key, text, result, failed),
                    (Some("thinking"), _, Some(text)) => thinking(rows, &key, text),
                    (Some("toolCall"), ..) => call(rows, &key, part),
                    _ => rows.json(2, &key, text("type").unwrap_or("part"), part, 1),
                }
            }
        }
        _ => rows.json(2, &format!("{key}/content"), "", message, 0),
    }
    if let Some(error) = message.get("errorMessage").and_then(Value::as_str) {
        rows.text(2, error, rows.theme.error());
    }
}

/// Text: Markdown, unless it is what a tool gave.
fn said(rows: &mut Rows<'_>, key: &str, text: &str, result: bool, failed: bool) {
    let from = rows.rows.len();
    if !result {
        rows.markdown(2, key, text);
    } else if text.lines().take(OPEN_RESULT + 1).count() > OPEN_RESULT {
        rows.lines(0, key, if failed { "failed" } else { "result" }, text);
    } else {
        let style = if failed {
            rows.theme.error()
        } else {
            rows.theme.subtext()
        };
        rows.text(2, text, style);
    }
    rows.stands_for(from, "text", || Whole::Text(text.to_owned()));
}

/// Settled thinking is one dim line until it is opened.
fn thinking(rows: &mut Rows<'_>, key: &str, text: &str) {
    let theme = rows.theme;
    let from = rows.rows.len();
    let open = rows.is_open(key, false);
    let lines = counted(text.lines().take(10_000).count() as u64, "line");
    let head = format!("{} thinking · {lines}", arrow(theme, open));
    rows.push(
        vec![Span::styled(head, dim(theme))],
        Some(Action::Toggle(key.to_owned())),
    );
    if open {
        rows.text(2, text, dim(theme));
    }
    rows.stands_for(from, "thinking", || Whole::Text(text.to_owned()));
}

/// A tool call with its arguments in one line, foldable.
fn call(rows: &mut Rows<'_>, key: &str, part: &Value) {
    let name = part.get("name").and_then(Value::as_str).unwrap_or("tool");
    let arguments = part.get("arguments").unwrap_or(&Value::Null);
    let style = Style::new().fg(rows.theme.palette.peach);
    tool(rows, key, "called", style, name, arguments);
}

fn tool(rows: &mut Rows<'_>, key: &str, note: &str, style: Style, name: &str, arguments: &Value) {
    let theme = rows.theme;
    let from = rows.rows.len();
    let open = rows.is_open(key, false);
    let name = clean(name).into_owned();
    let title = format!("{} {note} {name}", arrow(theme, open));
    let room = rows.columns.saturating_sub(crate::text::width(&title) + 2);
    let shown = if open {
        String::new()
    } else {
        super::rows::preview(arguments, room)
    };
    rows.push(
        vec![
            Span::styled(format!("{} {note} ", arrow(theme, open)), style),
            Span::styled(name, Style::new().fg(theme.palette.text).add_modifier(Modifier::BOLD)),
            Span::styled(format!("  {shown}"), theme.muted()),
        ],
        Some(Action::Toggle(key.to_owned())),
    );
    if open {
        rows.wire = Some(0);
        rows.json(2, &format!("{key}/arguments"), "arguments", arguments, 0);
        rows.wire = None;
    }
    rows.stands_for(from, "arguments", || Whole::Json(arguments.clone()));
}

/// What is streamed and has not settled.
fn live(rows: &mut Rows<'_>, conversation: &Conversation, now: Millis) {
    let theme = rows.theme;
    let replayed = rows.run.cursor.is_some();
    if let Some(message) = &conversation.message {
        rows.gap();
        let from = rows.rows.len();
        let (name, style) = speaker(theme, &message.role);
        let bar = if theme.ascii { "# " } else { "▌ " };
        let (mark, state) = match (message.complete, replayed) {
            (true, _) => (Mark::Queued, "complete, not settled yet"),
            (false, true) => (Mark::Replay, "was being written"),
            (false, false) => (Mark::Running, "writing"),
        };
        rows.push(
            vec![
                Span::styled(bar, style),
                Span::styled(name, style),
                Span::styled(format!("  {} {state}", theme.glyph(mark)), theme.status(mark)),
            ],
            None,
        );
        if !message.thinking.trim().is_empty() {
            rows.text(2, end_of(&message.thinking), dim(theme));
        }
        if !message.text.trim().is_empty() {
            rows.text(2, end_of(&message.text), Style::new().fg(theme.palette.text));
        }
        rows.stands_for(from, "message", || Whole::Text(message.text.clone()));
    }
    for call in &conversation.tools {
        live_tool(rows, call, now, replayed);
    }
    if conversation.message.is_none() && conversation.tools.is_empty() {
        let reason = conversation
            .stop_reason
            .as_deref()
            .filter(|reason| *reason != "completed");
        if let Some(reason) = reason {
            rows.gap();
            let text = format!("the turn ended: {}", clean(reason));
            rows.push(vec![Span::styled(text, theme.warning())], None);
        } else if conversation.turn.is_some() {
            rows.gap();
            let mark = if replayed { Mark::Replay } else { Mark::Running };
            let text = format!("{} a turn is open", theme.glyph(mark));
            rows.push(vec![Span::styled(text, theme.status(mark))], None);
        }
    }
}

fn live_tool(rows: &mut Rows<'_>, call: &LiveTool, now: Millis, replayed: bool) {
    let theme = rows.theme;
    let until = if replayed || call.failed.is_some() {
        clock::parse(&call.updated_at)
    } else {
        Some(now)
    };
    let time = clock::parse(&call.started_at)
        .zip(until)
        .map_or_else(String::new, |(from, to)| clock::duration(to - from));
    let mark = match (call.failed, replayed) {
        (Some(true), _) => Mark::Failed,
        (Some(false), _) => Mark::Ok,
        (None, true) => Mark::Replay,
        (None, false) => Mark::Running,
    };
    let note = format!("{} {time}", theme.glyph(mark));
    tool(
        rows,
        &format!("live/{}", call.call_id),
        &note,
        theme.status(mark),
        &call.tool,
        &call.args,
    );
}

/// The end of a long streamed text.
fn end_of(text: &str) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(STREAMED))..]
}

fn dim(theme: &Theme) -> Style {
    theme.muted().add_modifier(Modifier::ITALIC)
}

const fn arrow(theme: &Theme, open: bool) -> &'static str {
    match (open, theme.ascii) {
        (true, false) => "▾",
        (false, false) => "▸",
        (true, true) => "-",
        (false, true) => "+",
    }
}
