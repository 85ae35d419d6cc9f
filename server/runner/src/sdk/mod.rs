//! The JavaScript SDK that workflow files import, and its TypeScript declarations, as embedded text.

/// Declaration files: module specifier and text. `piw init` and `piw types` write them.
pub const DECLARATIONS: &[(&str, &str)] = &[];
