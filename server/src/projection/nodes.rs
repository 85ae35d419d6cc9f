//! Node names and types of definitions, which never change: read once and shared by the views of every run of a definition.

use std::sync::{Arc, Mutex, PoisonError};

use piw_protocol::definition::NodeType;
use piw_state::query::{QueryError, Reader, run};

/// Definitions that are remembered.
const KEPT: usize = 16;

/// The nodes of one definition by index.
#[derive(Debug)]
pub(crate) struct Nodes {
    definition: i64,
    nodes: Vec<(String, NodeType)>,
}

impl Nodes {
    /// Nodes in the definition.
    pub(crate) fn len(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Qualified id and type of a node.
    pub(crate) fn get(&self, node: i64) -> Result<(&str, NodeType), QueryError> {
        usize::try_from(node)
            .ok()
            .and_then(|index| self.nodes.get(index))
            .map(|(id, node_type)| (id.as_str(), *node_type))
            .ok_or_else(|| QueryError::Corrupt {
                what: "node",
                message: format!("definition {} has no node {node}", self.definition),
            })
    }

    /// Qualified ids in document order.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|(id, _)| id.as_str())
    }

    /// Qualified id of a node.
    pub(crate) fn id(&self, node: i64) -> Result<String, QueryError> {
        self.get(node).map(|(id, _)| id.to_owned())
    }
}

/// The most recently used definitions. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeCache {
    recent: Arc<Mutex<Vec<Arc<Nodes>>>>,
}

impl NodeCache {
    /// The nodes of a definition, read when they are not remembered.
    pub(crate) fn get(&self, reader: &Reader, definition: i64) -> Result<Arc<Nodes>, QueryError> {
        let known = {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            let at = recent.iter().position(|nodes| nodes.definition == definition);
            at.map(|at| {
                let nodes = recent.remove(at);
                recent.push(Arc::clone(&nodes));
                nodes
            })
        };
        if let Some(nodes) = known {
            return Ok(nodes);
        }
        let nodes = Arc::new(Nodes {
            definition,
            nodes: run::nodes(reader, definition)?,
        });
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= KEPT {
            recent.remove(0);
        }
        recent.push(Arc::clone(&nodes));
        Ok(nodes)
    }
}
