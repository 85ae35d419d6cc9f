//! What runs are filtered by, as it is typed in the viewer and given to `piw ps`: words of text, and `status:`, `workflow:`,
//! `age:` and `host:` with a value.

use jiff::Timestamp;
use piw_protocol::ops::RunFilter;
use piw_protocol::run::DisplayStatus;

/// Longest text, and longest workflow name, that a server takes, in bytes.
const TEXT: usize = 256;
/// Oldest age, in days.
const OLDEST: i64 = 36_500;
/// Units of an age with their milliseconds.
const UNITS: [(char, i64); 5] = [
    ('s', 1_000),
    ('m', 60_000),
    ('h', 3_600_000),
    ('d', 86_400_000),
    ('w', 604_800_000),
];

/// A checked filter. The default lets every run through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Text in the run id, the workflow name or the title.
    pub text: Option<String>,
    /// Display statuses of which the run has one; empty takes all.
    pub status: Vec<DisplayStatus>,
    /// The workflow's whole name.
    pub workflow: Option<String>,
    /// Parts of names of hosts, lower case; empty takes all.
    pub hosts: Vec<String>,
    /// Created at most so many milliseconds ago.
    pub younger: Option<i64>,
    /// Created more than so many milliseconds ago.
    pub older: Option<i64>,
}

/// What is wrong with a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The word, the rule and the value.
    pub message: String,
    /// What can be written instead.
    pub values: Vec<String>,
    /// It may still become right when the last word goes on.
    pub unfinished: bool,
}

impl Problem {
    fn new(message: String, values: &[&str]) -> Self {
        Self {
            message,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
            unfinished: false,
        }
    }

    fn unfinished(self, unfinished: bool) -> Self {
        Self { unfinished, ..self }
    }
}

impl std::error::Error for Problem {}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        if !self.values.is_empty() {
            write!(f, "; possible: {}", self.values.join(", "))?;
        }
        Ok(())
    }
}

/// The key that a word begins with, by its name or first letter, and the rest.
#[must_use]
pub fn keyed(word: &str) -> Option<(&'static str, &str)> {
    let (key, value) = word.split_once(':')?;
    let key = match key {
        "status" | "s" => "status",
        "workflow" | "w" => "workflow",
        "age" | "a" => "age",
        "host" | "h" => "host",
        // Titles have colons too.
        _ => return None,
    };
    Some((key, value))
}

impl Filter {
    /// Reads a line of words. A word without a known key is text.
    ///
    /// # Errors
    /// The first word that cannot be meant.
    pub fn parse(line: &str) -> Result<Self, Problem> {
        let mut filter = Self::default();
        let mut text = Vec::new();
        let is_open = !line.ends_with(char::is_whitespace);
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let unfinished = is_open && words.peek().is_none();
            let taken = match keyed(word) {
                Some(("status", value)) => filter.take_status(value),
                Some(("workflow", value)) => filter.take_workflow(value),
                Some(("age", value)) => filter.take_age(value),
                Some((_, "")) => Err(Problem::new("host: takes a part of a host's name".into(), &[]).unfinished(true)),
                Some((_, value)) => {
                    filter.hosts.push(value.to_lowercase());
                    Ok(())
                }
                None => {
                    text.push(word);
                    Ok(())
                }
            };
            taken.map_err(|problem| Problem {
                unfinished: problem.unfinished && unfinished,
                ..problem
            })?;
        }
        filter.text = (!text.is_empty()).then(|| text.join(" "));
        filter.check()?;
        Ok(filter)
    }

    /// Checks what concerns the filter as a whole.
    ///
    /// # Errors
    /// Too long a text, or ages that exclude each other.
    pub fn check(&self) -> Result<(), Problem> {
        if self.text.as_ref().is_some_and(|text| text.len() > TEXT) {
            return Err(Problem::new(format!("text has at most {TEXT} bytes"), &[]));
        }
        if self.workflow.as_ref().is_some_and(|name| name.len() > TEXT) {
            return Err(Problem::new(format!("a workflow name has at most {TEXT} bytes"), &[]));
        }
        if let (Some(younger), Some(older)) = (self.younger, self.older)
            && younger <= older
        {
            return Err(Problem::new(
                "no run is younger than that and older than that".into(),
                &[],
            ));
        }
        Ok(())
    }

    fn take_status(&mut self, value: &str) -> Result<(), Problem> {
        for part in value.split(',') {
            let part = status(part)?;
            if !self.status.contains(&part) {
                self.status.push(part);
            }
        }
        Ok(())
    }

    fn take_workflow(&mut self, value: &str) -> Result<(), Problem> {
        if value.is_empty() {
            return Err(Problem::new("workflow: takes the whole name of a workflow".into(), &[]).unfinished(true));
        }
        match self.workflow.replace(value.to_owned()) {
            Some(other) if other != value => Err(Problem::new("workflow: can be given once".into(), &[])),
            _ => Ok(()),
        }
    }

    fn take_age(&mut self, value: &str) -> Result<(), Problem> {
        let (side, rest) = match value.split_at_checked(1) {
            Some(("<", rest)) => (&mut self.younger, rest),
            Some((">", rest)) => (&mut self.older, rest),
            _ => {
                let message = format!("age:{value} says neither < (younger) nor > (older)");
                return Err(Problem::new(message, &["age:<2h", "age:>3d"]).unfinished(value.is_empty()));
            }
        };
        *side = Some(age(rest)?);
        Ok(())
    }

    /// What a server is asked for at an instant, in milliseconds since the epoch; `None` is every run.
    #[must_use]
    pub fn request(&self, now: i64) -> Option<RunFilter> {
        let filter = RunFilter {
            text: self.text.clone(),
            status: (!self.status.is_empty()).then(|| self.status.clone()),
            workflow: self.workflow.clone(),
            created_after: self.younger.map(|age| instant(now - age)),
            created_before: self.older.map(|age| instant(now - age)),
        };
        (filter != RunFilter::default()).then_some(filter)
    }

    /// After how many milliseconds the same words mean noticeably other instants: a sixtieth of the smallest age, between a second
    /// and five minutes. `None` without an age.
    #[must_use]
    pub fn refresh_after(&self) -> Option<i64> {
        let least = [self.younger, self.older].into_iter().flatten().min()?;
        Some((least / 60).clamp(1_000, 300_000))
    }
}

