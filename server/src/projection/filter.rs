//! Which runs a list holds, and which of them somebody shows.

use std::sync::Arc;

use piw_protocol::canonical;
use piw_protocol::ops::RunFilter;
use piw_protocol::run::{DisplayStatus, RunStatus};
use piw_protocol::view::PAGE_ITEMS;
use piw_state::query::list::{self, ListKey, Narrow};
use piw_state::query::run as runs;
use piw_state::query::{QueryError, Reader, rfc3339};

use super::bounds::cut;
use super::{ViewError, display};

/// Longest filter text in bytes.
const FILTER_TEXT: usize = 256;

/// A window of a list, newest run first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    /// Index of the first item.
    pub(crate) start: u64,
    /// Most items.
    pub(crate) limit: usize,
}

impl Window {
    /// Reads the optional fields of a request.
    pub(crate) fn new(start: Option<u64>, limit: Option<u32>) -> Result<Self, ViewError> {
        let limit = limit.map_or(PAGE_ITEMS, |limit| limit as usize);
        if limit == 0 || limit > PAGE_ITEMS {
            return Err(ViewError::BadRequest {
                field: "limit",
                rule: format!("an integer of 1 to {PAGE_ITEMS}"),
                value: limit.to_string(),
            });
        }
        Ok(Self {
            start: start.unwrap_or(0),
            limit,
        })
    }
}

/// A checked filter.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ListFilter {
    /// Lower case.
    text: Option<String>,
    status: Option<Vec<DisplayStatus>>,
    workflow: Option<String>,
    created_after: Option<i64>,
    created_before: Option<i64>,
}

/// Reads an instant of a request as milliseconds since the epoch.
fn instant(field: &'static str, text: Option<&String>) -> Result<Option<i64>, ViewError> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<jiff::Timestamp>() {
        Ok(at) => Ok(Some(at.as_millisecond())),
        Err(_) => Err(ViewError::BadRequest {
            field,
            rule: "an RFC 3339 instant such as 2026-01-31T12:00:00.000Z".to_owned(),
            value: cut(text, 64),
        }),
    }
}

impl ListFilter {
    /// Checks a filter of a request.
    pub(crate) fn new(filter: Option<&RunFilter>) -> Result<Self, ViewError> {
        let Some(filter) = filter else {
            return Ok(Self::default());
        };
        for (field, text) in [("filter.text", &filter.text), ("filter.workflow", &filter.workflow)] {
            if let Some(text) = text
                && text.len() > FILTER_TEXT
            {
                return Err(ViewError::BadRequest {
                    field,
                    rule: format!("at most {FILTER_TEXT} bytes"),
                    value: format!("{} bytes", text.len()),
                });
            }
        }
        let created_after = instant("filter.createdAfter", filter.created_after.as_ref())?;
        let created_before = instant("filter.createdBefore", filter.created_before.as_ref())?;
        if let (Some(after), Some(before)) = (created_after, created_before)
            && after > before
        {
            return Err(ViewError::BadRequest {
                field: "filter.createdBefore",
                rule: format!("not before filter.createdAfter, {}", rfc3339(after)),
                value: rfc3339(before),
            });
        }
        Ok(Self {
            text: filter
                .text
                .as_deref()
                .map(str::to_lowercase)
                .filter(|text| !text.is_empty()),
            status: filter.status.clone(),
            workflow: filter.workflow.clone(),
            created_after,
            created_before,
        })
    }

    /// Names the filter: equal filters have equal names.
    pub(crate) fn name(filter: Option<&RunFilter>) -> Arc<str> {
        match filter {
            Some(filter) if *filter != RunFilter::default() => {
                canonical::to_string(filter).unwrap_or_else(|_| "{}".to_owned()).into()
            }
            _ => "{}".into(),
        }
    }

    /// Whether it lets every run through.
    pub(super) fn is_everything(&self) -> bool {
        *self == Self::default()
    }

    /// `runs.id` of every leading run that passes, oldest first.
    pub(super) fn members(&self, reader: &Reader, now: i64) -> Result<Vec<i64>, QueryError> {
        let narrow = self.narrow();
        let mut members = Vec::new();
        // A text alone leads to no index that leaves fewer runs: the narrowest one that has all texts is read instead of the rows.
        if let Some(text) = self.text.as_deref().filter(|_| narrow.is_everything()) {
            let finder = Finder::new(text);
            list::scan_words(reader, |id, fields| {
                if fields.into_iter().flatten().any(|field| finder.is_in(field)) {
                    members.push(id);
                }
                Ok(())
            })?;
            if self.status.is_some() {
                let mut passed = Vec::with_capacity(members.len());
                for id in members {
                    let key = list::key_by_id(reader, id)?;
                    if let Some(key) = key
                        && self.matches(reader, &key, now)?
                    {
                        passed.push(id);
                    }
                }
                members = passed;
            }
            return Ok(members);
        }
        list::scan(reader, &narrow, |key| {
            if self.matches(reader, &key, now)? {
                members.push(key.id);
            }
            Ok(())
        })?;
        members.sort_unstable();
        Ok(members)
    }

