//! When reported work will end: a fresh estimate of the source first, else the measured rate of the current epoch.
//!
//! An epoch is a stretch of one phase, unit and total in which the count does not fall. The rate is the median of the last
//! [`INTERVALS`] intervals between publications, its quartiles give the range. Without enough of them there is no estimate,
//! and the reason is said; nothing is ever guessed.

use std::collections::VecDeque;
use std::time::Duration;

use piw_protocol::run::{EstimateConfidence, EstimateSource, ProgressEstimate};
use serde::{Deserialize, Serialize};

use super::{ProgressData, ProgressStatus};

/// Intervals that a rate is made of at most.
pub const INTERVALS: usize = 8;
/// Intervals that a rate needs at least.
pub const MIN_INTERVALS: usize = 2;
/// Age up to which an estimate of the source counts as fresh.
pub const SOURCE_FRESH: Duration = Duration::from_secs(5 * 60);
/// Estimates further away than this (100 years) are no estimates.
const HORIZON_MS: f64 = 100.0 * 365.25 * 86_400_000.0;

/// Follows one progress key. Small and serialisable, so that it can be kept beside the current update.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtaTracker {
    epoch: Option<Epoch>,
    /// Publications of the epoch, oldest first: at most one more than the intervals used.
    samples: VecDeque<Sample>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Epoch {
    phase: Option<String>,
    unit: Option<String>,
    total: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Sample {
    /// Milliseconds of Unix time.
    at: i64,
    completed: f64,
}

/// A measured rate in units per millisecond.
struct Rate {
    slow: f64,
    median: f64,
    fast: f64,
    intervals: usize,
}

impl EtaTracker {
    /// Takes in a publication of `at` (milliseconds of Unix time).
    pub fn publish(&mut self, data: &ProgressData, at: i64) {
        let epoch = Epoch {
            phase: data.phase.clone(),
            unit: data.unit.clone(),
            total: data.total,
        };
        let last = self.samples.back().copied();
        let fell = matches!((last, data.completed), (Some(last), Some(now)) if now < last.completed);
        let back = last.is_some_and(|last| at < last.at);
        if self.epoch.as_ref() != Some(&epoch) || fell || back {
            self.samples.clear();
            self.epoch = Some(epoch);
        }
        let Some(completed) = data.completed else {
            return;
        };
        match self.samples.back_mut() {
            // Two publications of one instant make no interval.
            Some(last) if last.at == at => last.completed = completed,
            _ => self.samples.push_back(Sample { at, completed }),
        }
        while self.samples.len() > INTERVALS + 1 {
            self.samples.pop_front();
        }
    }

    /// The estimate for the newest publication, seen at `now` (milliseconds of Unix time).
    #[must_use]
    pub fn estimate(&self, data: &ProgressData, published_at: i64, now: i64) -> ProgressEstimate {
        if let Some(reason) = not_moving(data.status) {
            return unavailable(reason);
        }
        if let Some(estimate) = reported(data, published_at, now) {
            return estimate;
        }
        self.measured(data).unwrap_or_else(unavailable)
    }

    /// The measured rate of running work in units a second; `None` while too few intervals are measured.
    #[must_use]
    pub fn rate_per_second(&self, data: &ProgressData) -> Option<f64> {
        if data.status != ProgressStatus::Running {
            return None;
        }
        self.rate().ok().map(|rate| rate.median * 1000.0)
    }

    fn measured(&self, data: &ProgressData) -> Result<ProgressEstimate, String> {
        let total = data.total.ok_or("no total is reported")?;
        let completed = data.completed.ok_or("no completed count is reported")?;
        let last = self.samples.back().ok_or("no completed count is reported")?;
        if completed >= total {
            return Err("the reported total is reached".to_owned());
        }
        let rate = self.rate()?;
        if rate.median <= 0.0 {
            return Err(format!(
                "nothing was completed in most of the last {} intervals",
                rate.intervals
            ));
        }
        let end = |rate: f64| -> Option<i64> {
            let ms = (total - completed) / rate;
            #[expect(clippy::cast_possible_truncation, reason = "below the horizon")]
            (ms.is_finite() && ms <= HORIZON_MS).then(|| last.at + ms.ceil() as i64)
        };
        let finish = end(rate.median)
            .and_then(timestamp)
            .ok_or("the end is more than 100 years away")?;
        Ok(ProgressEstimate::Available {
            finish_at: finish,
            earliest_at: end(rate.fast).and_then(timestamp),
            latest_at: end(rate.slow).and_then(timestamp),
            source: EstimateSource::Measured,
            confidence: confidence(&rate),
            intervals: u32::try_from(rate.intervals).unwrap_or(u32::MAX),
        })
    }

    fn rate(&self) -> Result<Rate, String> {
        let samples = self.samples.iter();
        let mut rates: Vec<f64> = samples
            .clone()
            .zip(samples.skip(1))
            .map(|(from, to)| {
                #[expect(clippy::cast_precision_loss, reason = "milliseconds between publications are exact")]
                let ms = (to.at - from.at) as f64;
                (to.completed - from.completed) / ms
            })
            .collect();
        if rates.len() < MIN_INTERVALS {
            return Err(format!(
                "{} of {MIN_INTERVALS} intervals are measured since the phase, unit or total changed",
                rates.len()
            ));
        }
        rates.sort_by(f64::total_cmp);
        Ok(Rate {
            slow: quantile(&rates, 0.25),
            median: quantile(&rates, 0.5),
            fast: quantile(&rates, 0.75),
            intervals: rates.len(),
        })
    }
}

fn not_moving(status: ProgressStatus) -> Option<&'static str> {
    match status {
        ProgressStatus::Running => None,
        ProgressStatus::Pending => Some("the work has not started"),
        ProgressStatus::Waiting => Some("the work is waiting"),
        ProgressStatus::Blocked => Some("the work is blocked"),
        ProgressStatus::Completed => Some("the work is completed"),
        ProgressStatus::Failed => Some("the work failed"),
        ProgressStatus::Cancelled => Some("the work was cancelled"),
        ProgressStatus::Unknown => Some("the status of the work is unknown"),
    }
}

