//! What is to happen at fail points, as text: `name@ordinal=action;…`.
//!
//! The ordinal counts arrivals at a point over all processes that share `PIW_FAULT_DIR`, from 1, so one plan spans restarts of
//! the server and every entry fires at most once. Actions:
//!
//! | action | what happens |
//! | --- | --- |
//! | `kill` | the process ends by SIGKILL |
//! | `kill+MS` | the same after so many milliseconds, in which only the other threads go on |
//! | `killparent` | the parent ends by SIGKILL, if it is of the same executable: a runner ends its server |
//! | `killboth` | the parent, then the process itself |
//! | `sleep+MS` | the thread is held up |

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::names::POINTS;

/// Who ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// The process that reached the point.
    Own,
    /// Its parent, if that is of the same executable.
    Parent,
    /// The parent, then the process itself.
    Both,
    /// Nobody: the thread is only held up.
    Nobody,
}

/// One entry of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Index of the point in [`POINTS`].
    pub point: usize,
    /// Which arrival, from 1.
    pub ordinal: u64,
    /// Who ends.
    pub victim: Victim,
    /// How long the thread is held up before.
    pub delay: Duration,
}

/// A text that is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError(String);

impl fmt::Display for PlanError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} is no entry of a plan: name@ordinal=kill|killparent|killboth|sleep, then +milliseconds",
            self.0
        )
    }
}

impl std::error::Error for PlanError {}

impl fmt::Display for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.victim {
            Victim::Own => "kill",
            Victim::Parent => "killparent",
            Victim::Both => "killboth",
            Victim::Nobody => "sleep",
        };
        let name = POINTS[self.point].name;
        write!(formatter, "{name}@{}={action}+{}", self.ordinal, self.delay.as_millis())
    }
}

impl FromStr for Entry {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        parse(text).ok_or_else(|| PlanError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Entry> {
    let (at, action) = text.trim().split_once('=')?;
    let (name, ordinal) = at.split_once('@')?;
    let (action, delay) = action.split_once('+').unwrap_or((action, "0"));
    Some(Entry {
        point: POINTS.iter().position(|point| point.name == name)?,
        ordinal: ordinal.parse().ok().filter(|ordinal| *ordinal > 0)?,
        victim: match action {
            "kill" => Victim::Own,
            "killparent" => Victim::Parent,
            "killboth" => Victim::Both,
            "sleep" => Victim::Nobody,
            _ => return None,
        },
        delay: Duration::from_millis(delay.parse().ok()?),
    })
}

/// Reads a whole plan.
///
/// # Errors
/// When an entry is none.
pub fn read(text: &str) -> Result<Vec<Entry>, PlanError> {
    text.split(';')
        .filter(|entry| !entry.trim().is_empty())
        .map(str::parse)
        .collect()
}

/// Writes a whole plan.
#[must_use]
pub fn write(entries: &[Entry]) -> String {
    let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
    entries.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let text = "state::before_commit@3=kill+20;state::after_commit@1=killparent+0;state::after_reply@2=sleep+5";
        let plan = read(text).expect("a plan");
        assert_eq!(plan.len(), 3);
        assert_eq!(plan[0].victim, Victim::Own);
        assert_eq!(plan[0].delay, Duration::from_millis(20));
        assert_eq!(write(&plan), text);
    }

    #[test]
    fn what_is_no_plan_is_refused() {
        for text in [
            "nowhere@1=kill",
            "state::before_commit@0=kill",
            "state::before_commit=kill",
            "state::before_commit@1=explode",
            "state::before_commit@1=kill+soon",
        ] {
            let error = read(text).expect_err(text);
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
