//! Watches etcd on the control runtime: the lease of this process, and probes that close the breaker.

use std::sync::Arc;
use std::time::Duration;

use tokio::select;
use tokio::time::{sleep, timeout};

use super::KEEP_ALIVE;
use super::proto::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use super::settle::{flush, send_parked, settle};
use super::store::{EtcdLease, EtcdStore, grant};
use crate::engine::store::backend::grpc::{CallError, Caller};
use crate::engine::store::backend::{ConnectError, Link, Mirrors, Server as _};

/// The time after which etcd deletes the loans of a dead process, in seconds.
const LEASE_S: u64 = 5;

/// The pause between renewals of the lease, so that two may be lost.
const KEEP_ALIVE_PAUSE: Duration = Duration::from_secs(1);

/// The time for a probe, which must be short enough for a recovery within 2 s.
const PROBE_MAX: Duration = Duration::from_secs(1);

impl EtcdStore {
    /// Does the work of the store besides decisions, until dropped. To be run once. etcd keeps its data, so it needs no
    /// mirrors.
    pub async fn run(self: Arc<Self>, _mirrors: Arc<dyn Mirrors>) {
        let background = Background { store: &self };
        background.store.background.store(Some(Arc::new(Link::new(Arc::clone(&self.node)))));
        tokio::join!(monitor(&self), flush(&self), settle(&self));
    }
}

/// The connection of the control runtime, which is closed on drop.
struct Background<'s> {
    store: &'s EtcdStore,
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        self.store.background.store(None);
    }
}

/// Watches etcd until dropped.
async fn monitor(store: &Arc<EtcdStore>) {
    let node = &store.node;
    loop {
        if let Some(at) = node.probe_at() {
            node.probe(at, prolong(store)).await;
            store.outbox.unpark();
        } else if store.lease().is_none() {
            if let Err(error) = prolong(store).await {
                node.unreachable(&error);
            }
            store.outbox.unpark();
        } else {
            select! {
                () = node.trouble() => {}
                () = sleep(KEEP_ALIVE_PAUSE) => keep_alive(store).await,
            }
        }
    }
}

/// Prolongs the lease, or begins one, on a connection of its own. What is parked is sent before etcd lends again.
async fn prolong(store: &EtcdStore) -> Result<(), ConnectError> {
    let prolonged = store.node.open().await?.during(async |caller| -> Result<(), ConnectError> {
        timeout(PROBE_MAX, renew(store, caller)).await.unwrap_or_else(|_| Err(CallError::late()))?;
        send_parked(store, caller).await;
        Ok(())
    });
    prolonged.await
}

/// Prolongs the lease over the connection for all calls.
async fn keep_alive(store: &EtcdStore) {
    let node = &store.node;
    let Some(caller) = store.background.load().as_ref().and_then(|link| link.connection()) else { return };
    match timeout(PROBE_MAX, renew(store, &caller)).await.unwrap_or_else(|_| Err(CallError::late())) {
        Ok(()) => node.succeeded(),
        Err(error) => node.failed(error.failure, &error.text),
    }
}

/// Prolongs the lease. Begins another one if it has ended.
async fn renew(store: &EtcdStore, caller: &Caller) -> Result<(), CallError> {
    let now = store.context.clock.now();
    if let Some(EtcdLease { id, .. }) = store.lease() {
        let answer: LeaseKeepAliveResponse = caller.call(KEEP_ALIVE, &LeaseKeepAliveRequest { id }).await?;
        if answer.ttl > 0 {
            let until = now.saturating_add_ns(answer.ttl.unsigned_abs().saturating_mul(1_000_000_000));
            store.set_lease(Some(EtcdLease { id, until }));
            return Ok(());
        }
    }
    store.set_lease(Some(grant(caller, LEASE_S, now).await?));
    Ok(())
}
