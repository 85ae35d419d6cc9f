//! `piw themes`: the themes of the viewer.

use super::output;
use crate::cli::JsonFlag;
use crate::failure::{Exit, Outcome};
use crate::viewer::theme::Theme;

/// Lists the themes.
///
/// # Errors
/// When standard output cannot be written.
pub fn run(args: &JsonFlag) -> Outcome {
    let names: Vec<&str> = Theme::names().collect();
    if args.json {
        output::json(&names)?;
    } else {
        output::text(&format!("{}\n", names.join("\n")))?;
    }
    Ok(Exit::Done)
}
