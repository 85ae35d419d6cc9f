//! Themes: a palette in TOML, and the roles that drawing asks for.
//!
//! Drawing code names roles ([`Theme::muted`], [`Theme::status`]), never colours, so that a theme can change everything
//! without code and terminals with few or no colours stay readable.

pub mod choice;
pub mod color;

use piw_protocol::run::DisplayStatus;
use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;

use self::color::Depth;

macro_rules! embedded {
    ($($key:literal),* $(,)?) => {
        /// Embedded themes: key and TOML.
        const BUILTIN: &[(&str, &str)] = &[$(($key, include_str!(concat!("../../../../themes/", $key, ".toml"))),)*];
    };
}

embedded! {
    "catppuccin-mocha",
    "catppuccin-macchiato",
    "catppuccin-frappe",
    "catppuccin-latte",
    "terminal",
    "tokyo-night",
    "tokyo-night-day",
    "dracula",
    "nord",
    "gruvbox-dark",
    "gruvbox-light",
    "one-dark",
    "one-light",
    "solarized-dark",
    "solarized-light",
    "kanagawa",
    "kanagawa-lotus",
    "rose-pine",
    "rose-pine-moon",
    "rose-pine-dawn",
    "everforest",
    "github-dark",
    "github-light",
    "high-contrast",
    "vesper",
}

/// Key of the default theme.
pub const DEFAULT: &str = "catppuccin-mocha";

/// Whether a theme is made for dark or light terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Appearance {
    /// Light text on a dark ground.
    Dark,
    /// Dark text on a light ground.
    Light,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ThemeFile {
    name: String,
    appearance: Appearance,
    palette: PaletteFile,
}

macro_rules! palette {
    ($($field:ident = $named:ident),* $(,)?) => {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct PaletteFile { $($field: String,)* }

        /// The colours of a theme, reduced to what the terminal shows.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names are those of the theme files")]
        pub struct Palette { $(pub $field: Color,)* }

        impl Palette {
            /// The names of the colours, as theme files and `[theme.custom]` have them.
            pub const SLOTS: &[&str] = &[$(stringify!($field),)*];

            /// Changes a colour by name. Where the terminal has 16 colours, only one of these can be chosen.
            pub fn set(&mut self, slot: &str, color: Color, depth: Depth) {
                let exact = matches!(color, Color::Rgb(..) | Color::Indexed(_));
                match slot {
                    $(stringify!($field) if depth == Depth::Named && !exact => self.$field = color,
                      stringify!($field) => self.$field = color::reduce(color, self.$field, depth),)*
                    _ => {}
                }
            }

            fn read(file: &PaletteFile) -> Result<Self, String> {
                Ok(Self { $($field:
                    color::parse(&file.$field).map_err(|error| format!("palette.{}: {error}", stringify!($field)))?,
                )* })
            }

            fn reduced(self, depth: Depth) -> Self {
                Self { $($field: color::reduce(self.$field, Color::$named, depth),)* }
            }
        }
    };
}

palette! {
    base = Reset, surface = Black, overlay = DarkGray, muted = DarkGray, subtext = Gray, text = Reset, red = LightRed,
    peach = LightYellow, yellow = Yellow, green = LightGreen, teal = LightCyan, blue = LightBlue, lavender = LightBlue,
    mauve = LightMagenta,
}

/// Least contrast of text, on the theme's ground and on the lifted one of selected rows, toasts and dialogs.
const TEXT: f64 = 4.5;
/// Least contrast of labels, hints and marks, which have a glyph beside their colour, and of lines.
const SECONDARY: f64 = 3.0;

impl Palette {
    /// The same colours, lighter or darker where they could not be read. Many palettes are made for syntax on their own ground
    /// and have accents, or greys on the lifted ground, that are too faint for small text.
    fn made_legible(mut self, depth: Depth) -> Self {
        let shown = |color| color::reduce(color, color, depth);
        let grounds = [self.base, self.surface];
        let least = [
            (&mut self.text, TEXT),
            (&mut self.subtext, TEXT),
            (&mut self.red, TEXT),
            (&mut self.peach, TEXT),
            (&mut self.yellow, TEXT),
            (&mut self.green, TEXT),
            (&mut self.teal, TEXT),
            (&mut self.blue, TEXT),
            (&mut self.lavender, TEXT),
            (&mut self.mauve, TEXT),
            (&mut self.muted, SECONDARY),
        ];
        for (color, least) in least {
            *color = color::legible(*color, &grounds, least, shown);
        }
        // Lines are on the theme's own ground only.
        self.overlay = color::legible(self.overlay, &grounds[..1], SECONDARY, shown);
        self
    }
}

