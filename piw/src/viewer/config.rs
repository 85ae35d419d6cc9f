//! The viewer's configuration file: where it is, what it says, and saving single values without touching the rest.
//!
//! A bad field is reported and the others count. Saving keeps comments, order and keys that this version does not know.

use std::io;
use std::path::Path;

use super::keymap::Binding;
use super::theme::choice::Wanted;
use super::theme::{Palette, color};
use toml_edit::{DocumentMut, Item, Table, value};

/// Widest sidebar that a file may ask for.
const WIDEST: i64 = 500;

/// What the file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// `[theme]`.
    pub theme: Wanted,
    /// `[ui] sidebar_width`, columns.
    pub sidebar_width: Option<u16>,
    /// `[ui] inspector_height`, rows below the graph or columns beside it.
    pub inspector_height: Option<u16>,
    /// `[keys]`, in the order of the file.
    pub keys: Vec<Binding>,
    /// Sentences about fields that cannot be used.
    pub problems: Vec<String>,
}

/// Where the file is: the server's children look for their agent in the same one.
pub use piw_runner::config_path as path;

/// Reads the file; one that does not exist says nothing.
#[must_use]
pub fn load(path: &Path) -> Config {
    match std::fs::read_to_string(path) {
        Ok(text) => read(&text, path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Config::default(),
        Err(error) => Config {
            problems: vec![format!("{}: {error}", path.display())],
            ..Config::default()
        },
    }
}

fn read(text: &str, path: &Path) -> Config {
    let mut config = Config::default();
    let document = match text.parse::<DocumentMut>() {
        Ok(document) => document,
        Err(error) => {
            let first = error.to_string().lines().next().unwrap_or_default().to_owned();
            config.problems.push(format!("{}: {first}", path.display()));
            return config;
        }
    };
    let field = |table: &str, name: &str| document.get(table).and_then(|table| table.get(name));
    for (name, slot) in [
        ("name", &mut config.theme.name),
        ("dark_name", &mut config.theme.dark_name),
        ("light_name", &mut config.theme.light_name),
    ] {
        match field("theme", name).map(Item::as_str) {
            Some(Some(key)) => *slot = Some(key.to_owned()),
            Some(None) => config.problems.push(format!("theme.{name}: expected a text")),
            None => {}
        }
    }
    match field("theme", "auto_switch").map(Item::as_bool) {
        Some(Some(on)) => config.theme.auto_switch = on,
        Some(None) => config.problems.push("theme.auto_switch: expected true or false".into()),
        None => {}
    }
    if let Some(item) = field("theme", "custom") {
        read_custom(item, &mut config);
    }
    for (name, slot) in [
        ("sidebar_width", &mut config.sidebar_width),
        ("inspector_height", &mut config.inspector_height),
    ] {
        let Some(item) = field("ui", name) else { continue };
        match item
            .as_integer()
            .filter(|size| (1..=WIDEST).contains(size))
            .and_then(|size| u16::try_from(size).ok())
        {
            Some(size) => *slot = Some(size),
            None => config
                .problems
                .push(format!("ui.{name}: expected a number from 1 to {WIDEST}")),
        }
    }
    if let Some(item) = document.get("keys") {
        read_keys(item, &mut config);
    }
    config
}

fn read_custom(item: &Item, config: &mut Config) {
    let Some(table) = item.as_table_like() else {
        config.problems.push("theme.custom: expected a table of colours".into());
        return;
    };
    for (slot, item) in table.iter() {
        let read = if Palette::SLOTS.contains(&slot) {
            let text = item.as_str().ok_or_else(|| "expected a text".to_owned());
            text.and_then(color::parse)
        } else {
            Err(format!("no such colour; known: {}", Palette::SLOTS.join(", ")))
        };
        match read {
            Ok(color) => config.theme.custom.push((slot.to_owned(), color)),
            Err(error) => config.problems.push(format!("theme.custom.{slot}: {error}")),
        }
    }
}

fn read_keys(item: &Item, config: &mut Config) {
    let Some(table) = item.as_table_like() else {
        config.problems.push("keys: expected a table of actions".into());
        return;
    };
    for (action, item) in table.iter() {
        let keys = match item.as_value() {
            Some(toml_edit::Value::String(key)) => Some(vec![key.value().clone()]),
            Some(toml_edit::Value::Array(keys)) => {
                let texts = keys.iter().map(|key| key.as_str().map(str::to_owned));
                texts.collect()
            }
            _ => None,
        };
        match keys {
            Some(keys) => config.keys.push(Binding {
                action: action.to_owned(),
                keys,
            }),
            None => config
                .problems
                .push(format!("keys.{action}: expected a key or a list of keys")),
        }
    }
}

/// A value to save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// A theme's key in `[theme]`.
    Theme {
        /// `name`, `dark_name` or `light_name`.
        field: &'static str,
        /// The key.
        name: String,
    },
    /// `[ui] sidebar_width` and `inspector_height`; 0 leaves the choice to the viewer and is not saved.
    Sizes {
        /// Columns of the run browser.
        sidebar: u16,
        /// Rows or columns of the inspector.
        inspector: u16,
    },
}

