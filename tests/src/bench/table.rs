//! Rows, medians, verdicts; printed as Markdown and written as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

/// What a row must satisfy.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bar {
    /// At most this value.
    AtMost(f64),
    /// At least this value.
    AtLeast(f64),
    /// No bar; for scale.
    Info,
}

/// One line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Unit of every number in the row.
    pub unit: &'static str,
    /// The bar.
    pub bar: Bar,
    /// Median.
    pub median: f64,
    /// Smallest sample.
    pub low: f64,
    /// Largest sample.
    pub high: f64,
    /// Number of samples.
    pub samples: usize,
}

impl Row {
    /// A row from samples.
    ///
    /// # Panics
    /// When there is no sample.
    #[must_use]
    pub fn new(name: impl Into<String>, unit: &'static str, bar: Bar, samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        assert!(!sorted.is_empty(), "a row needs a sample");
        Self {
            name: name.into(),
            unit,
            bar,
            median: percentile(&sorted, 0.5),
            low: sorted[0],
            high: sorted[sorted.len() - 1],
            samples: sorted.len(),
        }
    }

    /// A row of durations in milliseconds.
    #[must_use]
    pub fn millis(name: impl Into<String>, bar: Bar, samples: &[Duration]) -> Self {
        let values: Vec<f64> = samples.iter().map(|sample| sample.as_secs_f64() * 1e3).collect();
        Self::new(name, "ms", bar, &values)
    }

    /// Whether the median meets the bar; `None` without a bar.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        match self.bar {
            Bar::AtMost(limit) => Some(self.median <= limit),
            Bar::AtLeast(limit) => Some(self.median >= limit),
            Bar::Info => None,
        }
    }
}

/// The value below which `share` of the sorted samples lie.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "small counts"
)]
pub fn percentile(sorted: &[f64], share: f64) -> f64 {
    let index = ((sorted.len() - 1) as f64 * share).round() as usize;
    sorted[index]
}

/// The table as Markdown.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from("| what | bar | median | spread | n | met |\n| --- | --- | --- | --- | --- | --- |\n");
    for row in rows {
        let bar = match row.bar {
            Bar::AtMost(limit) => format!("≤ {} {}", number(limit), row.unit),
            Bar::AtLeast(limit) => format!("≥ {} {}", number(limit), row.unit),
            Bar::Info => "–".to_owned(),
        };
        let met = match row.met() {
            Some(true) => "yes",
            Some(false) => "**no**",
            None => "",
        };
        let _ = writeln!(
            text,
            "| {} | {bar} | {} {} | {} – {} | {} | {met} |",
            row.name,
            number(row.median),
            row.unit,
            number(row.low),
            number(row.high),
            row.samples,
        );
    }
    text
}

fn number(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else if value.abs() >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}
