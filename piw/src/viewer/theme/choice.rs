//! Which theme is shown. The command line or the environment pins one; else the configuration names one, or one for dark and
//! one for light terminals, and the terminal's ground decides.

use ratatui::style::Color;

use super::color::Depth;
use super::{Appearance, DEFAULT, Theme};
use crate::viewer::config::Setting;

/// The default on light terminals when the configuration lets the ground decide and names none.
const DEFAULT_LIGHT: &str = "catppuccin-latte";

/// `[theme]` of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `name`.
    pub name: Option<String>,
    /// `auto_switch`: the terminal's ground decides between the two below.
    pub auto_switch: bool,
    /// `dark_name`.
    pub dark_name: Option<String>,
    /// `light_name`.
    pub light_name: Option<String>,
    /// `[theme.custom]`: slots of the palette and their colours.
    pub custom: Vec<(String, Color)>,
}

/// The choice and what it depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    pinned: Option<String>,
    wanted: Wanted,
    ground: Appearance,
    depth: Depth,
    ascii: bool,
}

impl Choice {
    /// `pinned` is the theme of the command line or the environment, `ground` the terminal's as far as it is known.
    #[must_use]
    pub const fn new(pinned: Option<String>, wanted: Wanted, ground: Appearance, depth: Depth, ascii: bool) -> Self {
        Self {
            pinned,
            wanted,
            ground,
            depth,
            ascii,
        }
    }

    /// The choice that gives `theme`, when nothing is configured.
    #[must_use]
    pub fn of(theme: &Theme) -> Self {
        let pinned = theme.name.to_lowercase();
        Self::new(
            Some(pinned),
            Wanted::default(),
            theme.appearance,
            theme.depth,
            theme.ascii,
        )
    }

    /// The key of the chosen theme, as the user wrote it.
    #[must_use]
    pub fn key(&self) -> &str {
        let wanted = &self.wanted;
        let (name, default) = match (&self.pinned, wanted.auto_switch, self.ground) {
            (Some(pinned), ..) => return pinned,
            (None, true, Appearance::Dark) => (&wanted.dark_name, DEFAULT),
            (None, true, Appearance::Light) => (&wanted.light_name, DEFAULT_LIGHT),
            (None, false, _) => (&wanted.name, DEFAULT),
        };
        name.as_deref().unwrap_or(default)
    }

    /// Whether the terminal's ground decides.
    #[must_use]
    pub const fn follows_ground(&self) -> bool {
        self.pinned.is_none() && self.wanted.auto_switch
    }

    /// The chosen theme with the user's own colours.
    ///
    /// # Errors
    /// As [`Theme::load`].
    pub fn theme(&self) -> Result<Theme, String> {
        self.load(self.key())
    }

    /// Any theme with the user's own colours.
    ///
    /// # Errors
    /// As [`Theme::load`].
    pub fn load(&self, key: &str) -> Result<Theme, String> {
        let mut theme = Theme::load(key, self.depth)?;
        for (slot, color) in &self.wanted.custom {
            theme.palette.set(slot, *color, self.depth);
        }
        theme.ascii = self.ascii;
        Ok(theme)
    }

    /// Chooses a theme for good; what has to be saved.
    pub fn keep(&mut self, key: &str) -> Setting {
        self.pinned = None;
        let (field, slot) = match (self.wanted.auto_switch, self.ground) {
            (false, _) => ("name", &mut self.wanted.name),
            (true, Appearance::Dark) => ("dark_name", &mut self.wanted.dark_name),
            (true, Appearance::Light) => ("light_name", &mut self.wanted.light_name),
        };
        *slot = Some(key.to_owned());
        Setting::Theme {
            field,
            name: key.to_owned(),
        }
    }

    /// The terminal's ground became known, or changed; whether the chosen theme may be another one now.
    pub fn set_ground(&mut self, ground: Appearance) -> bool {
        let changed = self.ground != ground;
        self.ground = ground;
        changed && self.follows_ground()
    }
}

