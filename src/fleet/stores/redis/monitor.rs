//! How a node of Redis is watched: what it is asked before it decides, and what a replica brings it.
//!
//! Not here: when a node is asked (`driver::monitor`), and the nodes of a store (`background`).

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::time::timeout;

use super::call::reply_of;
use super::flush::{renew_flights, run};
use super::generation::{self, begin};
use super::node::Node;
use super::routes::slot;
use super::script::{self, KnownState};
use super::store::{Redis, Store};
use crate::engine::store::backend::{Failure, Mirrors};
use crate::fleet::stores::driver::{ConnectError, Generation, Joined, Reached, Watch};

/// States of one call that brings what a replica knows.
const STATES_MAX: usize = 64;

impl Watch for Redis {
    const LOOK_CALLS: u32 = generation::LOOK_CALLS;

    /// Lets the node decide nothing, so that it knows the script and the user may call it, and write a key.
    async fn prepare(reached: &mut Reached<'_, Self>) -> Result<(), ConnectError> {
        let Reached { store, node, connection } = reached;
        let nothing = script::decide(&store.names, &store.caller, None, &[], store.context.clock.now());
        run(connection, &[nothing]).await?.into_iter().try_for_each(|reply| reply_of(reply).map(drop))?;
        let mut write = cmd("SET");
        write.arg(format!("{}:probe", marker(store, node))).arg(1).arg("PX").arg(1000);
        let reply = timeout(store.context.settings.timeout, connection.send_packed_command(&write)).await;
        reply_of(reply.map_err(|_| Failure::Timeout)?.map_err(|error| ConnectError::redis(&error))?)?;
        Ok(())
    }

    async fn look(reached: &mut Reached<'_, Self>) -> Result<Option<u64>, ConnectError> {
        let Reached { store, node, connection } = reached;
        let marker = marker(store, node);
        if node.generation().is_some_and(|known| *known.marker != marker) {
            return Ok(None);
        }
        let number = generation::look(connection, &marker, (&node.looks, endable(store, node))).await?;
        store.context.metrics.clock_ahead(clock_ahead_ns(store));
        Ok(number)
    }

    async fn join(reached: &mut Reached<'_, Self>, brought: Option<u64>) -> Result<Joined, ConnectError> {
        let Reached { store, node, connection } = reached;
        let marker = marker(store, node);
        // A process whose store was replaced is met once, and not before the new one has brought its keys.
        let met = brought.filter(|_| !store.context.metrics.is_retired());
        let last = node.last_generation();
        let seen = begin(connection, &marker, (&node.looks, endable(store, node)), met).await?;
        let is_known = seen.is_known(last) && (last > 0 || !store.context.brings_first());
        let generation = Generation { number: seen.begun_us, marker: marker.into() };
        Ok(Joined { generation, is_known, is_ready: seen.is_warm(node.replicas()) })
    }

    /// Reports may have charged units once more that were brought. Then no call of this replica is under way, so its units
    /// are known exactly; and once more later, because reports of what ends meanwhile are under way.
    async fn renew(reached: &mut Reached<'_, Self>, has_brought: bool) -> Result<(), ConnectError> {
        let Reached { store, node, connection } = reached;
        if has_brought {
            node.note_inexact();
        }
        renew_flights(store, node, connection, has_brought).await
    }

    async fn bring(reached: &mut Reached<'_, Self>, mirrors: &dyn Mirrors) -> Result<(), ConnectError> {
        let Reached { store, node, connection } = reached;
        let nodes = store.nodes();
        let own = nodes.all.iter().position(|known| Arc::ptr_eq(known, node));
        let (mut states, mut part, mut has_more) = (Vec::new(), 0, true);
        while has_more {
            has_more = mirrors.visit(&store.context.settings.name, part, &mut |mirror| {
                let store_key = store.names.of_key(mirror.limit, mirror.key);
                if nodes.node_of(&store_key) == own {
                    states.push(KnownState { store_key, rule: mirror.rule.clone(), state: mirror.state.clone() });
                }
            });
            part += 1;
            while states.len() >= STATES_MAX || (!has_more && !states.is_empty()) {
                let rest = states.split_off(states.len().min(STATES_MAX));
                push(store, connection, &states).await?;
                states = rest;
            }
        }
        renew_flights(store, node, connection, false).await
    }
}

/// The last generation that a look may end; 0 if it may end none. A store that was replaced ends none: the new one decides
/// under the generation that the node has, and has brought its keys.
fn endable(store: &Store, node: &Node) -> u64 {
    if store.context.metrics.is_retired() { 0 } else { node.last_generation() }
}

/// Nanoseconds by which the clock of a node is ahead of the own: of the nodes the one with the largest difference.
fn clock_ahead_ns(store: &Store) -> i64 {
    let nodes = store.nodes();
    nodes.all.iter().map(|node| node.looks.ahead_ns()).max_by_key(|ns| ns.unsigned_abs()).unwrap_or(0)
}

/// The marker key of a node: in a cluster one that is in a slot of the node.
fn marker(store: &Store, node: &Arc<Node>) -> String {
    let nodes = store.nodes();
    let of_tag = |tag| store.names.of_marker(tag);
    let of_node = (0..).map(of_tag).take(1 << 17).find(|marker| nodes.serves(node, slot(marker.as_bytes())));
    of_node.unwrap_or_else(|| of_tag(0)).into()
}

async fn push(
    store: &Store,
    connection: &mut MultiplexedConnection,
    states: &[KnownState],
) -> Result<(), ConnectError> {
    let now = store.context.clock.now();
    let size = if store.nodes().is_cluster() { 1 } else { STATES_MAX };
    let calls: Vec<script::Call> = states.chunks(size).map(|some| script::push(&store.caller, some, now)).collect();
    run(connection, &calls).await?.into_iter().try_for_each(|reply| reply_of(reply).map(drop))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::time::{Clock, Timestamp};
    use crate::engine::store::backend::OnFailure;
    use crate::fleet::stores::driver::{Login, NodeAddress, StoreContext, Topology};

    /// Of several nodes, the metric shows the clock that differs most.
    #[tokio::test(start_paused = true)]
    async fn no_node_hides_the_clock_of_another() {
        let clock = Clock::start_at(Timestamp::from_ns(7_200_000_000_000));
        let context = StoreContext::of_test(OnFailure::Split, Duration::from_millis(10), clock);
        let ring = Topology::Ring([1, 2, 3].map(|port| NodeAddress::tcp("redis", port)).into());
        let store = Store::new(context, None, ring, &Login::default(), "weir");
        // the clocks of the nodes, and the difference that is shown, in seconds
        for (nodes_s, expected_s) in
            [([7200, 3600, 7201], -3600), ([7201, 7200, 7198], -2), ([10_800, 3601, 7200], 3600)]
        {
            for (node, now_s) in store.nodes().all.iter().zip(nodes_s) {
                node.looks.note_time(now_s * 1_000_000);
            }
            assert_eq!(clock_ahead_ns(&store), expected_s * 1_000_000_000, "{nodes_s:?}");
        }
    }
}