    /// Which runs have to be looked at.
    fn narrow(&self) -> Narrow<'_> {
        Narrow {
            status: self.status.as_deref().map(durable),
            workflow: self.workflow.as_deref(),
            after: self.created_after,
            before: self.created_before,
        }
    }

    /// Whether a run passes. `now` is wall-clock milliseconds.
    pub(super) fn matches(&self, reader: &Reader, key: &ListKey, now: i64) -> Result<bool, QueryError> {
        if self.created_after.is_some_and(|after| key.created_at < after)
            || self.created_before.is_some_and(|before| key.created_at >= before)
            || self.workflow.as_ref().is_some_and(|name| *name != key.workflow_name)
        {
            return Ok(false);
        }
        if let Some(text) = &self.text {
            let finder = Finder::new(text);
            let found = [Some(&key.run_id), Some(&key.workflow_name), key.title.as_ref()]
                .into_iter()
                .flatten()
                .any(|field| finder.is_in(field));
            if !found {
                return Ok(false);
            }
        }
        let Some(wanted) = &self.status else { return Ok(true) };
        let status = match key.status {
            RunStatus::Completed => DisplayStatus::Completed,
            RunStatus::Failed => DisplayStatus::Failed,
            RunStatus::TimedOut => DisplayStatus::TimedOut,
            RunStatus::Cancelled => DisplayStatus::Cancelled,
            RunStatus::Queued | RunStatus::Running | RunStatus::Waiting => match runs::facts_by_id(reader, key.id)? {
                Some(facts) => display::status(&facts, now),
                None => return Ok(false),
            },
        };
        Ok(wanted.contains(&status))
    }
}

/// The durable statuses that runs of these display statuses have. What an unfinished run shows is not stored.
fn durable(shown: &[DisplayStatus]) -> Vec<RunStatus> {
    let mut durable = Vec::new();
    for status in shown {
        let of: &[RunStatus] = match status {
            DisplayStatus::Completed => &[RunStatus::Completed],
            DisplayStatus::Failed => &[RunStatus::Failed],
            DisplayStatus::TimedOut => &[RunStatus::TimedOut],
            DisplayStatus::Cancelled => &[RunStatus::Cancelled],
            DisplayStatus::Queued
            | DisplayStatus::Running
            | DisplayStatus::Waiting
            | DisplayStatus::Paused
            | DisplayStatus::Ambiguous => &[RunStatus::Queued, RunStatus::Running, RunStatus::Waiting],
        };
        durable.extend(
            of.iter()
                .filter(|status| !durable.contains(*status))
                .copied()
                .collect::<Vec<_>>(),
        );
    }
    durable
}

/// Looks for a text in fields, whatever the case. Nearly all fields are ASCII: these are searched as they are.
struct Finder<'a> {
    /// Lower case.
    text: &'a str,
    /// Its first byte in both cases.
    first: [u8; 2],
}

impl<'a> Finder<'a> {
    /// `text` is lower case and not empty.
    fn new(text: &'a str) -> Self {
        let first = text.as_bytes().first().copied().unwrap_or_default();
        Self {
            text,
            first: [first, first.to_ascii_uppercase()],
        }
    }

    fn is_in(&self, field: &str) -> bool {
        if !field.is_ascii() {
            return field.to_lowercase().contains(self.text);
        }
        let (mut rest, text) = (field.as_bytes(), self.text.as_bytes());
        while rest.len() >= text.len() {
            let begins = &rest[..=rest.len() - text.len()];
            let Some(at) = memchr::memchr2(self.first[0], self.first[1], begins) else {
                return false;
            };
            if rest[at..at + text.len()].eq_ignore_ascii_case(text) {
                return true;
            }
            rest = &rest[at + 1..];
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_found_as_in_lower_case() {
        let fields = [
            "",
            "a",
            "Nightly RELEASE",
            "aab",
            "aaab",
            "ÄRGER im Tal",
            "01JNE8-release-0001",
            "xX",
            "ß",
            "İ",
        ];
        let texts = [
            "a", "aab", "release", "ry", "ärger", "ß", "0001", "x", "xxx", " ", "y r",
        ];
        for field in fields {
            for text in texts {
                let found = Finder::new(text).is_in(field);
                assert_eq!(found, field.to_lowercase().contains(text), "{text:?} in {field:?}");
            }
        }
    }
}
