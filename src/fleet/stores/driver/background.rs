//! The work of a store on the control runtime: it connects to the nodes, watches them, and sends reports.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::flush::flush;
use super::monitor::monitor;
use super::nodes::View;
use super::store::{Driven, Kind, Shared};
use crate::engine::store::backend::Mirrors;

/// Does the work of a store besides decisions, until dropped.
pub(super) async fn run<K: Driven>(store: Arc<Shared<K>>, mirrors: Arc<dyn Mirrors>) {
    tokio::join!(K::work(&store), watch(&store, mirrors), flush(&store));
}

/// The tasks that watch the nodes. When this is dropped, they end, and the connections are closed.
struct Watched<K: Kind> {
    store: Arc<Shared<K>>,
    tasks: Vec<(Arc<K::Node>, JoinSet<()>)>,
}

impl<K: Kind> Drop for Watched<K> {
    fn drop(&mut self) {
        self.store.background.store(None);
    }
}

/// Connects to all nodes of the store, and watches them.
async fn watch<K: Driven>(store: &Arc<Shared<K>>, mirrors: Arc<dyn Mirrors>) {
    let mut watched = Watched { store: Arc::clone(store), tasks: Vec::new() };
    let mut view = View::new(store.nodes());
    loop {
        view = view.follow(store.nodes());
        store.background.store(Some(Arc::clone(&view)));
        watched.tasks.retain(|(node, _)| {
            let is_there = view.links.iter().any(|link| Arc::ptr_eq(&link.node, node));
            if !is_there {
                store.context.metrics.remove_node(&node.label);
                K::forget(store, node);
            }
            is_there
        });
        for link in &view.links {
            if watched.tasks.iter().all(|(known, _)| !Arc::ptr_eq(known, &link.node)) {
                let task = monitor(Arc::clone(store), Arc::clone(link), Arc::clone(&mirrors));
                watched.tasks.push((Arc::clone(&link.node), JoinSet::from_iter([task])));
            }
        }
        store.outbox.unpark();
        store.found.notified().await;
    }
}
