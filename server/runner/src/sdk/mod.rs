//! The JavaScript SDK that workflow files import, and its TypeScript declarations, as embedded text.
//!
//! The SDK checks shapes; the rules of graphs live in the engine crate.

/// Declaration files: file name and text. `piw init` and `piw types` write them.
pub const DECLARATIONS: &[(&str, &str)] = &[
    ("piw.d.ts", include_str!("piw.d.ts")),
    ("node.d.ts", include_str!("node.d.ts")),
];
