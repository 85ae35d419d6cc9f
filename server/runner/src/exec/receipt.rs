//! Receipts of actions and processes, bounded so that they always fit a message.

use piw_process::hold::ExitState;
use piw_protocol::run::ActionReceipt;

use super::command::{CommandSpec, Finished};

/// Bytes of JSON that a receipt keeps of one stream; the node's output holds what was captured.
const STREAM: usize = 96 * 1024;
/// Bytes of JSON that a receipt keeps of the command and of all arguments.
const ARGUMENTS: usize = 48 * 1024;

/// Receipt of an action's `run` callback.
pub(crate) fn of_function(duration_ms: u64) -> ActionReceipt {
    ActionReceipt {
        action_type: "function".to_owned(),
        duration_ms: Some(duration_ms),
        ..empty()
    }
}

/// Receipt of a command that did not start.
pub(crate) fn of_unstarted(spec: &CommandSpec) -> ActionReceipt {
    let mut command = spec.command.clone();
    let mut left = ARGUMENTS;
    take(&mut command, &mut left);
    let mut args = Vec::new();
    for arg in &spec.args {
        let mut arg = arg.clone();
        take(&mut arg, &mut left);
        args.push(arg);
        if left == 0 {
            break;
        }
    }
    ActionReceipt {
        action_type: "shell".to_owned(),
        command: Some(command),
        args: Some(args),
        cwd: Some(spec.cwd.to_string_lossy().into_owned()),
        ..empty()
    }
}

/// Receipt of a command that ran, for a message: streams are cut to their ends.
pub(crate) fn of_command(spec: &CommandSpec, run: &Finished) -> ActionReceipt {
    let mut receipt = complete(spec, run);
    receipt.stdout_truncated |= receipt.stdout.as_mut().is_some_and(|text| keep_ends(text, STREAM));
    receipt.stderr_truncated |= receipt.stderr.as_mut().is_some_and(|text| keep_ends(text, STREAM));
    receipt
}

/// Receipt of a command that ran, with all that was captured: for script code only, it may not fit a message.
pub(crate) fn complete(spec: &CommandSpec, run: &Finished) -> ActionReceipt {
    let (exit_code, signal) = match run.exit {
        Some(ExitState::Code(code)) => (Some(code), None),
        Some(ExitState::Signal(signal)) => (None, Some(signal_name(signal))),
        None => (None, None),
    };
    ActionReceipt {
        exit_code,
        signal,
        duration_ms: Some(millis(run.duration)),
        stdout: Some(run.stdout.text.clone()),
        stderr: Some(run.stderr.text.clone()),
        stdout_truncated: run.stdout.truncated,
        stderr_truncated: run.stderr.truncated,
        ..of_unstarted(spec)
    }
}

/// Whole milliseconds of a duration.
pub(crate) fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The name of a signal, `SIG42` for one without.
pub(crate) fn signal_name(signal: i32) -> String {
    match nix::sys::signal::Signal::try_from(signal) {
        Ok(known) => known.as_str().to_owned(),
        Err(_) => format!("SIG{signal}"),
    }
}

fn empty() -> ActionReceipt {
    ActionReceipt {
        action_type: String::new(),
        command: None,
        args: None,
        cwd: None,
        exit_code: None,
        signal: None,
        duration_ms: None,
        stdout: None,
        stderr: None,
        stdout_truncated: false,
        stderr_truncated: false,
    }
}

/// Takes a text's bytes from an allowance, cutting the text where it is used up.
fn take(text: &mut String, left: &mut usize) {
    cut(text, *left);
    *left = left.saturating_sub(text.chars().map(json_len).sum::<usize>() + 3);
}

/// Bytes of a character within a JSON string.
fn json_len(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        c if (c as u32) < 0x20 => 6,
        c => c.len_utf8(),
    }
}

/// Cuts a text to at most `limit` bytes of JSON, a mark for the rest included.
pub(crate) fn cut(text: &mut String, limit: usize) {
    const MARK: &str = " …";
    let mut used = 0;
    let mut keep = 0;
    for (at, c) in text.char_indices() {
        used += json_len(c);
        if used > limit {
            text.truncate(keep);
            text.push_str(MARK);
            return;
        }
        if used + MARK.len() <= limit {
            keep = at + c.len_utf8();
        }
    }
}

/// Cuts the middle out of a text of more than `limit` bytes of JSON: the end of a log says most, its beginning says what it
/// was. Answers whether anything was cut.
fn keep_ends(text: &mut String, limit: usize) -> bool {
    if text.len() <= limit / 6 || text.chars().map(json_len).sum::<usize>() <= limit {
        return false;
    }
    let head = bytes_within(text.char_indices(), limit / 4);
    let tail = bytes_within(text.char_indices().rev(), limit - limit / 4 - 64);
    let (head, tail) = (&text[..head], &text[text.len() - tail..]);
    let missing = text[head.len()..text.len() - tail.len()].chars().count();
    *text = format!("{head}\n… {missing} characters left out …\n{tail}");
    true
}

/// Bytes of text whose JSON has at most `limit` bytes.
fn bytes_within(chars: impl Iterator<Item = (usize, char)>, limit: usize) -> usize {
    let mut used = 0;
    chars
        .map(|(_, c)| c)
        .take_while(|c| {
            used += json_len(*c);
            used <= limit
        })
        .map(char::len_utf8)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stream_keeps_its_ends_and_says_what_is_missing() {
        let mut text = format!("first{}last", "\u{1}".repeat(1_000_000));
        assert!(keep_ends(&mut text, STREAM));
        assert!(text.starts_with("first\u{1}") && text.ends_with("\u{1}last"));
        assert!(text.contains("characters left out"));
        assert!(serde_json::to_string(&text).unwrap().len() <= STREAM + 2);
        let mut short = "short".to_owned();
        assert!(!keep_ends(&mut short, STREAM));
    }

    #[test]
    fn a_cut_text_fits_and_is_marked() {
        let mut text = "é".repeat(100);
        cut(&mut text, 50);
        assert!(text.len() <= 50 && text.ends_with(" …"), "{text}");
        let mut text = "fits".to_owned();
        cut(&mut text, 4);
        assert_eq!(text, "fits");
    }
}
