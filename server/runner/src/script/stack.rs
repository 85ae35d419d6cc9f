//! JavaScript stacks with positions in the author's source instead of the generated code.

use oxc_sourcemap::SourceMap;

/// Finds the map of a module by the name that stacks show.
pub(super) trait Maps {
    /// Calls `with` with the map of `module`, if it was made from TypeScript.
    fn position(&self, module: &str, line: u32, column: u32) -> Option<(u32, u32)>;

    /// Whether frames of this module belong to the host and are of no use to authors.
    fn is_internal(&self, module: &str) -> bool;
}

/// Looks up a position; lines and columns count from 1.
pub(super) fn original(map: &SourceMap<'_>, line: u32, column: u32) -> Option<(u32, u32)> {
    let table = map.generate_lookup_table();
    let token = map.lookup_token_approx(&table, line.checked_sub(1)?, column.saturating_sub(1))?;
    Some((token.get_src_line() + 1, token.get_src_col() + 1))
}

/// Rewrites every frame of `stack` and drops frames of the host.
pub(super) fn remap(stack: &str, maps: &dyn Maps) -> String {
    let mut out: Vec<String> = Vec::new();
    for line in stack.lines() {
        let Some(frame) = Frame::parse(line) else {
            if !line.trim_start().starts_with("at ") {
                out.push(line.to_owned());
            }
            continue;
        };
        if maps.is_internal(frame.module) {
            continue;
        }
        let (row, column) = maps
            .position(frame.module, frame.line, frame.column)
            .unwrap_or((frame.line, frame.column));
        out.push(match frame.function {
            Some(name) => format!("    at {name} ({}:{row}:{column})", frame.module),
            None => format!("    at {}:{row}:{column}", frame.module),
        });
    }
    out.join("\n")
}

struct Frame<'a> {
    function: Option<&'a str>,
    module: &'a str,
    line: u32,
    column: u32,
}

impl<'a> Frame<'a> {
    /// Understands `    at name (module:1:2)` and `    at module:1:2`; `None` for frames without a position.
    fn parse(line: &'a str) -> Option<Self> {
        let rest = line.trim_start().strip_prefix("at ")?;
        let (function, place) = match rest.rfind(" (") {
            Some(at) if rest.ends_with(')') => (Some(&rest[..at]), &rest[at + 2..rest.len() - 1]),
            _ => (None, rest),
        };
        let (head, column) = place.rsplit_once(':')?;
        let (module, row) = head.rsplit_once(':')?;
        let function = function.filter(|name| !name.is_empty() && *name != "<anonymous>");
        Some(Self {
            function,
            module,
            line: row.parse().ok()?,
            column: column.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shift;
    impl Maps for Shift {
        fn position(&self, module: &str, line: u32, column: u32) -> Option<(u32, u32)> {
            (module == "/p/a.ts").then_some((line + 10, column + 1))
        }
        fn is_internal(&self, module: &str) -> bool {
            module.starts_with("piw:")
        }
    }

    #[test]
    fn frames_are_rewritten_and_host_frames_dropped() {
        let stack = "    at f (/p/a.ts:1:2)\n    at <anonymous> (/p/b.js:3:4)\n    at invoke (piw:host:9:9)\n    at call (native)\n    at /p/a.ts:5:6";
        assert_eq!(
            remap(stack, &Shift),
            "    at f (/p/a.ts:11:3)\n    at /p/b.js:3:4\n    at /p/a.ts:15:7"
        );
    }
}
