//! The process table of Linux, read from `/proc`.

use std::fs;
use std::io;
use std::sync::OnceLock;

use crate::tree::ProcessInfo;

/// How often a line that cannot be understood is read again.
const PARTIAL_READS: u32 = 8;

/// One process, or `None` when the pid is free.
pub(crate) fn info(pid: u32) -> io::Result<Option<ProcessInfo>> {
    // A process that is collected while its line is read leaves a part of it; asked again, it is gone.
    let mut tries = 0;
    loop {
        match fs::read_to_string(format!("/proc/{pid}/stat")).map(|line| parse_stat(pid, &line)) {
            Ok(Ok(info)) => return Ok(Some(info)),
            Ok(Err(_)) if tries < PARTIAL_READS => tries += 1,
            Err(error) if is_gone(&error) => return Ok(None),
            Ok(Err(error)) | Err(error) => return Err(error),
        }
    }
}

/// Every visible process.
pub(crate) fn all() -> io::Result<Vec<ProcessInfo>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some(info) = info(pid)?
        {
            found.push(info);
        }
    }
    Ok(found)
}

/// The value of a variable in the environment with which a process was executed; `None` when it has none or it cannot be read.
pub(crate) fn environment_value(pid: u32, name: &str) -> Option<String> {
    let block = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = block
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Whether a start identity carries the running system's boot id.
pub(crate) fn is_of_this_boot(start: &str) -> bool {
    start.split_once('/').is_some_and(|(boot, _)| boot == boot_id())
}

/// Children of every thread of this process; `None` when the kernel does not list them (`CONFIG_PROC_CHILDREN`).
pub(crate) fn quick_children() -> Option<Vec<u32>> {
    let mut pids = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()? {
        let path = task.ok()?.path().join("children");
        match fs::read_to_string(path) {
            Ok(list) => pids.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok())),
            // The thread ended; its children belong to another one now, which may have been read already.
            Err(_) => return None,
        }
    }
    Some(pids)
}

/// A process that ends while its files are read reports one of these.
fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// The id of this boot; empty where the kernel does not tell, which weakens the identity to the ticks alone.
fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id").map_or_else(|_| String::new(), |id| id.trim().to_owned())
    })
}

/// Reads `pid (comm) state ppid pgrp session …`; `comm` may contain anything, so fields count from the last `)`.
fn parse_stat(pid: u32, line: &str) -> io::Result<ProcessInfo> {
    let bad = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/proc/{pid}/stat has an unknown form"),
        )
    };
    // Without its end the line may stop within a number.
    let (_, rest) = line
        .strip_suffix('\n')
        .and_then(|line| line.rsplit_once(')'))
        .ok_or_else(bad)?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).ok_or_else(bad);
    // A zombie's session and group stay readable; a process outside our pid namespace reports 0.
    let state = fields.first().ok_or_else(bad)?;
    let small = |at: usize| number(at).and_then(|value| u32::try_from(value).map_err(|_| bad()));
    Ok(ProcessInfo {
        pid,
        parent: small(1)?,
        group: small(2)?,
        zombie: matches!(*state, "Z" | "X" | "x"),
        start: format!("{}/{}", boot_id(), number(19)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let line = "7 (a) b (c) S 3 5 6 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 100 200\n";
        assert!(parse_stat(7, line.trim_end()).is_err(), "a part of a line is none");
        let info = parse_stat(7, line).unwrap();
        assert_eq!((info.pid, info.parent, info.group, info.zombie), (7, 3, 5, false));
        assert!(info.start.ends_with("/12345"));
    }

    #[test]
    fn a_truncated_line_is_an_error_that_names_the_file() {
        assert!(
            parse_stat(7, "7 (a) S 3")
                .unwrap_err()
                .to_string()
                .contains("/proc/7/stat")
        );
    }
}