/// What a node or run is doing, as shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mark {
    /// Not reached.
    Idle,
    /// Waiting for its turn.
    Queued,
    /// At work.
    Running,
    /// Was at work at the moment that a replay shows.
    Replay,
    /// Needs an answer.
    Waiting,
    /// Held by a person.
    Paused,
    /// Ended well.
    Ok,
    /// Ended with an error.
    Failed,
    /// Ran out of time.
    TimedOut,
    /// Ended by a person.
    Cancelled,
    /// Its effect may or may not have happened.
    Ambiguous,
}

impl Mark {
    /// One-column glyph.
    #[must_use]
    pub const fn glyph(self, ascii: bool) -> &'static str {
        match (self, ascii) {
            (Self::Idle, false) => "○",
            (Self::Idle, true) => ".",
            (Self::Queued, false) => "◌",
            (Self::Queued, true) => "o",
            (Self::Running, false) => "◉",
            (Self::Running, true) => ">",
            (Self::Replay, false) => "◈",
            (Self::Replay, true) => "@",
            (Self::Waiting, false) => "◇",
            (Self::Waiting, true) => "?",
            (Self::Paused, false) => "‖",
            (Self::Paused, true) => "=",
            (Self::Ok, false) => "✓",
            (Self::Ok, true) => "+",
            (Self::Failed, false) => "✗",
            (Self::Failed, true) => "x",
            (Self::TimedOut, false) => "◔",
            (Self::TimedOut, true) => "t",
            (Self::Cancelled, false) => "⊘",
            (Self::Cancelled, true) => "-",
            (Self::Ambiguous, false) => "≈",
            (Self::Ambiguous, true) => "~",
        }
    }

    /// How much a mark says about a group of nodes: the heaviest stands for all of them.
    #[must_use]
    pub const fn weight(self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::Queued | Self::Cancelled => 1,
            Self::Ok => 2,
            Self::Paused | Self::TimedOut => 3,
            Self::Ambiguous | Self::Waiting => 4,
            Self::Failed => 5,
            Self::Running | Self::Replay => 6,
        }
    }

    /// The mark of a run's status.
    #[must_use]
    pub const fn of(status: DisplayStatus) -> Self {
        match status {
            DisplayStatus::Queued => Self::Queued,
            DisplayStatus::Running => Self::Running,
            DisplayStatus::Waiting => Self::Waiting,
            DisplayStatus::Paused => Self::Paused,
            DisplayStatus::Completed => Self::Ok,
            DisplayStatus::Failed => Self::Failed,
            DisplayStatus::TimedOut => Self::TimedOut,
            DisplayStatus::Cancelled => Self::Cancelled,
            DisplayStatus::Ambiguous => Self::Ambiguous,
        }
    }

    /// A word for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Idle => "not reached",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Replay => "replayed",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
            Self::Ok => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Cancelled => "cancelled",
            Self::Ambiguous => "ambiguous",
        }
    }
}

/// A theme for one terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Theme {
    /// Name for people.
    pub name: String,
    /// Dark or light.
    pub appearance: Appearance,
    /// Colours.
    pub palette: Palette,
    /// Colours of the terminal.
    pub depth: Depth,
    /// Whether only ASCII characters may be drawn.
    pub ascii: bool,
}

