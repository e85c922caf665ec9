//! The nodes of a store at one moment, each with a connection of one runtime.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use smallvec::SmallVec;

use super::link::Link;
use super::settings::NodeAddress;
use super::topology::Nodes;

/// The nodes of a store at one moment, each with a connection that is closed when the last view with it is dropped.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) nodes: Arc<Nodes>,
    /// In the order of the nodes.
    pub(super) links: Vec<Arc<Link>>,
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
    pub(super) fn link(&self, address: &NodeAddress) -> Option<&Arc<Link>> {
        self.links.iter().find(|link| link.node.address().as_ref() == Some(address))
    }
}

/// A future among others.
pub(super) type Part<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A future among others, for any thread.
pub(super) type SendPart<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Drives all futures at once. The results are in their order.
pub(super) async fn all<F: Future + Unpin>(mut parts: SmallVec<[F; 2]>) -> SmallVec<[F::Output; 2]> {
    let mut results: SmallVec<[Option<F::Output>; 2]> = parts.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut is_pending = false;
        for (part, result) in parts.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            match Pin::new(part).poll(cx) {
                Poll::Ready(value) => *result = Some(value),
                Poll::Pending => is_pending = true,
            }
        }
        if is_pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn futures_run_at_once() {
        let begun = crate::time::instant_now();
        let wait = async |s| {
            tokio::time::sleep(Duration::from_secs(s)).await;
            s
        };
        let parts: SmallVec<[Part<'_, u64>; 2]> =
            [3, 1, 2].map(|s| -> Part<'_, u64> { Box::pin(wait(s)) }).into_iter().collect();
        assert_eq!(all(parts).await.as_slice(), [3, 1, 2]);
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
    }
}
