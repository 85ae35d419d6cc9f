//! What a session is told when a run ended. One pure function, so that the words are the same wherever they are made.

use std::fmt::Write;

use piw_protocol::run::RunStatus;

/// A run that ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
    /// Its id.
    pub run_id: &'a str,
    /// The workflow's name.
    pub workflow: &'a str,
    /// The run's title.
    pub title: Option<&'a str>,
    /// How it ended.
    pub status: RunStatus,
    /// The beginning of its output as JSON, and the bytes of the whole.
    pub output: Option<(&'a str, u64)>,
    /// Why it did not complete.
    pub error: Option<&'a str>,
}

/// The text of a terminal message: the result, and how to go on after it.
#[must_use]
pub fn ended(run: &Ended<'_>) -> String {
    let how = match run.status {
        RunStatus::Completed => "completed",
        RunStatus::TimedOut => "timed out",
        RunStatus::Cancelled => "was cancelled",
        _ => "failed",
    };
    let mut text = format!("The workflow {:?}", run.workflow);
    if let Some(title) = run.title {
        let _ = write!(text, " ({title})");
    }
    let _ = writeln!(text, " {how}. Run: {}", run.run_id);
    if let Some(error) = run.error {
        let _ = writeln!(text, "\nError: {error}");
    }
    if let Some((output, bytes)) = run.output.filter(|(output, _)| *output != "null") {
        let _ = writeln!(text, "\nResult:\n{output}");
        if (output.len() as u64) < bytes {
            let _ = writeln!(
                text,
                "… the first {} of {bytes} bytes; `piw show {}` shows the rest.",
                output.len(),
                run.run_id
            );
        }
    }
    match run.status {
        RunStatus::Completed => {
            text.push_str("\nTell the user briefly what came out. Do not repeat work of the workflow.\n");
        }
        RunStatus::Cancelled => {}
        _ => {
            let _ = writeln!(
                text,
                "\nExplain the failure to the user. Steps that finished are kept: do not do them again by hand. \
                 `piw restart {}` starts the run again with the same input; the `workflow` tool's action \"start\" starts a new one. \
                 Do neither before the user agrees.",
                run.run_id
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Ended<'_> = Ended {
        run_id: "r1",
        workflow: "release",
        title: Some("Release 2.0"),
        status: RunStatus::Failed,
        output: None,
        error: Some("no such tag"),
    };

    #[test]
    fn a_failure_says_why_and_how_to_go_on() {
        let text = ended(&FAILED);
        assert!(
            text.starts_with("The workflow \"release\" (Release 2.0) failed. Run: r1\n"),
            "{text}"
        );
        assert!(
            text.contains("Error: no such tag") && text.contains("piw restart r1"),
            "{text}"
        );
    }

    #[test]
    fn a_long_result_says_how_much_is_missing() {
        let run = Ended {
            status: RunStatus::Completed,
            error: None,
            output: Some(("\"abc", 9_000)),
            ..FAILED
        };
        let text = ended(&run);
        assert!(text.contains("Result:\n\"abc\n… the first 4 of 9000 bytes"), "{text}");
        assert!(!text.contains("piw restart"), "{text}");
        let whole = Ended {
            output: Some(("7", 1)),
            ..run
        };
        assert!(!ended(&whole).contains('…'));
    }

    #[test]
    fn a_cancellation_asks_for_nothing() {
        let run = Ended {
            status: RunStatus::Cancelled,
            error: None,
            ..FAILED
        };
        assert_eq!(
            ended(&run),
            "The workflow \"release\" (Release 2.0) was cancelled. Run: r1\n"
        );
    }
}
