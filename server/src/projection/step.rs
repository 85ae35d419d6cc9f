//! Steps and trace events as they travel: large values by reference, texts cut to what a list can show.

use std::sync::{Arc, Mutex, PoisonError};

use piw_protocol::child::ContentRef;
use piw_protocol::run::{ActionReceipt, ErrorInfo, Step};
use piw_protocol::view::{ArtifactEnvelope, StepView, TraceEvent};
use piw_state::query::steps::StepRow;
use piw_state::query::trace::{TraceAttempt, TraceRow};
use piw_state::query::{QueryError, Reader, StoredValue, content as stored, rfc3339};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::bounds::{TEXT_LIMIT, cut, cut_front};
use super::content::Contents;
use super::nodes::Nodes;

/// Shortened results that are remembered: those of the last windows and pages.
const KEPT: usize = 512;
/// A result above this is not opened for a list; it travels by reference alone.
const OPEN_LIMIT: u64 = 8 * 1024 * 1024;

/// What a step has besides its output and prompt.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StepResult {
    #[serde(default)]
    pub(crate) error: Option<ErrorInfo>,
    #[serde(default)]
    pub(crate) action: Option<ActionReceipt>,
    #[serde(default)]
    pub(crate) assistant_message: Option<Value>,
    #[serde(default)]
    pub(crate) conversation: Option<Value>,
    /// The whole, when something above was shortened.
    #[serde(skip)]
    whole: Option<Whole>,
}

#[derive(Debug, Clone, PartialEq)]
enum Whole {
    Blob(i64, ContentRef),
    Value(Arc<Value>),
}

/// Shortened forms of large stored results by `blobs.id`; they never change. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct ResultCache {
    recent: Arc<Mutex<Vec<(i64, StepResult)>>>,
}

impl ResultCache {
    /// Reads a step's result and shortens its texts.
    pub(crate) fn read(&self, reader: &Reader, result: Option<StoredValue>) -> Result<StepResult, QueryError> {
        match result {
            None => Ok(StepResult::default()),
            Some(StoredValue::Inline(value)) => {
                let mut result = parse(value.clone())?;
                if shorten(&mut result) {
                    result.whole = Some(Whole::Value(Arc::new(value)));
                }
                Ok(result)
            }
            Some(StoredValue::Content { blob, reference }) => self.read_blob(reader, blob, reference),
        }
    }

    fn read_blob(&self, reader: &Reader, blob: i64, reference: ContentRef) -> Result<StepResult, QueryError> {
        let known = {
            let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent
                .iter()
                .find(|(id, _)| *id == blob)
                .map(|(_, result)| result.clone())
        };
        if let Some(result) = known {
            return Ok(result);
        }
        let mut result = if reference.bytes <= OPEN_LIMIT {
            parse(stored::json(reader, blob, &reference)?)?
        } else {
            StepResult::default()
        };
        shorten(&mut result);
        result.whole = Some(Whole::Blob(blob, reference));
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= KEPT {
            recent.drain(..KEPT / 2);
        }
        recent.push((blob, result.clone()));
        Ok(result)
    }
}

fn parse(value: Value) -> Result<StepResult, QueryError> {
    serde_json::from_value(value).map_err(|error| QueryError::Corrupt {
        what: "step result",
        message: error.to_string(),
    })
}

/// Cuts the texts of a result; whether any was cut.
fn shorten(result: &mut StepResult) -> bool {
    let mut changed = false;
    if let Some(error) = &mut result.error {
        changed |= shorten_text(&mut error.message, cut);
        changed |= error.stack.as_mut().is_some_and(|stack| shorten_text(stack, cut));
    }
    if let Some(action) = &mut result.action {
        for (text, truncated) in [
            (&mut action.stdout, &mut action.stdout_truncated),
            (&mut action.stderr, &mut action.stderr_truncated),
        ] {
            if let Some(text) = text
                && shorten_text(text, cut_front)
            {
                *truncated = true;
                changed = true;
            }
        }
        if super::bounds::size(&action.args) > TEXT_LIMIT {
            let args = action.args.take().unwrap_or_default();
            action.args = Some(vec![cut(&args.join(" "), TEXT_LIMIT / 2)]);
            changed = true;
        }
        if let Some(command) = &mut action.command {
            changed |= shorten_text(command, cut);
        }
    }
    for value in [&mut result.assistant_message, &mut result.conversation] {
        if value
            .as_ref()
            .is_some_and(|value| super::bounds::size(value) > TEXT_LIMIT)
        {
            *value = None;
            changed = true;
        }
    }
    changed
}

