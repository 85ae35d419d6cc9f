//! Workflows shipped in the binary (`assets/workflows/*.workflow.ts`).

use std::sync::{Arc, OnceLock};

use piw_protocol::canonical;

/// Id and text of every shipped workflow, by id.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/builtin.rs"));

/// A shipped workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Builtin {
    /// Its id: `builtin:<id>` names it.
    pub id: &'static str,
    /// Hex SHA-256 of its text.
    pub revision: String,
    /// Its text.
    pub bytes: Arc<[u8]>,
}

/// Every shipped workflow, by id.
#[must_use]
pub fn all() -> &'static [Builtin] {
    static ALL: OnceLock<Vec<Builtin>> = OnceLock::new();
    ALL.get_or_init(|| {
        FILES
            .iter()
            .map(|(id, bytes)| Builtin {
                id,
                revision: canonical::sha256_hex(bytes),
                bytes: Arc::from(*bytes),
            })
            .collect()
    })
}

/// The shipped workflow with this id.
#[must_use]
pub fn find(id: &str) -> Option<&'static Builtin> {
    all().iter().find(|builtin| builtin.id == id)
}
