//! Colours: reading them from text, and reducing them to what a terminal can show.

use ratatui::style::Color;

/// How many colours the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// 24 bits.
    True,
    /// The 256-colour palette.
    Indexed,
    /// The 16 named colours.
    Named,
    /// None: weight, inversion and glyphs carry everything.
    None,
}

impl Depth {
    /// From the environment: `NO_COLOR`, `COLORTERM`, `TERM`.
    #[must_use]
    pub fn detect(var: impl Fn(&str) -> Option<String>) -> Self {
        if var("NO_COLOR").is_some_and(|value| !value.is_empty()) {
            return Self::None;
        }
        let truecolor = var("COLORTERM").unwrap_or_default();
        let term = var("TERM").unwrap_or_default();
        if truecolor.contains("truecolor") || truecolor.contains("24bit") || term.contains("direct") {
            Self::True
        } else if term.contains("256") {
            Self::Indexed
        } else if term == "dumb" {
            Self::None
        } else {
            Self::Named
        }
    }
}

/// Reads `#rrggbb`, `#rgb`, `rgb(r, g, b)`, an ANSI colour name or `reset`.
///
/// # Errors
///
/// The text when it is none of these.
pub fn parse(text: &str) -> Result<Color, String> {
    let bad = || format!("{text:?} is not a colour: use #rrggbb, #rgb, rgb(r, g, b), a colour name or reset");
    let lower = text.trim().to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix('#') {
        let digit = |at: usize| hex.get(at..=at).and_then(|c| u8::from_str_radix(c, 16).ok());
        let channel = |at: usize| match hex.len() {
            6 => Some(digit(at * 2)? * 16 + digit(at * 2 + 1)?),
            3 => digit(at).map(|value| value * 17),
            _ => None,
        };
        return match (channel(0), channel(1), channel(2)) {
            (Some(r), Some(g), Some(b)) => Ok(Color::Rgb(r, g, b)),
            _ => Err(bad()),
        };
    }
    if let Some(inner) = lower.strip_prefix("rgb(").and_then(|rest| rest.strip_suffix(')')) {
        let parts: Vec<u8> = inner.split(',').map_while(|part| part.trim().parse().ok()).collect();
        return match parts[..] {
            [r, g, b] if inner.matches(',').count() == 2 => Ok(Color::Rgb(r, g, b)),
            _ => Err(bad()),
        };
    }
    match lower.as_str() {
        "reset" | "default" => Ok(Color::Reset),
        name => name.parse().map_err(|_| bad()),
    }
}

/// The nearest colour that a terminal of this depth shows; `named` is used where only the 16 colours exist.
#[must_use]
pub fn reduce(color: Color, named: Color, depth: Depth) -> Color {
    match (depth, color) {
        (Depth::Indexed, Color::Rgb(r, g, b)) => Color::Indexed(nearest(r, g, b)),
        (Depth::True | Depth::Indexed, color) => color,
        (Depth::Named, _) => named,
        (Depth::None, _) => Color::Reset,
    }
}

/// Index in the 256-colour palette: the colour cube or the grey ramp, whichever is closer.
fn nearest(r: u8, g: u8, b: u8) -> u8 {
    const STEPS: [i32; 6] = [0, 95, 135, 175, 215, 255];
    let step = |value: u8| {
        let mut best = 0;
        for (index, level) in STEPS.iter().enumerate() {
            if (level - i32::from(value)).abs() < (STEPS[best] - i32::from(value)).abs() {
                best = index;
            }
        }
        best
    };
    let distance = |x: i32, y: i32, z: i32| {
        let (dx, dy, dz) = (x - i32::from(r), y - i32::from(g), z - i32::from(b));
        dx * dx + dy * dy + dz * dz
    };
    let (x, y, z) = (step(r), step(g), step(b));
    let cube = distance(STEPS[x], STEPS[y], STEPS[z]);
    let mean = (i32::from(r) + i32::from(g) + i32::from(b)) / 3;
    let grey = ((mean - 8).max(0) / 10).min(23);
    let level = 8 + grey * 10;
    let index = if distance(level, level, level) < cube {
        232 + grey
    } else {
        (16 + 36 * x + 6 * y + z) as i32
    };
    u8::try_from(index).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_form_is_read() {
        assert_eq!(parse("#ff8000"), Ok(Color::Rgb(255, 128, 0)));
        assert_eq!(parse("#f80"), Ok(Color::Rgb(255, 136, 0)));
        assert_eq!(parse("rgb(1, 2,3)"), Ok(Color::Rgb(1, 2, 3)));
        assert_eq!(parse("Reset"), Ok(Color::Reset));
        assert_eq!(parse("light-red"), Ok(Color::LightRed));
        for bad in ["#ff", "#gggggg", "rgb(1,2)", "rgb(1,2,300)", "mauvish", "#日本"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn depth_follows_the_environment() {
        let with = |pairs: &'static [(&str, &str)]| {
            Depth::detect(move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
        };
        assert_eq!(with(&[("NO_COLOR", "1"), ("COLORTERM", "truecolor")]), Depth::None);
        assert_eq!(with(&[("NO_COLOR", ""), ("COLORTERM", "truecolor")]), Depth::True);
        assert_eq!(with(&[("TERM", "xterm-256color")]), Depth::Indexed);
        assert_eq!(with(&[("TERM", "linux")]), Depth::Named);
    }

    #[test]
    fn colours_reduce_to_the_nearest() {
        assert_eq!(
            reduce(Color::Rgb(255, 0, 0), Color::Red, Depth::Indexed),
            Color::Indexed(196)
        );
        assert_eq!(
            reduce(Color::Rgb(128, 128, 128), Color::Gray, Depth::Indexed),
            Color::Indexed(244)
        );
        assert_eq!(reduce(Color::Rgb(255, 0, 0), Color::Red, Depth::Named), Color::Red);
        assert_eq!(reduce(Color::Rgb(255, 0, 0), Color::Red, Depth::None), Color::Reset);
    }
}
