//! TypeScript to JavaScript, with positions: strips types and lowers enums, namespaces and parameter properties.
//!
//! Must run on the script thread: its stack is sized for the recursion that [`super::nesting`] admits.

use std::path::Path;

use oxc_allocator::Allocator;
use oxc_codegen::{Codegen, CodegenOptions};
use oxc_diagnostics::OxcDiagnostic;
use oxc_parser::Parser;
use oxc_semantic::SemanticBuilder;
use oxc_sourcemap::SourceMap;
use oxc_span::SourceType;
use oxc_transformer::{TransformOptions, Transformer};

use super::nesting;

/// JavaScript made from TypeScript.
pub(super) struct Transpiled {
    /// The code.
    pub code: String,
    /// From positions in `code` to positions in the source.
    pub map: Option<SourceMap<'static>>,
}

/// A syntax error as people read it: `path:line:column: message`, then the line and a caret.
#[derive(Debug)]
pub(super) struct SyntaxError(pub String);

/// Strips the TypeScript `source` of the module `name` (a path or `builtin:` id).
pub(super) fn typescript(name: &str, source: &str) -> Result<Transpiled, SyntaxError> {
    guard_depth(name, source)?;
    let allocator = Allocator::default();
    let source_type = SourceType::ts().with_module(true);
    let parsed = Parser::new(&allocator, source, source_type).parse();
    first_error(name, source, parsed.diagnostics.errors())?;
    let mut program = parsed.program;
    let semantic = SemanticBuilder::new()
        .with_check_syntax_error(true)
        .with_enum_eval(true)
        .build(&program);
    first_error(name, source, semantic.diagnostics.errors())?;
    let scoping = semantic.semantic.into_scoping();
    let transformed = Transformer::new(&allocator, Path::new(name), &TransformOptions::default())
        .build_with_scoping(scoping, &mut program);
    first_error(name, source, transformed.diagnostics.errors())?;
    let options = CodegenOptions {
        source_map_path: Some(name.into()),
        ..CodegenOptions::default()
    };
    let printed = Codegen::new().with_options(options).build(&program);
    Ok(Transpiled {
        code: printed.code,
        map: printed.map.map(SourceMap::into_owned),
    })
}

/// Explains a syntax error of plain JavaScript that the engine found, and tells modules from scripts.
pub(super) struct Inspection {
    /// Whether the text has `import`, `export` or `import.meta`.
    pub is_module: bool,
    /// The first syntax error.
    pub error: Option<SyntaxError>,
}

/// Parses JavaScript without transforming it.
pub(super) fn inspect_javascript(name: &str, source: &str) -> Inspection {
    if let Err(error) = guard_depth(name, source) {
        return Inspection {
            is_module: false,
            error: Some(error),
        };
    }
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, SourceType::unambiguous()).parse();
    let error = first_error(name, source, parsed.diagnostics.errors()).err();
    Inspection {
        is_module: parsed.module_record.has_module_syntax,
        error,
    }
}

fn guard_depth(name: &str, source: &str) -> Result<(), SyntaxError> {
    nesting::check(source).map_err(|deep| {
        SyntaxError(located(
            name,
            source,
            deep.offset,
            &format!("nested too deeply: more than {} levels", nesting::MAX_DEPTH),
        ))
    })
}

fn first_error<'a>(
    name: &str,
    source: &str,
    mut errors: impl Iterator<Item = &'a OxcDiagnostic>,
) -> Result<(), SyntaxError> {
    let Some(error) = errors.next() else { return Ok(()) };
    let offset = error.labels.first().map_or(0, |label| label.offset() as usize);
    let mut text = located(name, source, offset, &error.message);
    if let Some(help) = &error.help {
        text.push_str("\n  help: ");
        text.push_str(help);
    }
    Err(SyntaxError(text))
}

/// `name:line:column: message` and the source line with a caret; line and column count from 1, columns in characters.
pub(super) fn located(name: &str, source: &str, offset: usize, message: &str) -> String {
    const WIDTH: usize = 160;
    let mut offset = offset.min(source.len());
    while !source.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &source[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let number = before.matches('\n').count() + 1;
    let column = source[line_start..offset].chars().count() + 1;
    let line = source[line_start..].lines().next().unwrap_or("");
    let skip = column.saturating_sub(WIDTH / 2);
    let shown: String = line
        .chars()
        .skip(skip)
        .take(WIDTH)
        .map(|c| if c == '\t' { ' ' } else { c })
        .collect();
    let gutter = number.to_string();
    let pad = " ".repeat(gutter.len());
    let caret = " ".repeat(column - 1 - skip);
    format!("{name}:{number}:{column}: {message}\n  {gutter} | {shown}\n  {pad} | {caret}^")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_and_lowers() {
        let source = "import type { A } from './a';\nimport { B, used } from './b';\nenum Color { Red, Green = 'g' }\nnamespace N { export const x = 1 }\nclass P { constructor(private readonly a: number) {} get(): number { return this.a } }\nconst y = <number>(used as unknown);\nconst z: B = y satisfies B;\nexport default z!;\n";
        let out = typescript("/p/x.ts", source).expect("valid").code;
        assert!(!out.contains("./a") && out.contains("./b"), "{out}");
        assert!(
            out.contains("this.a = a") && out.contains("Color") && !out.contains("number"),
            "{out}"
        );
    }

    #[test]
    fn syntax_errors_show_position_and_line() {
        let SyntaxError(text) = typescript("/p/x.ts", "const a = 1;\nconst b = = 2;\n")
            .err()
            .expect("invalid");
        assert!(text.starts_with("/p/x.ts:2:11: "), "{text}");
        assert!(text.contains("  2 | const b = = 2;\n    |           ^"), "{text}");
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = format!("export default {}1{};", "(".repeat(100_000), ")".repeat(100_000));
        let SyntaxError(text) = typescript("/p/x.ts", &deep).err().expect("too deep");
        assert!(text.contains("nested too deeply: more than 5000 levels"), "{text}");
    }
}
