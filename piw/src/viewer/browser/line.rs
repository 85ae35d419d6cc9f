//! The line that filters the run list: what is typed, what of it is in force, and the help below the list.
//!
//! A line with a mistake changes nothing: the list stays that of the last line without one.

use super::super::clock::Millis;
use super::super::hosts::Hosts;
use crate::filter::{self, Filter, Problem};
use crate::text::{clean, wrap};

/// What can be written, and what it takes.
const WORDS: [(&str, &str); 6] = [
    ("any words", "in title, name, id"),
    ("status:", "failed,waiting"),
    ("workflow:", "its whole name"),
    ("age:<2h", "younger (s m h d w)"),
    ("age:>3d", "older"),
    ("host:", "part of a host's name"),
];

/// How a line of the help looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What may be written.
    Help,
    /// A mistake.
    Error,
}

/// State of the line.
#[derive(Debug, Clone, Default)]
pub struct FilterLine {
    /// What is typed.
    pub text: String,
    /// Whether it is being typed.
    pub typing: bool,
    /// The text that is in force, and what it means.
    applied: String,
    filter: Filter,
    problem: Option<Problem>,
    /// When the ages in it have to be turned into instants again.
    pub(super) refresh_at: Option<Millis>,
}

impl FilterLine {
    /// What is in force.
    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Whether runs are filtered.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.filter != Filter::default()
    }

    /// Whether it is worth a place: typed, or in force.
    pub(super) fn is_shown(&self) -> bool {
        self.typing || !self.text.is_empty()
    }

    /// Takes another text; says whether another filter is in force now.
    pub(super) fn set(&mut self, text: String, hosts: &Hosts) -> bool {
        self.text = text;
        match Filter::parse(&self.text).and_then(|filter| known(filter, hosts)) {
            Ok(filter) => {
                self.problem = None;
                self.applied.clone_from(&self.text);
                let changed = self.filter != filter;
                self.filter = filter;
                changed
            }
            Err(problem) => {
                self.problem = Some(problem);
                false
            }
        }
    }

    /// Ends typing, unless there is a mistake: then that is said.
    pub fn finish(&mut self) {
        match &mut self.problem {
            Some(problem) => problem.unfinished = false,
            None => self.typing = false,
        }
    }

    /// Ends typing for good: a mistake goes, and what is in force stays.
    pub fn leave(&mut self) {
        self.typing = false;
        if self.problem.take().is_some() {
            self.text.clone_from(&self.applied);
        }
    }

    /// The text with its last word carried on as far as there is only one way.
    pub(super) fn completed(&self) -> Option<String> {
        let problem = self.problem.as_ref().filter(|problem| problem.unfinished)?;
        let word = self.text.rsplit(char::is_whitespace).next()?;
        let ("status", value) = filter::keyed(word)? else {
            return None;
        };
        let part = value.rsplit(',').next()?;
        let [only] = &problem.values[..] else { return None };
        Some(format!("{}{only}", &self.text[..self.text.len() - part.len()]))
    }

    /// The help and the mistake in so many columns.
    pub(super) fn help(&self, columns: usize) -> Vec<(Kind, String)> {
        if !self.typing {
            return Vec::new();
        }
        let columns = columns.saturating_sub(2).max(1);
        let wrapped = |kind, text: &str| wrap(&clean(text), columns).into_iter().map(move |line| (kind, line));
        let last = self.text.rsplit(char::is_whitespace).next().unwrap_or_default();
        let mut lines: Vec<(Kind, String)> = Vec::new();
        match &self.problem {
            Some(problem) if problem.unfinished => {
                let key = filter::keyed(last).map_or("", |(key, _)| key);
                let values = match problem.values.join(" ") {
                    values if values.is_empty() => problem.message.clone(),
                    values => format!("{key}: {values}"),
                };
                lines.extend(wrapped(Kind::Help, &values));
            }
            Some(problem) => {
                lines.extend(wrapped(Kind::Error, &problem.message));
                lines.extend(wrapped(Kind::Help, &problem.values.join(" ")).filter(|(_, line)| !line.is_empty()));
            }
            None => lines.extend(WORDS.map(|(word, takes)| (Kind::Help, format!("{word:<10} {takes}")))),
        }
        let keys = match self.completed() {
            Some(_) => "Tab completes · Esc clears",
            None => "Enter keeps · Esc clears",
        };
        lines.push((Kind::Help, keys.to_owned()));
        lines
    }
}

/// Checks that every named host is there.
fn known(filter: Filter, hosts: &Hosts) -> Result<Filter, Problem> {
    let named = |part: &str| hosts.iter().any(|(_, host)| host.name.to_lowercase().contains(part));
    match filter.hosts.iter().find(|part| !named(part)) {
        None => Ok(filter),
        Some(part) => Err(Problem {
            message: format!("no host is called {part:?}"),
            values: hosts
                .iter()
                .map(|(_, host)| host.name.clone())
                .filter(|name| !name.is_empty())
                .collect(),
            unfinished: false,
        }),
    }
}
