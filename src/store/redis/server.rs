//! The server that has a key, for explanations.

use super::store::Store;
use crate::limit::Key;

/// The server that has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyServer {
    /// Its label in metrics.
    pub name: String,
    /// Whether it decides now.
    pub is_up: bool,
}

impl Store {
    /// The server that has `key` of a limit; `None` if no server is known for it.
    pub fn server(&self, limit: &str, key: Key) -> Option<KeyServer> {
        let nodes = self.nodes();
        let node = nodes.all.get(nodes.node_of(&self.names.of_key(limit, key))?)?;
        Some(KeyServer { name: node.label.to_string(), is_up: node.decides() })
    }
}
