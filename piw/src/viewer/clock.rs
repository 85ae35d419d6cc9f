//! Times as people read them. Wire times are RFC 3339 texts; inside the viewer they are milliseconds since the Unix epoch.

use jiff::Timestamp;

/// Milliseconds since the Unix epoch.
pub type Millis = i64;

/// Reads a wire time; `None` when it is not one.
#[must_use]
pub fn parse(text: &str) -> Option<Millis> {
    text.parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

/// A time as it travels; the epoch when it is outside the calendar.
#[must_use]
pub fn wire(millis: Millis) -> String {
    format!("{:.3}", Timestamp::from_millisecond(millis).unwrap_or_default())
}

/// The present.
#[must_use]
pub fn now() -> Millis {
    Timestamp::now().as_millisecond()
}

/// A duration in at most seven columns: `0.4s`, `12s`, `3m 04s`, `2h 05m`, `3d 04h`.
#[must_use]
pub fn duration(millis: Millis) -> String {
    let millis = millis.max(0);
    let seconds = millis / 1000;
    match seconds {
        _ if millis < 1000 && millis > 0 => format!("{millis}ms"),
        0..10 => format!("{}.{}s", seconds, millis % 1000 / 100),
        10..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {:02}m", seconds / 3600, seconds / 60 % 60),
        86_400..8_640_000 => format!("{}d {:02}h", seconds / 86_400, seconds / 3600 % 24),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago something was, in at most four columns: `now`, `12s`, `3m`, `2h`, `5d`.
#[must_use]
pub fn age(millis: Millis) -> String {
    match millis.max(0) / 1000 {
        0..2 => "now".into(),
        seconds @ 2..60 => format!("{seconds}s"),
        seconds @ 60..3600 => format!("{}m", seconds / 60),
        seconds @ 3600..86_400 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Time of day in UTC, with milliseconds: `14:03:22.123`. The text itself when it is not a wire time.
#[must_use]
pub fn time_of_day(text: &str) -> &str {
    match (parse(text), text.get(11..23)) {
        (Some(_), Some(time)) => time,
        _ => text,
    }
}

/// A wire time without its `T` and `Z`, to the second: `2026-03-01 14:03:22`.
#[must_use]
pub fn date_time(text: &str) -> String {
    match (parse(text), text.get(..10), text.get(11..19)) {
        (Some(_), Some(date), Some(time)) => format!("{date} {time}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_naturally() {
        for (millis, text) in [
            (0, "0.0s"),
            (40, "40ms"),
            (1_400, "1.4s"),
            (12_000, "12s"),
            (184_000, "3m 04s"),
            (7_500_000, "2h 05m"),
            (273_600_000, "3d 04h"),
            (-5, "0.0s"),
        ] {
            assert_eq!(duration(millis), text);
        }
        assert_eq!(age(500), "now");
        assert_eq!(age(7_200_000), "2h");
    }

    #[test]
    fn wire_times_are_read() {
        assert_eq!(parse("1970-01-01T00:00:01.500Z"), Some(1500));
        assert_eq!(wire(1500), "1970-01-01T00:00:01.500Z");
        assert_eq!(parse("yesterday"), None);
        assert_eq!(time_of_day("2026-03-01T14:03:22.123Z"), "14:03:22.123");
        assert_eq!(date_time("2026-03-01T14:03:22.123Z"), "2026-03-01 14:03:22");
        assert_eq!(date_time("x\u{1b}"), "x\u{1b}");
    }
}
