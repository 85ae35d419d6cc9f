//! `piw pi install`, `uninstall`, `doctor` and the bridge that the extension starts.

use serde_json::json;

use super::{output, session};
use crate::cli::{JsonFlag, PiCommand};
use crate::failure::{Exit, Failure, Outcome};
use crate::pi::bridge;
use crate::pi::doctor::{self, Check, Verdict};
use crate::pi::install::{self, Change};
use crate::text;

/// Carries out a command of the extension for Pi.
///
/// # Errors
/// A directory that cannot be written, or a file there that piw did not write.
pub fn run(command: &PiCommand) -> Outcome {
    match command {
        PiCommand::Install(args) => install(args),
        PiCommand::Uninstall(args) => uninstall(args),
        PiCommand::Doctor(args) => doctor(args),
        PiCommand::Bridge => serve(),
    }
}

fn failed(message: String) -> Failure {
    Failure::new(Exit::Failed, message)
}

fn install(args: &JsonFlag) -> Outcome {
    let agent = install::agent_dir().map_err(Failure::usage)?;
    let program = doctor::program().map_err(failed)?;
    let wanted = install::extension(&program).map_err(failed)?;
    let change = install::install(&agent, &wanted).map_err(failed)?;
    let path = install::file(&agent);
    if args.json {
        output::json(&json!({ "path": path, "program": program, "changed": change == Change::Written }))?;
        return Ok(Exit::Done);
    }
    let what = match change {
        Change::Written => "wrote",
        _ => "unchanged",
    };
    output::text(&format!(
        "{what} {}\nnext: start pi (or type /reload in it), then /workflow help; piw pi doctor checks everything\n",
        path.display()
    ))?;
    Ok(Exit::Done)
}

fn uninstall(args: &JsonFlag) -> Outcome {
    let agent = install::agent_dir().map_err(Failure::usage)?;
    let change = install::uninstall(&agent).map_err(failed)?;
    let path = install::file(&agent);
    if args.json {
        output::json(&json!({ "path": path, "changed": change == Change::Removed }))?;
        return Ok(Exit::Done);
    }
    output::text(&match change {
        Change::Removed => format!("removed {}\n", path.display()),
        _ => format!("nothing to remove: {} does not exist\n", path.display()),
    })?;
    Ok(Exit::Done)
}

fn doctor(args: &JsonFlag) -> Outcome {
    let checks = doctor::checks();
    let is_well = checks.iter().all(|check| check.verdict != Verdict::Bad);
    if args.json {
        output::json(&json!({ "ok": is_well, "checks": checks }))?;
    } else {
        let lines: Vec<String> = checks.iter().flat_map(lines).collect();
        output::text(&format!("{}\n", lines.join("\n")))?;
    }
    Ok(if is_well { Exit::Done } else { Exit::Failed })
}

fn lines(check: &Check) -> Vec<String> {
    let mark = match check.verdict {
        Verdict::Good => '✓',
        Verdict::Note => '·',
        Verdict::Bad => '✗',
    };
    let mut lines = vec![format!("{mark} {:<10} {}", check.name, text::clean(&check.message))];
    if let Some(hint) = &check.hint {
        lines.push(format!("  {:<10} → {}", "", text::clean(hint)));
    }
    lines
}

fn serve() -> Outcome {
    let places = session::places()?;
    let runtime = session::runtime()?;
    let served = bridge::run(&runtime, places);
    // Calls that nobody waits for any more do not hold the process.
    runtime.shutdown_background();
    served.map(|()| Exit::Done).map_err(failed)
}