/// A source's own estimate counts while it lies ahead and was made within [`SOURCE_FRESH`].
fn reported(data: &ProgressData, published_at: i64, now: i64) -> Option<ProgressEstimate> {
    let finish = data.source_estimated_finish_at?;
    let made = data.source_updated_at.unwrap_or(published_at);
    let fresh = i64::try_from(SOURCE_FRESH.as_millis()).unwrap_or(i64::MAX);
    if finish < now || now.saturating_sub(made) > fresh {
        return None;
    }
    Some(ProgressEstimate::Available {
        finish_at: timestamp(finish)?,
        earliest_at: None,
        latest_at: None,
        source: EstimateSource::Reported,
        confidence: EstimateConfidence::Medium,
        intervals: 0,
    })
}

/// By the number of intervals and the spread of the middle half around the median.
fn confidence(rate: &Rate) -> EstimateConfidence {
    let spread = (rate.fast - rate.slow) / rate.median;
    if rate.intervals >= 6 && spread <= 0.25 {
        EstimateConfidence::High
    } else if rate.intervals >= 4 && spread <= 0.75 {
        EstimateConfidence::Medium
    } else {
        EstimateConfidence::Low
    }
}

/// Linear interpolation between the ranks of sorted values.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most eight values")]
    let rank = part * (sorted.len() - 1) as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank within the slice"
    )]
    let low = rank.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (sorted[high] - sorted[low]) * rank.fract()
}

fn unavailable(reason: impl Into<String>) -> ProgressEstimate {
    ProgressEstimate::Unavailable { reason: reason.into() }
}

/// RFC 3339 UTC with milliseconds; `None` outside the calendar.
fn timestamp(ms: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(ms).ok().map(|at| format!("{at:.3}"))
}

#[cfg(test)]
mod tests;
