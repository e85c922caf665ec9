//! How etcd is watched: the lease of this process and the shared time, which are renewed with each look.
//!
//! etcd keeps its data. So it has one generation, and needs no mirrors. Not here: when it is asked (`driver::monitor`).

use std::time::Duration;

use tokio::time::timeout;

use super::account::{bytes_of, from_us, to_us};
use super::proto::etcdserverpb::{
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, PutRequest, PutResponse, RangeRequest, RangeResponse,
};
use super::store::{Etcd, EtcdLease, EtcdStore, GENERATION, grant};
use super::{KEEP_ALIVE, PUT, RANGE};
use crate::base::time::Timestamp;
use crate::fleet::stores::driver::grpc::{CallError, Caller};
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
        let seen = read_clock(store, caller).await?;
        let now = store.now();
        if let Some(EtcdLease { id, .. }) = store.lease() {
            let answer: LeaseKeepAliveResponse = caller.call(KEEP_ALIVE, &LeaseKeepAliveRequest { id }).await?;
            if answer.ttl > 0 {
                let until = now.saturating_add_ns(answer.ttl.unsigned_abs().saturating_mul(1_000_000_000));
                store.set_lease(Some(EtcdLease { id, until }));
                write_clock(store, caller, seen, id).await?;
                return Ok(Some(GENERATION));
            }
        }
        let lease = grant(caller, LEASE_S, now).await?;
        store.set_lease(Some(lease));
        write_clock(store, caller, seen, lease.id).await?;
        Ok(Some(GENERATION))
    }

    async fn join(reached: &mut Reached<'_, Self>, _: Option<u64>) -> Result<Joined, CallError> {
        timeout(RENEW_MAX, Self::look(reached)).await.unwrap_or_else(|_| Err(CallError::late()))?;
        Ok(Joined { generation: Generation::of(GENERATION), is_known: true, is_ready: true })
    }
}

/// Reads the shared time. A value that is no time counts as none.
async fn read_clock(store: &EtcdStore, caller: &Caller) -> Result<Timestamp, CallError> {
    let question = RangeRequest { key: clock_key(store), range_end: Vec::new() };
    let answer: RangeResponse = caller.call(RANGE, &question).await?;
    let mut seen = Timestamp::ZERO;
    if let Some(at_us) = answer.kvs.first().and_then(|entry| serde_json::from_slice(&entry.value).ok()) {
        seen = from_us(at_us);
        store.clock.follow(seen, store.context.clock.now());
    } else {
        store.clock.begin();
    }
    store.context.metrics.clock_ahead(store.clock.ahead_ns());
    if let Some(ahead_ns) = store.clock.to_warn() {
        let (store, ahead_ms) = (&store.context.settings.name, ahead_ns / 1_000_000);
        tracing::warn!(%store, ahead_ms, "the clock of the fleet differs from that of this replica");
    }
    Ok(seen)
}

/// Writes the shared time, unless etcd has a later one. It is deleted when `lease` ends.
async fn write_clock(store: &EtcdStore, caller: &Caller, seen: Timestamp, lease: i64) -> Result<(), CallError> {
    let now = store.now();
    if now > seen {
        let put = PutRequest { key: clock_key(store), value: bytes_of(&to_us(now)), lease };
        caller.call::<PutResponse>(PUT, &put).await?;
    }
    Ok(())
}

fn clock_key(store: &EtcdStore) -> Vec<u8> {
    format!("{}/clock", store.prefix).into()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::base::time::Clock;
    use crate::engine::store::backend::{Backend as _, Failure, OnFailure};
    use crate::engine::store::testing::NoMirrors;
    use crate::fleet::stores::driver::{Link, Login, NodeAddress, Server as _, StoreContext};

    /// A store of three members that accept connections and never answer, like a process that was stopped.
    async fn silent() -> (Arc<EtcdStore>, Vec<TcpListener>) {
        let (mut members, mut servers) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let member = TcpListener::bind("127.0.0.1:0").await.unwrap();
            servers.push(NodeAddress::tcp("127.0.0.1", member.local_addr().unwrap().port()));
            members.push(member);
        }
        let context = StoreContext::of_test(OnFailure::Split, Duration::from_millis(100), Clock::start());
        (EtcdStore::new(context, None, (servers, Login::default()), "weir".into()), members)
    }

    /// Waits for a connection to each of these members, in this order. Returns them, because a member that closes them
    /// does not hang.
    async fn connections(members: &[TcpListener], indices: &[usize]) -> Vec<TcpStream> {
        let mut open = Vec::new();
        for index in indices {
            let accepted = timeout(Duration::from_mins(1), members[*index].accept()).await;
            open.push(accepted.unwrap_or_else(|_| panic!("no connection to {index}")).unwrap().0);
        }
        open
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_goes_to_the_next_member_after_a_silent_one() {
        let (store, members) = silent().await;
        let running = tokio::spawn(store.run(Arc::new(NoMirrors)));
        // The first member also has the connection that the monitor keeps open.
        let _open = connections(&members, &[0, 0, 1, 2, 0, 1]).await;
        running.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_leave_a_silent_member_for_one_other() {
        let (store, members) = silent().await;
        let _links = [0; 3].map(|_| Link::new(Arc::clone(&store.node)));
        let mut open = connections(&members, &[0, 0, 0]).await;
        for next in [1, 2, 0] {
            store.node.failed(Failure::Timeout, "late");
            store.node.succeeded();
            open.extend(connections(&members, &[next, next, next]).await);
        }
    }
}
