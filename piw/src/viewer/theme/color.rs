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

/// How well two colours are told apart, from 1 (not at all) to 21, as the Web Content Accessibility Guidelines define it; `None`
/// where what the terminal shows is not known.
#[must_use]
pub fn contrast(one: Color, other: Color) -> Option<f64> {
    let (one, other) = (luminance(one)?, luminance(other)?);
    Some((one.max(other) + 0.05) / (one.min(other) + 0.05))
}

/// The colour, as little lighter or darker as it needs to have at least this contrast on every ground once `shown` has reduced
/// them all. Where a ground is not known it stays as it is.
#[must_use]
pub fn legible(color: Color, grounds: &[Color], least: f64, shown: impl Fn(Color) -> Color) -> Color {
    const STEPS: u16 = 50;
    let Color::Rgb(r, g, b) = color else { return color };
    let stands_out = |color: Color| {
        grounds
            .iter()
            .all(|ground| contrast(shown(color), shown(*ground)).is_none_or(|contrast| contrast >= least))
    };
    // Black on a mid grey has the contrast of white there.
    let is_dark = grounds
        .iter()
        .filter_map(|ground| luminance(*ground))
        .all(|ground| ground < 0.18);
    let end: u8 = if is_dark { 255 } else { 0 };
    let mixed = |step: u16| {
        let mix = |from: u8| (u16::from(from) * (STEPS - step) + u16::from(end) * step) / STEPS;
        let channel = |from: u8| u8::try_from(mix(from)).unwrap_or(end);
        Color::Rgb(channel(r), channel(g), channel(b))
    };
    (0..=STEPS)
        .map(mixed)
        .find(|color| stands_out(*color))
        .unwrap_or_else(|| mixed(STEPS))
}

/// Relative luminance of a colour that looks the same on every terminal.
fn luminance(color: Color) -> Option<f64> {
    let (r, g, b) = match color {
        Color::Rgb(r, g, b) => (r, g, b),
        Color::Indexed(index @ 232..) => {
            let level = 8 + (index - 232) * 10;
            (level, level, level)
        }
        Color::Indexed(index @ 16..) => {
            let cube = index - 16;
            (
                STEPS[usize::from(cube / 36)],
                STEPS[usize::from(cube / 6 % 6)],
                STEPS[usize::from(cube % 6)],
            )
        }
        _ => return None,
    };
    let linear = |value: u8| {
        let value = f64::from(value) / 255.0;
        if value <= 0.039_28 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    Some(0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b))
}

/// Levels of the colour cube of the 256-colour palette.
const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];

/// Index in the 256-colour palette: the colour cube or the grey ramp, whichever is closer.
fn nearest(r: u8, g: u8, b: u8) -> u8 {
    let level = |index: usize| i32::from(STEPS[index]);
    let step = |value: u8| {
        let mut best = 0;
        for index in 0..STEPS.len() {
            if (level(index) - i32::from(value)).abs() < (level(best) - i32::from(value)).abs() {
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
    let cube = distance(level(x), level(y), level(z));
    let mean = (i32::from(r) + i32::from(g) + i32::from(b)) / 3;
    let grey = ((mean - 8).max(0) / 10).min(23);
    let ramp = 8 + grey * 10;
    let index = if distance(ramp, ramp, ramp) < cube {
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
    fn contrast_is_that_of_the_guidelines() {
        let between = |one: &str, other: &str| contrast(parse(one).unwrap(), parse(other).unwrap());
        let near = |one: &str, other: &str, value: f64| (between(one, other).unwrap() - value).abs() < 0.01;
        assert!(near("#000", "#fff", 21.0) && near("#fff", "#fff", 1.0));
        // The usual examples of greys that just pass and just fail.
        assert!(near("#767676", "#fff", 4.54) && near("#777777", "#fff", 4.48));
        assert_eq!(between("reset", "#fff"), None);
        assert_eq!(
            contrast(Color::Indexed(16), Color::Indexed(231)),
            contrast(Color::Rgb(0, 0, 0), Color::Rgb(255, 255, 255))
        );
    }

    #[test]
    fn a_colour_is_changed_no_more_than_its_grounds_ask_for() {
        let grounds = [Color::Rgb(30, 30, 46), Color::Rgb(49, 50, 68)];
        let good = Color::Rgb(205, 214, 244);
        assert_eq!(legible(good, &grounds, 4.5, |color| color), good);
        let lifted = legible(Color::Rgb(60, 20, 20), &grounds, 4.5, |color| color);
        let reached = grounds.map(|ground| contrast(lifted, ground).unwrap());
        assert!(
            reached.iter().all(|reached| (4.5..9.0).contains(reached)),
            "{lifted}: {reached:?}"
        );
        let lowered = legible(Color::Rgb(250, 240, 200), &[Color::Rgb(255, 255, 255)], 4.5, |color| {
            color
        });
        assert!(contrast(lowered, Color::Rgb(255, 255, 255)).unwrap() < 5.0, "{lowered}");
        assert_eq!(legible(good, &[Color::Reset], 21.0, |color| color), good);
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
