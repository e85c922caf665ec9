//! Watches one node on the control runtime: probes that close its breaker, and the begin of a new generation of its keys.
//!
//! Not here: what a node is asked for that (`Watch`).

use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::{sleep, timeout};

use super::connect::ConnectError;
use super::flush::send_parked;
use super::link::{Link, Opened, Server as _, persist};
use super::store::{Driven, NextStep, Reached, Shared};
use crate::engine::store::backend::{Failure, Mirrors};

/// The pause between looks at a node that works, so that a failure is known without requests.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The pause between looks at a node whose replicas bring what they know.
const WARM_PAUSE: Duration = Duration::from_millis(50);

/// Watches a node until dropped.
pub(super) async fn monitor<K: Driven>(store: Arc<Shared<K>>, link: Arc<Link<K::Node>>, mirrors: Arc<dyn Mirrors>) {
    let node = &link.node;
    loop {
        if let Some(at) = node.probe_at() {
            // Another server may have its place.
            store.lost.notify_one();
            let probed =
                async { timeout(K::STEP_MAX, persist(|| probe(&store, node), ConnectError::is_of_connection)).await? };
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
                () = async { sleep(LOOK_PAUSE).await; look(&store, &link).await } => {}
            }
        }
    }
}

/// Whether the node works. What is parked for it is sent before the breaker closes.
async fn probe<K: Driven>(store: &Arc<Shared<K>>, node: &Arc<K::Node>) -> Result<(), ConnectError> {
    let Opened { mut connection, mut driver } = node.open().await?;
    let probed = async {
        let mut reached = Reached { store, node, connection: &mut connection };
        K::prepare(&mut reached).await?;
        let within = K::LOOK_MAX.unwrap_or(store.context.settings.timeout * K::LOOK_CALLS);
        let number = timeout(within, K::look(&mut reached)).await.map_err(|_| ConnectError::late())??;
        match node.generation() {
            Some(known) if number == Some(known.number) => catch_up(&mut reached, known.number, false).await,
            Some(known) => node.is_cold(known.number),
            None => {}
        }
        Ok(())
    };
    let probed = select! {
        probed = probed => probed,
        () = &mut driver => Err(Failure::Broken.into()),
    };
    probed.inspect_err(|_| node.leave(&connection))
}

/// Tells a node that is about to decide again what it has missed. What is late is told while the node decides.
async fn catch_up<K: Driven>(reached: &mut Reached<'_, K>, generation: u64, has_brought: bool) {
    let _ = timeout(K::STEP_MAX, send_parked(reached, generation)).await;
    // A probe that takes longer than a step fails. The next one finds fewer reports, but as many units.
    let _ = timeout(K::STEP_MAX / 4, K::renew(reached, has_brought)).await;
}

/// Looks whether the node works, and still has its keys.
async fn look<K: Driven>(store: &Arc<Shared<K>>, link: &Link<K::Node>) {
    let node = &link.node;
    let (Some(mut connection), Some(known)) = (link.connection(), node.generation()) else { return };
    let within = K::LOOK_MAX.unwrap_or(store.context.settings.timeout * 3);
    let mut reached = Reached { store, node, connection: &mut connection };
    match timeout(within, K::look(&mut reached)).await.unwrap_or_else(|_| Err(ConnectError::late())) {
        Ok(number) if number == Some(known.number) => node.succeeded(),
        Ok(_) => node.is_cold(known.number),
        Err(error) => node.failed(error.failure, &error.text),
    }
}

/// Brings what this replica knows to a node with a new generation, and waits until the node decides.
async fn warm<K: Driven>(
    store: &Arc<Shared<K>>,
    node: &Arc<K::Node>,
    mirrors: &dyn Mirrors,
) -> Result<(), ConnectError> {
    let Opened { mut connection, mut driver } = node.open().await?;
    let warmed = async {
        let mut reached = Reached { store, node, connection: &mut connection };
        K::prepare(&mut reached).await?;
        let mut brought = None;
        loop {
            let joined = timeout(K::STEP_MAX, K::join(&mut reached, brought)).await;
            let joined = joined.map_err(|_| ConnectError::late())??;
            match joined.next(brought) {
                NextStep::Decide => {
                    catch_up(&mut reached, joined.generation.number, brought.is_some()).await;
                    node.warmed(joined.generation);
                    return Ok(());
                }
                NextStep::Wait => sleep(WARM_PAUSE).await,
                NextStep::Bring => {
                    node.lost_keys();
                    K::bring(&mut reached, mirrors).await?;
                    brought = Some(joined.generation.number);
                }
            }
        }
    };
    let warmed = select! {
        warmed = warmed => warmed,
        () = &mut driver => Err(Failure::Broken.into()),
    };
    warmed.inspect_err(|_| node.leave(&connection))
}
