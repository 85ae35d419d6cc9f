//! `piw keys`: what the viewer's keys do, with the configuration file taken in.

use serde_json::json;

use super::output;
use crate::cli::JsonFlag;
use crate::failure::{Exit, Outcome};
use crate::text;
use crate::viewer::config;
use crate::viewer::keymap::KeyMap;

/// Lists the actions with their keys. What the file says that cannot be used goes to standard error.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &JsonFlag) -> Outcome {
    let path = config::path(|name| std::env::var(name).ok());
    let config = path.map(|path| config::load(&path)).unwrap_or_default();
    let (map, problems) = KeyMap::configured(&config.keys);
    for problem in config.problems.iter().chain(&problems) {
        eprintln!("warning: {}", text::clean(problem));
    }
    if args.json {
        let entries: Vec<_> = map
            .entries()
            .map(|(entry, keys)| json!({ "action": entry.name, "keys": keys, "text": entry.text }))
            .collect();
        output::json(&entries)?;
    } else {
        let rows = map
            .entries()
            .map(|(entry, keys)| vec![entry.name.to_owned(), keys.join(" "), entry.text.to_owned()]);
        output::text(&output::table(&rows.collect::<Vec<_>>()))?;
    }
    Ok(Exit::Done)
}
