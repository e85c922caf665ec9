//! How etcd is watched: the lease of this process and the shared time, which are renewed with each look.
//!
//! etcd keeps its data. So it has one generation, and needs no mirrors. Not here: when it is asked (`driver::monitor`).

use std::time::Duration;

use tokio::time::timeout;

use super::KEEP_ALIVE;
use super::proto::etcdserverpb::{LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use super::store::{Etcd, EtcdLease, GENERATION, grant};
use crate::fleet::stores::driver::grpc::CallError;
use crate::fleet::stores::driver::{Generation, Joined, Reached, Watch};

/// The time after which etcd deletes the loans of a dead process, in seconds.
const LEASE_S: u64 = 5;

/// The time for one renewal of the lease. Each second there is one, so two may be lost.
const RENEW_MAX: Duration = Duration::from_secs(1);

impl Watch for Etcd {
    /// Connections, logins, renewals and transactions have bounds of their own. None of them is given up.
    const STEP_MAX: Duration = Duration::MAX;
    const LOOK_MAX: Option<Duration> = Some(RENEW_MAX);

    /// Prolongs the lease, and writes the time. Begins another lease if it has ended.
    async fn look(reached: &mut Reached<'_, Self>) -> Result<Option<u64>, CallError> {
        let (store, caller) = (reached.store, &*reached.connection);
        let seen = store.read_clock(caller).await?;
        let now = store.now();
        if let Some(EtcdLease { id, .. }) = store.lease() {
            let answer: LeaseKeepAliveResponse = caller.call(KEEP_ALIVE, &LeaseKeepAliveRequest { id }).await?;
            if answer.ttl > 0 {
                let until = now.saturating_add_ns(answer.ttl.unsigned_abs().saturating_mul(1_000_000_000));
                store.set_lease(Some(EtcdLease { id, until }));
                store.write_clock(caller, seen, id).await?;
                return Ok(Some(GENERATION));
            }
        }
        let lease = grant(caller, LEASE_S, now).await?;
        store.set_lease(Some(lease));
        store.write_clock(caller, seen, lease.id).await?;
        Ok(Some(GENERATION))
    }

    async fn join(reached: &mut Reached<'_, Self>, _: Option<u64>) -> Result<Joined, CallError> {
        timeout(RENEW_MAX, Self::look(reached)).await.unwrap_or_else(|_| Err(CallError::late()))?;
        Ok(Joined { generation: Generation::of(GENERATION), is_known: true, is_ready: true })
    }
}