impl Theme {
    /// Keys of the embedded themes.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(key, _)| *key)
    }

    /// An embedded theme by key.
    ///
    /// # Errors
    ///
    /// A sentence that names the theme and lists the known ones, or the bad field.
    pub fn load(key: &str, depth: Depth) -> Result<Self, String> {
        let wanted = key.to_ascii_lowercase().replace([' ', '_'], "-");
        let (_, text) = BUILTIN.iter().find(|(name, _)| *name == wanted).ok_or_else(|| {
            format!(
                "there is no theme {key:?}; known: {}",
                Self::names().collect::<Vec<_>>().join(", ")
            )
        })?;
        let file: ThemeFile = toml::from_str(text).map_err(|error| format!("theme {key}: {error}"))?;
        let palette = Palette::read(&file.palette).map_err(|error| format!("theme {key}: {error}"))?;
        Ok(Self {
            name: file.name,
            appearance: file.appearance,
            palette: palette.made_legible(depth).reduced(depth),
            depth,
            ascii: false,
        })
    }

    /// No colours at all: for plain text.
    #[must_use]
    pub fn plain() -> Self {
        Self::load(DEFAULT, Depth::None).expect("the embedded default theme is read by a test")
    }

    const fn colorless(&self) -> bool {
        matches!(self.depth, Depth::None)
    }

    /// Ordinary text on the theme's ground.
    #[must_use]
    pub fn text(&self) -> Style {
        Style::new().fg(self.palette.text).bg(self.palette.base)
    }

    /// Text of less weight.
    #[must_use]
    pub fn subtext(&self) -> Style {
        Style::new().fg(self.palette.subtext)
    }

    /// Labels and hints.
    #[must_use]
    pub fn muted(&self) -> Style {
        self.dimmed(self.palette.muted)
    }

    /// Lines and everything that may be overlooked.
    #[must_use]
    pub fn faint(&self) -> Style {
        self.dimmed(self.palette.overlay)
    }

    fn dimmed(&self, color: Color) -> Style {
        let style = Style::new().fg(color);
        if self.colorless() {
            style.add_modifier(Modifier::DIM)
        } else {
            style
        }
    }

    /// Headings and the focused part.
    #[must_use]
    pub fn accent(&self) -> Style {
        Style::new().fg(self.palette.mauve).add_modifier(Modifier::BOLD)
    }

    /// Keys in hints.
    #[must_use]
    pub fn key(&self) -> Style {
        Style::new().fg(self.palette.peach)
    }

    /// Names of facts.
    #[must_use]
    pub fn label(&self) -> Style {
        Style::new().fg(self.palette.lavender)
    }

    /// Errors.
    #[must_use]
    pub fn error(&self) -> Style {
        Style::new().fg(self.palette.red)
    }

    /// Warnings and staleness.
    #[must_use]
    pub fn warning(&self) -> Style {
        Style::new().fg(self.palette.yellow)
    }

    /// A border; brighter when its part has the focus.
    #[must_use]
    pub fn border(&self, focused: bool) -> Style {
        if focused {
            Style::new().fg(self.palette.mauve)
        } else {
            self.faint()
        }
    }

    /// The ground of a selected row.
    #[must_use]
    pub fn selected(&self, focused: bool) -> Style {
        match self.depth {
            Depth::None | Depth::Named if focused => Style::new().add_modifier(Modifier::REVERSED),
            Depth::None | Depth::Named => Style::new().add_modifier(Modifier::BOLD),
            _ => Style::new().bg(self.palette.surface),
        }
    }

    /// A lifted ground, for toasts and popups.
    #[must_use]
    pub fn raised(&self) -> Style {
        Style::new().fg(self.palette.text).bg(self.palette.surface)
    }

    /// A transition that was not taken.
    #[must_use]
    pub fn edge(&self) -> Style {
        self.faint()
    }

    /// The taken path.
    #[must_use]
    pub fn path(&self) -> Style {
        Style::new().fg(self.palette.teal)
    }

    /// The transition into what runs now.
    #[must_use]
    pub fn active(&self) -> Style {
        Style::new().fg(self.palette.blue).add_modifier(Modifier::BOLD)
    }

    /// Colour of a mark.
    #[must_use]
    pub fn status(&self, mark: Mark) -> Style {
        let palette = &self.palette;
        let color = match mark {
            Mark::Idle => return self.faint(),
            Mark::Queued => palette.subtext,
            Mark::Running => palette.blue,
            Mark::Waiting => palette.yellow,
            Mark::Paused => palette.lavender,
            Mark::Ok => palette.green,
            Mark::Failed => palette.red,
            Mark::Replay | Mark::TimedOut => palette.peach,
            Mark::Cancelled => palette.muted,
            Mark::Ambiguous => palette.mauve,
        };
        let style = Style::new().fg(color);
        if matches!(mark, Mark::Running | Mark::Replay | Mark::Failed | Mark::Waiting) {
            style.add_modifier(Modifier::BOLD)
        } else {
            style
        }
    }

    /// A glyph of a mark.
    #[must_use]
    pub const fn glyph(&self, mark: Mark) -> &'static str {
        mark.glyph(self.ascii)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::viewer::markdown::Tone;

    const MARKS: [Mark; 11] = [
        Mark::Idle,
        Mark::Queued,
        Mark::Running,
        Mark::Replay,
        Mark::Waiting,
        Mark::Paused,
        Mark::Ok,
        Mark::Failed,
        Mark::TimedOut,
        Mark::Cancelled,
        Mark::Ambiguous,
    ];

    #[test]
    fn every_embedded_theme_is_complete() {
        for name in Theme::names() {
            for depth in [Depth::True, Depth::Indexed, Depth::Named, Depth::None] {
                Theme::load(name, depth).unwrap();
            }
        }
    }

    /// Every role that drawing asks for, with the least contrast, and whether it stands on lifted grounds too.
    fn roles(theme: &Theme) -> Vec<(String, Style, f64, bool)> {
        let mut roles = vec![
            ("text".to_owned(), theme.text(), TEXT, true),
            ("raised".to_owned(), theme.raised(), TEXT, true),
            ("subtext".to_owned(), theme.subtext(), TEXT, true),
            ("accent".to_owned(), theme.accent(), TEXT, true),
            ("key".to_owned(), theme.key(), TEXT, true),
            ("label".to_owned(), theme.label(), TEXT, true),
            ("error".to_owned(), theme.error(), TEXT, true),
            ("warning".to_owned(), theme.warning(), TEXT, true),
            ("path".to_owned(), theme.path(), TEXT, true),
            ("active".to_owned(), theme.active(), TEXT, true),
            ("muted".to_owned(), theme.muted(), SECONDARY, true),
            ("faint".to_owned(), theme.faint(), SECONDARY, false),
            ("border".to_owned(), theme.border(false), SECONDARY, false),
            ("focused border".to_owned(), theme.border(true), SECONDARY, false),
            ("edge".to_owned(), theme.edge(), SECONDARY, false),
        ];
        for mark in MARKS {
            // A mark that is only glyph and colour; words beside it have roles of their own.
            let lifted = mark != Mark::Idle;
            roles.push((mark.word().to_owned(), theme.status(mark), SECONDARY, lifted));
        }
        for tone in Tone::ALL {
            let least = match tone {
                Tone::Muted | Tone::Faint | Tone::Comment => SECONDARY,
                _ => TEXT,
            };
            roles.push((format!("{tone:?}"), tone.style(theme), least, tone != Tone::Faint));
        }
        roles
    }

    #[test]
    fn every_role_of_every_theme_can_be_read_on_its_grounds() {
        let mut faults = Vec::new();
        let mut measured = 0;
        for key in Theme::names() {
            for depth in [Depth::True, Depth::Indexed] {
                let theme = Theme::load(key, depth).unwrap();
                for (role, style, least, lifted) in roles(&theme) {
                    let grounds = [("base", theme.palette.base), ("surface", theme.palette.surface)];
                    for (name, ground) in grounds.into_iter().take(if lifted { 2 } else { 1 }) {
                        let ink = style.fg.expect("every role has a colour of its own");
                        let Some(contrast) = color::contrast(ink, ground) else {
                            assert_eq!(key, "terminal", "{role} on {name} is {ink} on {ground}");
                            continue;
                        };
                        measured += 1;
                        if contrast < least {
                            faults.push(format!(
                                "{key} {depth:?}: {role} on {name} has {contrast:.2}, not {least}"
                            ));
                        }
                    }
                }
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(measured > 3_000, "{measured}");
    }

    /// Being made legible must not make marks alike that colour alone tells apart at a glance.
    #[test]
    fn the_statuses_that_need_somebody_keep_colours_of_their_own() {
        for key in Theme::names() {
            let theme = Theme::load(key, Depth::True).unwrap();
            let color = |mark| theme.status(mark).fg.unwrap();
            for (one, other) in [
                (Mark::Running, Mark::Failed),
                (Mark::Running, Mark::Waiting),
                (Mark::Running, Mark::Ok),
                (Mark::Waiting, Mark::Failed),
                (Mark::Waiting, Mark::Paused),
                (Mark::Ok, Mark::Failed),
                (Mark::Queued, Mark::Waiting),
            ] {
                assert_ne!(color(one), color(other), "{key}: {one:?} and {other:?}");
            }
        }
    }

    #[test]
    fn an_unknown_theme_lists_the_known_ones() {
        let error = Theme::load("zenburn", Depth::True).unwrap_err();
        assert!(
            error.contains("zenburn") && error.contains("catppuccin-mocha"),
            "{error}"
        );
    }

    #[test]
    fn marks_differ_by_glyph() {
        use std::collections::HashSet;
        for ascii in [true, false] {
            let glyphs: HashSet<_> = MARKS.iter().map(|mark| mark.glyph(ascii)).collect();
            assert_eq!(glyphs.len(), MARKS.len());
        }
    }
}