/// Reads the name of a display status; `-` may stand for `_`.
///
/// # Errors
/// With all names, or those that begin so.
pub fn status(name: &str) -> Result<DisplayStatus, Problem> {
    let lower = name.to_lowercase().replace('-', "_");
    if let Some(status) = DisplayStatus::ALL.into_iter().find(|status| status.name() == lower) {
        return Ok(status);
    }
    let names = DisplayStatus::ALL.map(DisplayStatus::name);
    let begun: Vec<&str> = names.into_iter().filter(|name| name.starts_with(&lower)).collect();
    Err(if begun.is_empty() {
        Problem::new(format!("{name:?} is no status"), &names)
    } else {
        Problem::new(format!("{name:?} is not a whole status"), &begun).unfinished(true)
    })
}

/// Reads an age as milliseconds: a number and one of `s m h d w`.
///
/// # Errors
/// When it is none.
pub fn age(text: &str) -> Result<i64, Problem> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = &text[digits.len()..];
    let scale = UNITS
        .iter()
        .find(|(name, _)| unit.chars().eq([*name]))
        .map(|(_, scale)| *scale);
    let number = digits.parse::<i64>().ok().filter(|_| !digits.starts_with(['+', '-']));
    let unfinished = text.is_empty() || (unit.is_empty() && number.is_some());
    let (Some(scale), Some(number)) = (scale, number) else {
        let message = format!("{text:?} is no age: a number and s, m, h, d or w");
        return Err(Problem::new(message, &["30s", "15m", "2h", "3d", "1w"]).unfinished(unfinished));
    };
    number
        .checked_mul(scale)
        .filter(|age| *age <= OLDEST * 86_400_000)
        .ok_or_else(|| Problem::new(format!("an age is at most {OLDEST}d"), &[]))
}

fn instant(millis: i64) -> String {
    Timestamp::from_millisecond(millis).map_or_else(|_| String::new(), |at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_767_225_600_000;

    #[test]
    fn every_word_finds_its_field() {
        let filter =
            Filter::parse(" fix: status:failed,timed-out  age:<2h w:review the age:>15m host:GPU s:Paused ").unwrap();
        assert_eq!(filter.text.as_deref(), Some("fix: the"));
        assert_eq!(
            filter.status,
            [DisplayStatus::Failed, DisplayStatus::TimedOut, DisplayStatus::Paused]
        );
        assert_eq!(
            (filter.workflow.as_deref(), filter.hosts.join(" ")),
            (Some("review"), "gpu".into())
        );
        assert_eq!((filter.younger, filter.older), (Some(7_200_000), Some(900_000)));
        let request = filter.request(NOW).unwrap();
        assert_eq!(request.created_after.as_deref(), Some("2025-12-31T22:00:00.000Z"));
        assert_eq!(request.created_before.as_deref(), Some("2025-12-31T23:45:00.000Z"));
        assert_eq!(filter.refresh_after(), Some(15_000));
    }

    #[test]
    fn no_words_and_hosts_alone_ask_for_every_run() {
        for line in ["", "  ", "host:gpu"] {
            assert_eq!(Filter::parse(line).unwrap().request(NOW), None, "{line:?}");
        }
        assert_eq!(Filter::parse("x").unwrap().refresh_after(), None);
    }

    #[test]
    fn what_cannot_be_meant_says_what_can() {
        for (line, message, value) in [
            ("status:faild", "\"faild\" is no status", Some("failed")),
            ("status:failed,", "\"\" is not a whole status", Some("queued")),
            ("age:2h", "neither < (younger) nor > (older)", Some("age:<2h")),
            ("age:<x", "\"x\" is no age", Some("15m")),
            ("age:<2y", "\"2y\" is no age", Some("3d")),
            ("age:<-2h", "\"-2h\" is no age", Some("3d")),
            ("age:<36501d", "at most 36500d", None),
            ("age:<99999999999999999999w", "is no age", None),
            ("age:<1h age:>2h", "no run is younger", None),
            ("w:a w:b", "once", None),
        ] {
            let problem = Filter::parse(&format!("{line} ")).unwrap_err();
            assert!(problem.message.contains(message), "{line}: {problem}");
            assert!(
                value.is_none_or(|value| problem.values.iter().any(|known| known == value)),
                "{line}: {problem}"
            );
            assert!(!problem.unfinished, "{line}");
        }
        assert!(
            Filter::parse(&"x".repeat(257))
                .unwrap_err()
                .message
                .contains("256 bytes")
        );
    }

    #[test]
    fn a_word_that_may_become_right_is_unfinished() {
        for line in [
            "status:",
            "status:fa",
            "x s:failed,wai",
            "age:",
            "age:<",
            "age:>12",
            "workflow:",
            "host:",
        ] {
            assert!(Filter::parse(line).unwrap_err().unfinished, "{line}");
            assert!(!Filter::parse(&format!("{line} x")).unwrap_err().unfinished, "{line} x");
        }
        assert_eq!(
            Filter::parse("status:c").unwrap_err().values,
            ["completed", "cancelled"]
        );
    }
}