/// The terminal's ground as the environment tells it: `PIW_THEME_APPEARANCE`, which settles it, else a guess from `COLORFGBG`,
/// else dark. The second is whether it is settled.
///
/// # Errors
/// The sentence about a bad `PIW_THEME_APPEARANCE`.
pub fn ground(var: impl Fn(&str) -> Option<String>) -> Result<(Appearance, bool), String> {
    if let Some(told) = var("PIW_THEME_APPEARANCE").filter(|told| !told.is_empty()) {
        return match told.to_ascii_lowercase().as_str() {
            "dark" => Ok((Appearance::Dark, true)),
            "light" => Ok((Appearance::Light, true)),
            _ => Err(format!("PIW_THEME_APPEARANCE: expected dark or light, not {told:?}")),
        };
    }
    // "foreground;background", sometimes with a third part between them; numbers of the 16 colours.
    let background = var("COLORFGBG").and_then(|pair| pair.rsplit(';').next()?.parse::<u8>().ok());
    let light = matches!(background, Some(7 | 9..=15));
    Ok((if light { Appearance::Light } else { Appearance::Dark }, false))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Wanted {
        Wanted {
            name: Some("nord".into()),
            auto_switch: true,
            dark_name: Some("dracula".into()),
            light_name: None,
            custom: vec![("text".into(), Color::Rgb(1, 2, 3))],
        }
    }

    #[test]
    fn the_ground_decides_only_where_it_is_asked_to() {
        let mut choice = Choice::new(None, wanted(), Appearance::Dark, Depth::True, false);
        assert_eq!(choice.key(), "dracula");
        assert!(choice.set_ground(Appearance::Light));
        assert_eq!(choice.key(), "catppuccin-latte");
        assert!(!choice.set_ground(Appearance::Light), "nothing changed");
        let mut plain = wanted();
        plain.auto_switch = false;
        let mut choice = Choice::new(None, plain, Appearance::Dark, Depth::True, false);
        assert_eq!(choice.key(), "nord");
        assert!(!choice.set_ground(Appearance::Light));
        let mut pinned = Choice::new(Some("vesper".into()), wanted(), Appearance::Dark, Depth::True, false);
        assert!(!pinned.set_ground(Appearance::Light));
        assert_eq!(pinned.key(), "vesper");
    }

    #[test]
    fn what_is_kept_is_saved_where_it_is_read_from() {
        let mut choice = Choice::new(None, wanted(), Appearance::Light, Depth::True, false);
        let saved = choice.keep("one-light");
        assert_eq!(
            saved,
            Setting::Theme {
                field: "light_name",
                name: "one-light".into()
            }
        );
        assert_eq!(choice.key(), "one-light");
        choice.set_ground(Appearance::Dark);
        assert_eq!(choice.key(), "dracula");
        let mut pinned = Choice::new(
            Some("vesper".into()),
            Wanted::default(),
            Appearance::Dark,
            Depth::True,
            false,
        );
        assert!(matches!(pinned.keep("nord"), Setting::Theme { field: "name", .. }));
        assert_eq!(pinned.key(), "nord", "the kept theme stays on screen");
    }

    #[test]
    fn own_colours_lie_over_every_theme() {
        let choice = Choice::new(None, wanted(), Appearance::Dark, Depth::True, false);
        assert_eq!(choice.theme().unwrap().palette.text, Color::Rgb(1, 2, 3));
        assert_eq!(choice.load("nord").unwrap().palette.text, Color::Rgb(1, 2, 3));
        // Where only 16 colours exist a named one counts, an exact one cannot.
        let mut named = wanted();
        named.custom.push(("red".into(), Color::Magenta));
        let few = Choice::new(None, named, Appearance::Dark, Depth::Named, false)
            .theme()
            .unwrap();
        assert_eq!((few.palette.text, few.palette.red), (Color::Reset, Color::Magenta));
        let none = Choice::new(None, wanted(), Appearance::Dark, Depth::None, false)
            .theme()
            .unwrap();
        assert_eq!(none.palette.text, Color::Reset);
    }

    #[test]
    fn the_environment_tells_or_hints_at_the_ground() {
        let with = |pairs: &'static [(&str, &str)]| {
            ground(move |name| pairs.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned()))
        };
        assert_eq!(with(&[]), Ok((Appearance::Dark, false)));
        assert_eq!(with(&[("COLORFGBG", "0;default;15")]), Ok((Appearance::Light, false)));
        assert_eq!(with(&[("COLORFGBG", "15;8")]), Ok((Appearance::Dark, false)));
        let both = with(&[("COLORFGBG", "0;15"), ("PIW_THEME_APPEARANCE", "Dark")]);
        assert_eq!(both, Ok((Appearance::Dark, true)));
        assert!(
            with(&[("PIW_THEME_APPEARANCE", "beige")])
                .unwrap_err()
                .contains("beige")
        );
    }
}
