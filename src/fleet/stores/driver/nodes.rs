//! The nodes of a store at one moment, and the connections of one runtime to them.

use std::sync::Arc;

use super::link::{Link, Server};
use super::settings::NodeAddress;

/// The nodes of a store at one moment.
pub(in crate::fleet::stores) struct Nodes<N, M> {
    pub(in crate::fleet::stores) all: Vec<Arc<N>>,
    /// What tells which of them has a key.
    pub(in crate::fleet::stores) map: M,
}

/// The nodes of a store at one moment, each with a connection that is closed when the last view with it is dropped.
pub(in crate::fleet::stores) struct View<N: Server, M> {
    pub(in crate::fleet::stores) nodes: Arc<Nodes<N, M>>,
    /// In the order of the nodes.
    pub(in crate::fleet::stores) links: Vec<Arc<Link<N>>>,
}

impl<N: Server, M> View<N, M> {
    /// Begins to connect to all nodes. To be called on the runtime that calls them.
    pub(in crate::fleet::stores) fn new(nodes: Arc<Nodes<N, M>>) -> Arc<Self> {
        Self::with(nodes, &[])
    }

    /// The view of `nodes`. Connections to nodes that stay are kept.
    pub(in crate::fleet::stores) fn follow(self: &Arc<Self>, nodes: Arc<Nodes<N, M>>) -> Arc<Self> {
        if Arc::ptr_eq(&self.nodes, &nodes) { Arc::clone(self) } else { Self::with(nodes, &self.links) }
    }

    fn with(nodes: Arc<Nodes<N, M>>, known: &[Arc<Link<N>>]) -> Arc<Self> {
        let known = |node| known.iter().find(|link| Arc::ptr_eq(&link.node, node)).map(Arc::clone);
        let link = |node| known(node).unwrap_or_else(|| Arc::new(Link::new(Arc::clone(node))));
        let links = nodes.all.iter().map(link).collect();
        Arc::new(Self { nodes, links })
    }

    /// The connection to the node with this address.
    pub(in crate::fleet::stores) fn link(&self, address: &NodeAddress) -> Option<&Arc<Link<N>>> {
        self.links.iter().find(|link| link.node.address().as_ref() == Some(address))
    }
}
