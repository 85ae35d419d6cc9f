//! What the run recorded so far, by scope: kept as JSON text outside the script heaps and parsed when a callback reads it.
//!
//! Both runtimes share one journal. A value costs heap only in the call that touches it, and every call gets its own copy.

use std::collections::HashMap;

/// All scopes.
#[derive(Default)]
pub(super) struct Journal {
    scopes: HashMap<String, Scope>,
}

/// One workflow's current visit.
#[derive(Default)]
struct Scope {
    input: String,
    /// Node ids in the order of their first result.
    order: Vec<String>,
    latest: HashMap<String, Record>,
}

/// The latest result of a node.
pub(super) struct Record {
    /// Everything but the output: a JSON object.
    pub meta: String,
    /// The output as JSON.
    pub output: String,
    /// Whether the outcome is `ok`.
    pub ok: bool,
}

impl Journal {
    /// Starts a scope, or starts it again, empty.
    pub(super) fn open(&mut self, scope: String, input: String) {
        self.scopes.insert(
            scope,
            Scope {
                input,
                ..Scope::default()
            },
        );
    }

    /// Records a node's result in place of an earlier one.
    pub(super) fn record(&mut self, scope: &str, id: String, record: Record) {
        let scope = self.scopes.entry(scope.to_owned()).or_default();
        if scope.latest.insert(id.clone(), record).is_none() {
            scope.order.push(id);
        }
    }

    /// The input of a scope as JSON; `null` for a scope that was not opened.
    pub(super) fn input(&self, scope: &str) -> &str {
        self.scopes
            .get(scope)
            .map(|scope| scope.input.as_str())
            .filter(|input| !input.is_empty())
            .unwrap_or("null")
    }

    /// A node's latest result.
    pub(super) fn latest(&self, scope: &str, id: &str) -> Option<&Record> {
        self.scopes.get(scope)?.latest.get(id)
    }

    /// Ids of nodes with a result, or of those whose result is `ok`.
    pub(super) fn ids(&self, scope: &str, only_ok: bool) -> Vec<String> {
        let Some(scope) = self.scopes.get(scope) else {
            return Vec::new();
        };
        let shown = |id: &&String| !only_ok || scope.latest.get(*id).is_some_and(|record| record.ok);
        scope.order.iter().filter(shown).cloned().collect()
    }
}
