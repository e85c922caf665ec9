//! Publishes the addresses of the members, whatever their source.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use super::registry;
use super::settings::{MemberSource, Members};
use crate::transport::upstream::{LookupAnswer, lookup_host};

/// The shortest pause between two lookups, also for an answer with a time to live of 0.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause, so that a new member is known soon.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The pause after a lookup that failed.
const PAUSE_FAILED: Duration = Duration::from_secs(2);

/// Publishes the members of `source` until dropped. The last known members stay while a lookup fails.
pub(super) async fn follow(source: MemberSource, members: watch::Sender<Members>) {
    match source {
        MemberSource::Static(all) => {
            publish(&members, &all);
            pending::<()>().await;
        }
        MemberSource::Dns { host, port, servers } => {
            let mut failure = None;
            loop {
                sleep(look_up(&host, port, &servers, &members, &mut failure).await).await;
            }
        }
        MemberSource::Etcd(etcd) => registry::follow(&etcd, members).await,
    }
}

/// Looks the members up once. Returns the pause until the next lookup. `failure` is the reason why the last one failed,
/// which is logged once.
async fn look_up(
    host: &str,
    port: u16,
    servers: &[SocketAddr],
    members: &watch::Sender<Members>,
    failure: &mut Option<String>,
) -> Duration {
    let found = lookup_host(host, port, servers).await.and_then(|answer| {
        if answer.addresses.is_empty() { Err(io::Error::other("it has no address")) } else { Ok(answer) }
    });
    match found {
        Ok(LookupAnswer { addresses, ttl, unanswered }) => {
            *failure = None;
            let known = Arc::clone(&*members.borrow());
            let is_kept = |known: &str| known.parse().is_ok_and(|known: SocketAddr| unanswered.has(known.ip()));
            let kept: Vec<_> = known.iter().filter(|known| is_kept(known)).cloned().collect();
            let pause = if kept.is_empty() { ttl.unwrap_or(PAUSE_MAX) } else { PAUSE_FAILED };
            let named = addresses.iter().map(|resolved| resolved.address.to_string().into_boxed_str());
            publish(members, &named.chain(kept).collect());
            pause.clamp(PAUSE_MIN, PAUSE_MAX)
        }
        Err(error) => {
            let error = Some(error.to_string());
            if *failure != error {
                tracing::warn!(host, error, "the members of the fleet cannot be looked up; the last known ones stay");
                *failure = error;
            }
            PAUSE_FAILED
        }
    }
}

fn publish(members: &watch::Sender<Members>, all: &Members) {
    members.send_if_modified(|known| std::mem::replace(known, Arc::clone(all)) != *all);
}
