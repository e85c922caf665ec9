//! Registers this replica in etcd, and publishes the registered ones.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::settings::{EtcdMembers, Members};
use crate::fleet::etcd::{Entry, FollowAttempts, KeyRange, Session};

/// The time after which a dead replica is no member any more.
const TTL: Duration = Duration::from_secs(10);
const RENEW_EVERY: Duration = Duration::from_secs(3);

/// Registers and publishes until dropped. The last known members stay while etcd does not answer: a replica that cannot
/// reach etcd does not know who left.
pub(super) async fn follow(etcd: &EtcdMembers, members: watch::Sender<Members>) {
    let failure = "the members of the fleet in etcd cannot be followed; the last known ones stay";
    let mut attempts = FollowAttempts::new(failure);
    loop {
        let Err(reason) = follow_once(etcd, &members, &mut attempts).await;
        attempts.failed(reason).await;
    }
}

/// Registers and publishes over one connection.
async fn follow_once(
    etcd: &EtcdMembers,
    members: &watch::Sender<Members>,
    attempts: &mut FollowAttempts,
) -> Result<Infallible, String> {
    let session = Session::open(&etcd.servers, attempts.number()).await?;
    let registration = Registration::begin(etcd, session).await?;
    attempts.succeeded();
    registration.publish(members).await
}

/// Ends the registration of this replica, which must not be followed any more.
///
/// # Errors
/// Why the registration stays until its lease ends.
pub(super) async fn unregister(etcd: &EtcdMembers) -> Result<(), String> {
    let session = Session::open(&etcd.servers, 0).await?;
    session.delete(&KeyRange::Key(own_key(etcd, &session))).await
}

/// The start of the keys of all members.
fn folder(etcd: &EtcdMembers) -> String {
    format!("{}/members/", etcd.prefix)
}

/// The key of this replica.
fn own_key(etcd: &EtcdMembers, session: &Session) -> String {
    // Without an address of its own, members reach this replica where etcd sees it.
    let address = match &etcd.advertise {
        Some(address) => address.to_string(),
        None => SocketAddr::new(session.local_ip(), etcd.port).to_string(),
    };
    folder(etcd) + &address
}

/// This replica as a member, over one connection.
struct Registration {
    session: Session,
    /// The start of the keys of all members.
    folder: String,
    /// The key of this replica.
    own: String,
    lease: i64,
}

impl Registration {
    /// Registers this replica.
    async fn begin(etcd: &EtcdMembers, session: Session) -> Result<Self, String> {
        let lease = session.grant(TTL).await?;
        let (folder, own) = (folder(etcd), own_key(etcd, &session));
        let registration = Self { session, folder, own, lease };
        registration.register().await?;
        tracing::info!(key = registration.own, "registered in etcd");
        Ok(registration)
    }

    async fn register(&self) -> Result<(), String> {
        let value = format!("{{\"version\":\"{}\"}}", env!("CARGO_PKG_VERSION"));
        self.session.put(&self.own, value.into_bytes(), Some(self.lease)).await
    }

    /// Publishes the members.
    ///
    /// # Errors
    /// Why it ended.
    async fn publish(&self, members: &watch::Sender<Members>) -> Result<Infallible, String> {
        let all = KeyRange::Prefix(self.folder.clone());
        let found = self.session.get(&all).await?;
        let mut watch = self.session.watch(&all, found.revision + 1).await?;
        let mut registered = BTreeSet::new();
        apply(&mut registered, &self.folder, found.entries);
        let mut ticks = interval(RENEW_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let all: Members = registered.iter().cloned().collect();
            members.send_if_modified(|known| std::mem::replace(known, Arc::clone(&all)) != all);
            tokio::select! {
                changes = watch.changes() => {
                    let changes = changes?;
                    let has_lost = |entry: &Entry| entry.value.is_none() && entry.key == self.own.as_bytes();
                    // A predecessor with the same address has ended.
                    if changes.iter().any(has_lost) {
                        self.register().await?;
                    }
                    apply(&mut registered, &self.folder, changes);
                }
                _ = ticks.tick() => {
                    if !self.session.keep_alive(self.lease).await? {
                        return Err("the lease of this replica has ended".to_owned());
                    }
                }
            }
        }
    }
}

/// Applies changes of keys to the addresses of members. A key that is no text is none of a member.
fn apply(registered: &mut BTreeSet<Box<str>>, folder: &str, changes: Vec<Entry>) {
    for Entry { key, value, .. } in changes {
        let address = std::str::from_utf8(&key).ok().and_then(|key| key.strip_prefix(folder));
        match (address, value) {
            (Some(address), Some(_)) => _ = registered.insert(address.into()),
            (Some(address), None) => _ = registered.remove(address),
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_apply_in_their_order() {
        let change = |key: &str, is_there: bool| Entry { key: key.into(), value: is_there.then(Vec::new), revision: 1 };
        let mut registered = BTreeSet::new();
        let rows = [
            (vec![("/weir/members/a:1", true), ("/weir/members/b:1", true)], "a:1 b:1"),
            (vec![("/weir/members/a:1", false), ("/weir/members/[::1]:2", true)], "[::1]:2 b:1"),
            (vec![("/weir/members/b:1", false), ("/weir/members/b:1", true), ("/other", true)], "[::1]:2 b:1"),
            (vec![("/weir/members/none", false)], "[::1]:2 b:1"),
        ];
        for (changes, expected) in rows {
            let changes = changes.into_iter().map(|(key, is_there)| change(key, is_there)).collect();
            apply(&mut registered, "/weir/members/", changes);
            assert_eq!(registered.iter().map(|address| &**address).collect::<Vec<_>>().join(" "), expected);
        }
    }
}
