//! The server that has a key, for explanations.

use super::store::Store;
use crate::engine::limit::Key;
use crate::engine::store::backend::KeyServer;

impl Store {
    /// The server that has `key` of a limit; `None` if no server is known for it.
    pub fn server(&self, limit: &str, key: Key) -> Option<KeyServer> {
        let nodes = self.nodes();
        let node = nodes.all.get(nodes.node_of(&self.names.of_key(limit, key))?)?;
        Some(node.server())
    }
}
