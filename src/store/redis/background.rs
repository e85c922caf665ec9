//! The work of a store on the control runtime: it finds the nodes, watches them, sends reports, and renews units in flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::failure::Failure;
use super::flush::{flush, run};
use super::monitor::{Mirrors, monitor};
use super::node::Node;
use super::script::{self, InFlight};
use super::settings::{NodeAddress, Topology};
use super::store::Store;
use super::topology::{master, slots};
use super::view::View;

/// The pause between looks for the nodes of a cluster or for a master.
const SEEK_PAUSE: Duration = Duration::from_secs(1);

/// The pause while a node does not answer.
const SEEK_PAUSE_DOWN: Duration = Duration::from_millis(250);

/// The shortest pause, however many redirections there are.
const SEEK_PAUSE_MIN: Duration = Duration::from_millis(20);

/// The pause between renewals of units in flight: a third of their time.
const RENEW_PAUSE: Duration = Duration::from_secs(3);

/// Keys of one call that renews.
const RENEWED_MAX: usize = 128;

impl Store {
    /// Does the work of the store besides decisions, until dropped. To be run once.
    pub async fn run(self: Arc<Self>, mirrors: Arc<dyn Mirrors>) {
        tokio::join!(seek(&self), watch(&self, mirrors), flush(&self), renew(&self));
    }
}

/// Looks for the nodes again and again.
async fn seek(store: &Arc<Store>) {
    loop {
        match &store.settings().topology {
            Topology::Ring(_) => return,
            Topology::Cluster(seeds) => seek_slots(store, seeds).await,
            Topology::Sentinel { master: name, nodes, .. } => {
                let found = master(&store.sentinels, nodes, name, &store.common.connector).await;
                if let (Some(address), Some(node)) = (found, store.nodes().all.first())
                    && node.move_to(address.clone())
                {
                    tracing::info!(store = %store.common.name, node = %node.label, %address, "the master of a store");
                }
            }
        }
        let is_up = store.nodes().all.iter().all(|node| node.is_closed());
        let pause = if is_up { SEEK_PAUSE } else { SEEK_PAUSE_DOWN };
        select! {
            () = sleep(pause) => {}
            () = store.lost.notified() => sleep(SEEK_PAUSE_MIN).await,
        }
    }
}

/// Asks a node of a cluster for the slots: a master that answers if there is one, else one of the configured nodes.
async fn seek_slots(store: &Arc<Store>, seeds: &[NodeAddress]) {
    let nodes = store.nodes();
    let masters = nodes.all.iter().filter(|node| node.is_closed()).filter_map(|node| node.address());
    let known: Vec<NodeAddress> = masters.chain(seeds.iter().cloned()).collect();
    let Some(ranges) = slots(&store.common.connector, &known).await else {
        tracing::debug!(store = %store.common.name, "no node of the cluster tells the slots");
        return store.common.errors[Failure::Connection as usize].inc();
    };
    if let Some(newer) = nodes.with_slots(ranges, &store.common) {
        store.replace_nodes(newer);
    }
}

/// The tasks that watch the nodes; they end when this is dropped.
#[derive(Default)]
struct Watched(Vec<(Arc<Node>, AbortHandle)>);

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.iter().for_each(|(_, task)| task.abort());
    }
}

/// Watches all nodes of the store.
async fn watch(store: &Arc<Store>, mirrors: Arc<dyn Mirrors>) {
    let mut watched = Watched::default();
    loop {
        let nodes = store.nodes();
        watched.0.retain(|(node, task)| {
            let is_there = nodes.all.iter().any(|known| Arc::ptr_eq(known, node));
            if !is_there {
                task.abort();
                store.forget(node);
            }
            is_there
        });
        for node in &nodes.all {
            if watched.0.iter().all(|(known, _)| !Arc::ptr_eq(known, node)) {
                let task = tokio::spawn(monitor(Arc::clone(store), Arc::clone(node), Arc::clone(&mirrors)));
                watched.0.push((Arc::clone(node), task.abort_handle()));
            }
        }
        store.outbox.unpark();
        store.found.notified().await;
    }
}

/// Renews the units in flight of this replica.
async fn renew(store: &Arc<Store>) {
    let mut view = View::new(store.nodes());
    loop {
        sleep(RENEW_PAUSE).await;
        view.follow(&store.nodes());
        let flights = store.flights.all();
        for (index, link) in view.links.iter().enumerate() {
            let is_exact = link.node.take_lost();
            let own = |key: &str| view.nodes.node_of(key) == Some(index);
            let units = flights.iter().filter(|(key, _)| own(key)).map(|(key, units)| InFlight {
                key: key.clone(),
                units: *units,
                is_exact,
            });
            let units: Vec<InFlight> = units.collect();
            let Some(mut connection) = link.connection().filter(|_| link.node.decides()) else { continue };
            let size = if view.nodes.is_cluster() { 1 } else { RENEWED_MAX };
            let calls: Vec<script::Call> = units.chunks(size).map(|some| script::renew(&store.caller, some)).collect();
            for calls in calls.chunks(RENEWED_MAX) {
                if let Err(failure) = run(&mut connection, calls).await {
                    link.node.failed(failure, "units in flight were not renewed");
                    break;
                }
            }
        }
    }
}
