//! JSON arguments: text, `@file`, or `-` for standard input.

use std::fs::File;
use std::io::Read;

use serde_json::Value;

use crate::cli::not_json;
use crate::failure::Failure;

/// Most bytes of JSON that a command accepts (decision 9: `run.start` input).
pub const LIMIT: u64 = 64 * 1024 * 1024;

/// Reads and parses a JSON argument; `what` names it in errors.
///
/// # Errors
/// An unreadable file, more than [`LIMIT`] bytes, bytes that are not UTF-8 or not JSON: usage errors that name the argument.
pub fn json(what: &str, argument: &str) -> Result<Value, Failure> {
    let text = if argument == "-" {
        bounded(what, "standard input", &mut std::io::stdin().lock())?
    } else if let Some(path) = argument.strip_prefix('@') {
        let mut file =
            File::open(path).map_err(|error| Failure::usage(format!("{what}: cannot open {path}: {error}")))?;
        bounded(what, path, &mut file)?
    } else {
        argument.to_owned()
    };
    serde_json::from_str(&text).map_err(|error| {
        let failure = not_json(what, &error);
        if argument == "-" || argument.starts_with('@') {
            failure
        } else {
            failure.hint("quote it for the shell, or give a file: @input.json")
        }
    })
}

fn bounded(what: &str, name: &str, from: &mut dyn Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    from.take(LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage(format!("{what}: cannot read {name}: {error}")))?;
    if bytes.len() as u64 > LIMIT {
        return Err(Failure::usage(format!(
            "{what}: {name} is larger than the limit of {LIMIT} bytes (64 MiB)"
        )));
    }
    String::from_utf8(bytes).map_err(|error| Failure::usage(format!("{what}: {name} is not UTF-8: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;

    #[test]
    fn errors_name_the_argument_and_the_file() {
        let missing = json("--input", "@/no/such/file").unwrap_err();
        assert_eq!(missing.exit, Exit::Usage);
        assert!(missing.message.contains("--input") && missing.message.contains("/no/such/file"));
        let broken = json("--input", "{a:1}").unwrap_err();
        assert!(broken.message.starts_with("--input is not JSON"));
        assert_eq!(json("--input", "[1,2]").unwrap(), serde_json::json!([1, 2]));
    }

    #[test]
    fn a_larger_input_than_the_limit_is_refused_without_reading_it_all() {
        let mut endless = std::io::repeat(b' ');
        let refused = bounded("--input", "endless", &mut endless).unwrap_err();
        assert!(refused.message.contains("67108864"), "{}", refused.message);
    }
}