/// Writes one setting into the file, which is created with its directory when it does not exist.
///
/// # Errors
///
/// When the file is not TOML (it is left alone) or cannot be written.
pub fn save(path: &Path, setting: &Setting) -> io::Result<()> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let changed = apply(&text, setting).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    // A whole new file in its place: a crash leaves the old one or the new one.
    let draft = path.with_extension(format!("toml.{}", std::process::id()));
    std::fs::write(&draft, changed)?;
    std::fs::rename(&draft, path)
}

fn apply(text: &str, setting: &Setting) -> Result<String, String> {
    let mut document = text.parse::<DocumentMut>().map_err(|error| error.to_string())?;
    let mut set = |table: &str, name: &str, new: toml_edit::Value| -> Result<(), String> {
        let item = document.entry(table).or_insert_with(|| Item::Table(Table::new()));
        let table = item
            .as_table_like_mut()
            .ok_or_else(|| format!("{table} is not a table"))?;
        match table.get_mut(name).and_then(Item::as_value_mut) {
            Some(old) => {
                // The comment behind the old value stays.
                let decor = old.decor().clone();
                *old = new;
                *old.decor_mut() = decor;
            }
            None => {
                table.insert(name, value(new));
            }
        }
        Ok(())
    };
    match setting {
        Setting::Theme { field, name } => set("theme", field, name.as_str().into())?,
        Setting::Sizes { sidebar, inspector } => {
            for (name, size) in [("sidebar_width", *sidebar), ("inspector_height", *inspector)] {
                if size > 0 {
                    set("ui", name, i64::from(size).into())?;
                }
            }
        }
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use ratatui::style::Color;

    use super::*;

    fn theme(name: &str) -> Setting {
        Setting::Theme {
            field: "name",
            name: name.into(),
        }
    }

    #[test]
    fn own_colours_and_switching_are_read_and_bad_ones_told() {
        let text = "[theme]\nauto_switch = true\nlight_name = \"nord\"\ndark_name = 1\n[theme.custom]\nred = \"#f00\"\n\
                    base = \"reset\"\nblue = \"blueish\"\nbleu = \"blue\"\ngreen = 3\n";
        let config = read(text, Path::new("c.toml"));
        assert!(config.theme.auto_switch);
        assert_eq!(config.theme.light_name.as_deref(), Some("nord"));
        let custom = [
            ("red".to_owned(), Color::Rgb(255, 0, 0)),
            ("base".to_owned(), Color::Reset),
        ];
        assert_eq!(config.theme.custom, custom);
        for told in [
            "theme.dark_name: expected a text",
            "theme.custom.blue: \"blueish\" is not a colour",
            "theme.custom.bleu: no such colour; known: base, surface",
            "theme.custom.green: expected a text",
        ] {
            assert!(
                config.problems.iter().any(|problem| problem.starts_with(told)),
                "{told}: {:?}",
                config.problems
            );
        }
        assert_eq!(config.problems.len(), 4);
    }

    #[test]
    fn a_bad_field_is_reported_and_the_rest_counts() {
        let text = "[theme]\nname = 3\n[ui]\nsidebar_width = 40\ninspector_height = -1\n[other]\nx = 1\n";
        let config = read(text, Path::new("c.toml"));
        assert_eq!(
            (config.theme.name, config.sidebar_width, config.inspector_height),
            (None, Some(40), None)
        );
        assert_eq!(config.problems.len(), 2, "{:?}", config.problems);
        assert_eq!(read("[theme", Path::new("c.toml")).problems.len(), 1);
    }

    #[test]
    fn saving_keeps_comments_and_unknown_keys() {
        let text = "# mine\n[theme] # colours\nname = \"nord\" # the best\nextra = true\n\n[keys]\nquit = \"x\"\n";
        let changed = apply(text, &theme("dracula")).unwrap();
        assert_eq!(changed, text.replace("nord", "dracula"));
        let sizes = apply(
            "",
            &Setting::Sizes {
                sidebar: 40,
                inspector: 0,
            },
        )
        .unwrap();
        assert_eq!(sizes, "[ui]\nsidebar_width = 40\n");
        assert!(apply("theme = 1\n", &theme("x")).is_err());
    }

    #[test]
    fn a_file_is_created_where_none_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/config.toml");
        save(&path, &theme("vesper")).unwrap();
        assert_eq!(load(&path).theme.name.as_deref(), Some("vesper"));
        assert_eq!(load(&dir.path().join("none.toml")), Config::default());
    }
}
