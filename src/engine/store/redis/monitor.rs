//! Watches one node on the control runtime: probes that close its breaker, and the begin of a new generation of its keys.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cmd;
use tokio::select;
use tokio::time::{sleep, timeout};

use super::call::reply_of;
use super::flush::{renew_flights, run, send_parked};
use super::generation::{Generation, look};
use super::node::Node;
use super::routes::slot;
use super::script::{self, KnownState};
use super::store::Store;
use crate::engine::store::backend::{ConnectError, Failure, Link, Mirrors, Server as _};

/// The pause between looks at a node that works, so that a failure is known without requests.
const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// The pause between looks at a node whose replicas bring what they know.
const WARM_PAUSE: Duration = Duration::from_millis(50);

/// The time for a probe, which must be short enough for a recovery within 2 s.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// The time for one step with a node that does not decide yet.
const STEP_MAX: Duration = Duration::from_secs(1);

/// States of one call that brings what a replica knows.
const STATES_MAX: usize = 64;

/// Watches a node until dropped.
pub(super) async fn monitor(store: Arc<Store>, link: Arc<Link<Node>>, mirrors: Arc<dyn Mirrors>) {
    let node = &link.node;
    loop {
        if let Some(at) = node.probe_at() {
            // Another server may have its place.
            store.lost.notify_one();
            let probed = async { timeout(PROBE_MAX, probe(&store, node)).await? };
            node.probe(at, probed).await;
            store.outbox.unpark();
        } else if node.generation().is_none() {
            if let Err(error) = warm(&store, node, &*mirrors).await {
                node.unreachable(&error);
            }
            store.outbox.unpark();
        } else {
            // An open breaker ends the look, whose timeout may be long: the next probe is due.
            select! {
                () = node.trouble() => {}
                () = async { sleep(CHECK_PAUSE).await; check(&store, &link).await } => {}
            }
        }
    }
}

/// Whether the node accepts writes in time. What is parked for it is sent before the breaker closes.
async fn probe(store: &Arc<Store>, node: &Arc<Node>) -> Result<(), ConnectError> {
    let opened = node.open().await?;
    let marker = marker(store, node);
    let probed = opened.during(async |connection| {
        load(store, connection).await?;
        let mut write = cmd("SET");
        write.arg(format!("{marker}:probe")).arg(1).arg("PX").arg(1000);
        let reply = timeout(store.common.timeout, connection.send_packed_command(&write)).await;
        reply_of(reply.map_err(|_| Failure::Timeout)?.map_err(|error| Failure::of(&error))?)?;
        let Some(known) = node.generation() else {
            return look(connection, &marker, "", None).await.map(drop);
        };
        if begun_us(connection, &known.marker).await? == Some(known.begun_us) {
            // What is late is sent while the node decides.
            let _ = timeout(STEP_MAX, send_parked(store, node, connection)).await;
        } else {
            node.is_cold(known.begun_us);
        }
        Ok(())
    });
    probed.await.map_err(ConnectError::of)
}

/// Lets the node decide nothing, so that it knows the script, and the user may call it.
async fn load(store: &Store, connection: &mut MultiplexedConnection) -> Result<(), Failure> {
    let nothing = script::decide(&store.names, &store.caller, None, &[], store.common.clock.now());
    run(connection, &[nothing]).await?.into_iter().try_for_each(|reply| reply_of(reply).map(drop))
}

/// Looks whether the node works, and still has its keys.
async fn check(store: &Store, link: &Link<Node>) {
    let node = &link.node;
    let (Some(mut connection), Some(known)) = (link.connection(), node.generation()) else { return };
    if *known.marker != marker(store, node) {
        return node.is_cold(known.begun_us);
    }
    let seen = timeout(store.common.timeout * 3, begun_us(&mut connection, &known.marker)).await;
    match seen.unwrap_or(Err(Failure::Timeout)) {
        Ok(begun_us) if begun_us == Some(known.begun_us) => node.succeeded(),
        Ok(_) => node.is_cold(known.begun_us),
        Err(failure) => node.failed(failure, "a check was not answered"),
    }
}

async fn begun_us(connection: &mut MultiplexedConnection, marker: &str) -> Result<Option<u64>, Failure> {
    let mut get = cmd("GET");
    let reply = connection.send_packed_command(get.arg(marker)).await.map_err(|error| Failure::of(&error))?;
    Ok(super::generation::number(&reply_of(reply)?))
}

/// The marker key of a node: in a cluster one that is in a slot of the node.
fn marker(store: &Store, node: &Arc<Node>) -> String {
    let nodes = store.nodes();
    let of_tag = |tag| store.names.of_marker(tag);
    let of_node = (0..).map(of_tag).take(1 << 17).find(|marker| nodes.serves(node, slot(marker.as_bytes())));
    of_node.unwrap_or_else(|| of_tag(0)).into()
}

/// Brings what this replica knows to a node with a new generation, and waits until the node decides.
async fn warm(store: &Arc<Store>, node: &Arc<Node>, mirrors: &dyn Mirrors) -> Result<(), ConnectError> {
    let opened = node.open().await?;
    let marker = marker(store, node);
    let replica = format!("{:x}", store.caller.replica);
    let warmed = opened.during(async |connection| {
        load(store, connection).await?;
        let mut brought = None;
        loop {
            let seen = timeout(STEP_MAX, look(connection, &marker, &replica, brought)).await;
            let seen = seen.unwrap_or(Err(Failure::Timeout))?;
            let is_known = match node.last_generation() {
                0 => seen.is_old(),
                last => last == seen.begun_us,
            };
            if !is_known && brought != Some(seen.begun_us) {
                node.lost_keys();
                bring(store, node, connection, mirrors).await?;
                renew_flights(store, node, connection, false).await?;
                brought = Some(seen.begun_us);
            } else if is_known || seen.is_warm(store.replicas()) {
                let _ = timeout(STEP_MAX, send_parked(store, node, connection)).await;
                node.warmed(Generation { begun_us: seen.begun_us, marker: marker.as_str().into() });
                return Ok(());
            } else {
                sleep(WARM_PAUSE).await;
            }
        }
    });
    warmed.await.map_err(ConnectError::of)
}

/// Tells a node the states of its keys that this replica knows.
async fn bring(
    store: &Store,
    node: &Arc<Node>,
    connection: &mut MultiplexedConnection,
    mirrors: &dyn Mirrors,
) -> Result<(), Failure> {
    let nodes = store.nodes();
    let own = nodes.all.iter().position(|known| Arc::ptr_eq(known, node));
    let (mut states, mut part, mut has_more) = (Vec::new(), 0, true);
    while has_more {
        has_more = mirrors.visit(&store.common.name, part, &mut |mirror| {
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
    Ok(())
}

async fn push(store: &Store, connection: &mut MultiplexedConnection, states: &[KnownState]) -> Result<(), Failure> {
    let now = store.common.clock.now();
    let size = if store.nodes().is_cluster() { 1 } else { STATES_MAX };
    let calls: Vec<script::Call> = states.chunks(size).map(|some| script::push(&store.caller, some, now)).collect();
    run(connection, &calls).await?.into_iter().try_for_each(|reply| reply_of(reply).map(drop))
}