fn shorten_text(text: &mut String, cut: fn(&str, usize) -> String) -> bool {
    if text.len() <= TEXT_LIMIT {
        return false;
    }
    *text = cut(text, TEXT_LIMIT);
    true
}

impl StepResult {
    /// The reference to the whole, when something was shortened.
    fn content(&self, contents: &mut Contents) -> Option<ArtifactEnvelope> {
        let artifact = match self.whole.as_ref()? {
            Whole::Blob(blob, reference) => contents.blob(*blob, reference.clone()),
            Whole::Value(value) => contents.json(value),
        };
        Some(ArtifactEnvelope { artifact })
    }
}

/// What makes steps and events of one view.
pub(crate) struct StepMaker<'a> {
    pub(crate) reader: &'a Reader,
    pub(crate) run_id: &'a str,
    pub(crate) nodes: &'a Nodes,
    pub(crate) results: &'a ResultCache,
}

impl StepMaker<'_> {
    /// A step.
    pub(crate) fn step(&self, row: StepRow, contents: &mut Contents) -> Result<StepView, QueryError> {
        let (node_id, node_type) = self.nodes.get(row.node)?;
        let result = self.results.read(self.reader, row.result)?;
        let content = result.content(contents);
        Ok(StepView {
            step: Step {
                attempt_id: row.attempt_id,
                node_id: node_id.to_owned(),
                node_type,
                outcome: row.outcome,
                started_at: rfc3339(row.started_at),
                finished_at: rfc3339(row.finished_at),
                prompt: contents.stored(row.prompt).to_wire(),
                output: contents.stored(row.output).to_wire(),
                error: result.error,
                action: result.action,
                assistant_message: result.assistant_message,
                conversation: result.conversation,
                status_detail: row.status_detail.map(|detail| cut(&detail, TEXT_LIMIT)),
                active_ms: row.active_ms,
                visit: Some(u32::try_from(row.visit).unwrap_or(u32::MAX)),
            },
            index: Some(row.index),
            result_content: content,
        })
    }

    /// A trace event.
    pub(crate) fn event(&self, row: TraceRow, contents: &mut Contents) -> Result<TraceEvent, QueryError> {
        let node_id = row.node.map(|node| self.nodes.id(node)).transpose()?;
        let attempt_id = row.attempt.as_ref().map(|attempt| attempt.attempt_id.clone());
        let payload = match (row.payload, row.attempt) {
            (payload, Some(attempt)) if row.event_type.starts_with("node.") => {
                self.node_payload(payload, attempt, contents)?
            }
            (Some(Value::Object(map)), _) => map
                .into_iter()
                .map(|(key, value)| (key, contents.value(value).to_wire()))
                .collect(),
            (Some(value), _) => Map::from_iter([("value".to_owned(), contents.value(value).to_wire())]),
            (None, _) => Map::new(),
        };
        Ok(TraceEvent {
            seq: row.seq,
            at: rfc3339(row.at),
            scope: row.scope,
            event_type: row.event_type,
            run_id: self.run_id.to_owned(),
            node_id,
            attempt_id,
            payload: contents.value(Value::Object(payload)).to_wire(),
        })
    }

    /// The facts of a node event are columns of its attempt.
    fn node_payload(
        &self,
        own: Option<Value>,
        attempt: TraceAttempt,
        contents: &mut Contents,
    ) -> Result<Map<String, Value>, QueryError> {
        let mut payload = match own {
            Some(Value::Object(map)) => map,
            _ => Map::new(),
        };
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                payload.entry(key).or_insert(value);
            }
        };
        put("visit", attempt.visit.into());
        put("generation", attempt.generation.into());
        put("timeoutMs", attempt.timeout_ms.into());
        put(
            "statusDetail",
            attempt.status_detail.map(|detail| cut(&detail, TEXT_LIMIT)).into(),
        );
        if attempt.prompt.is_some() {
            put("prompt", contents.stored(attempt.prompt).to_wire());
        }
        if attempt.ends {
            put("outcome", attempt.outcome.into());
            put("activeMs", attempt.active_ms.into());
            if attempt.output.is_some() {
                put("output", contents.stored(attempt.output).to_wire());
            }
            let result = self.results.read(self.reader, attempt.result)?;
            let whole = result.content(contents);
            put("error", to_value(&result.error)?);
            put("action", to_value(&result.action)?);
            put("resultContent", to_value(&whole)?);
        }
        Ok(payload)
    }
}

fn to_value<T: serde::Serialize>(value: &T) -> Result<Value, QueryError> {
    serde_json::to_value(value).map_err(|error| QueryError::Corrupt {
        what: "step result",
        message: error.to_string(),
    })
}
