//! The work of a store of Redis on the control runtime: it finds the nodes, and renews units in flight.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::flush::renew_flights;
use super::node::Common;
use super::store::{Redis, Store};
use super::topology::{master, slots};
use crate::fleet::stores::driver::{NodeAddress, Server as _, StoreContext, Topology, Work};

/// The pause between looks for the nodes of a cluster or for a master, while all nodes answer.
const SEEK_PAUSE: Duration = Duration::from_secs(5);

/// The shortest pause, however many nodes fail or redirect.
const SEEK_PAUSE_MIN: Duration = Duration::from_millis(50);

/// The pause between renewals of units in flight: a third of their time.
const RENEW_PAUSE: Duration = Duration::from_secs(3);

impl Work for Redis {
    async fn work(store: &Arc<Store>) {
        tokio::join!(seek(store), renew(store));
    }
}

/// Looks for the nodes again and again.
async fn seek(store: &Arc<Store>) {
    loop {
        let is_found = match &store.topology {
            Topology::Ring(_) => return,
            Topology::Cluster(seeds) => seek_slots(store, seeds).await,
            Topology::Sentinel { master: name, nodes, .. } => seek_master(store, nodes, name).await,
        };
        sleep(SEEK_PAUSE_MIN).await;
        // Nodes that are unknown are looked for again soon, and so are others when they fail.
        let _ = timeout(if is_found { SEEK_PAUSE } else { SEEK_PAUSE_MIN }, store.lost.notified()).await;
    }
}

/// Asks the sentinels for the address of the master. Returns whether one told it.
async fn seek_master(store: &Arc<Store>, sentinels: &[NodeAddress], name: &str) -> bool {
    let found = master(&store.sentinels, sentinels, name, &store.common.connector).await;
    let Some(node) = store.nodes().all.first().map(Arc::clone) else { return false };
    let address = match found {
        Ok(address) => address,
        Err(error) => {
            node.not_found(error);
            return false;
        }
    };
    if node.move_to(&address) {
        let (store, node) = (&store.context.settings.name, &node.label);
        tracing::info!(%store, %node, %address, "the master of a store is known");
    }
    true
}

/// Asks a node of a cluster for the slots: a master that answers if there is one, else one of the configured nodes.
/// Returns whether the slots are known.
async fn seek_slots(store: &Arc<Store>, seeds: &[NodeAddress]) -> bool {
    let Common { context, connector, .. } = &*store.common;
    let StoreContext { settings, metrics, errors, .. } = &**context;
    let nodes = store.nodes();
    let masters = nodes.all.iter().filter(|node| node.is_closed()).filter_map(|node| node.address());
    let known: Vec<NodeAddress> = masters.chain(seeds.iter().cloned()).collect();
    let found = slots(connector, &known).await;
    if let Err(error) = &found {
        errors[error.failure as usize].inc();
        if nodes.all.is_empty() && !store.is_lost.swap(true, Ordering::Relaxed) {
            seeds.iter().filter_map(|seed| metrics.up(&seed.to_string())).for_each(|up| up.set(0));
            tracing::warn!(
                store = %settings.name, kind = error.failure.label(), error = error.text,
                "no node of a cluster tells its slots; requests are decided without it"
            );
        }
    }
    let Ok(ranges) = found else { return !nodes.all.is_empty() };
    if let Some(newer) = nodes.with_slots(ranges, &store.common) {
        if store.is_lost.swap(false, Ordering::Relaxed) {
            tracing::info!(store = %settings.name, "a node of a cluster tells its slots again");
        }
        let is_master = |label: &String| newer.all.iter().any(|node| *node.label == **label);
        seeds
            .iter()
            .map(ToString::to_string)
            .filter(|seed| !is_master(seed))
            .for_each(|seed| metrics.remove_node(&seed));
        store.replace_nodes(newer);
    }
    true
}

/// Renews the units in flight of this replica.
async fn renew(store: &Arc<Store>) {
    loop {
        sleep(RENEW_PAUSE).await;
        store.flights.end_round();
        let Some(view) = store.background.load_full() else { continue };
        for link in &view.links {
            let Some(mut connection) = link.connection().filter(|_| link.node.decides()) else { continue };
            let is_exact = link.node.take_lost();
            if let Err(error) = renew_flights(store, &link.node, &mut connection, is_exact).await {
                if is_exact {
                    link.node.note_inexact();
                }
                link.node.failed(error.failure, &error.text);
            }
        }
    }
}
