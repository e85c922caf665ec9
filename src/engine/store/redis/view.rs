//! The nodes of a store at one moment, each with a connection of one runtime.

use std::sync::Arc;

use super::node::Node;
use super::topology::Nodes;
use crate::engine::store::backend::{Link, NodeAddress, Server as _};

/// The nodes of a store at one moment, each with a connection that is closed when the last view with it is dropped.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) nodes: Arc<Nodes>,
    /// In the order of the nodes.
    pub(super) links: Vec<Arc<Link<Node>>>,
}

impl View {
    /// Begins to connect to all nodes. To be called on the runtime that calls them.
    pub(super) fn new(nodes: Arc<Nodes>) -> Self {
        let links = nodes.all.iter().map(|node| Arc::new(Link::new(Arc::clone(node)))).collect();
        Self { nodes, links }
    }

    /// Follows a change of the nodes. Connections to nodes that stay are kept. Returns whether there was a change.
    pub(super) fn follow(&mut self, nodes: &Arc<Nodes>) -> bool {
        if Arc::ptr_eq(&self.nodes, nodes) {
            return false;
        }
        let known = |node| self.links.iter().find(|link| Arc::ptr_eq(&link.node, node)).map(Arc::clone);
        let link = |node| known(node).unwrap_or_else(|| Arc::new(Link::new(Arc::clone(node))));
        self.links = nodes.all.iter().map(link).collect();
        self.nodes = Arc::clone(nodes);
        true
    }

    /// The connection to the node with this address.
    pub(super) fn link(&self, address: &NodeAddress) -> Option<&Arc<Link<Node>>> {
        self.links.iter().find(|link| link.node.address().as_ref() == Some(address))
    }
}
