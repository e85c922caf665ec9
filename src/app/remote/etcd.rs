//! Watches the key of a configuration in etcd, and reports the state of this replica beside it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval};

use super::client::{EtcdKey, version};
use super::version::{Report, Version};
use crate::base::telemetry::Metrics;
use crate::fleet::etcd::{FollowAttempts, Session};

/// The time after which the report of a dead replica vanishes.
const STATUS_TTL: Duration = Duration::from_secs(15);
const RENEW_EVERY: Duration = Duration::from_secs(5);

/// The channels between the task that reads versions, and the task that applies them.
pub(super) struct Channels {
    /// The newest version; `None` before the first one.
    pub(super) versions: watch::Sender<Option<Version>>,
    pub(super) reports: watch::Receiver<Report>,
    /// Asks for a reading now.
    pub(super) again: Arc<Notify>,
    pub(super) metrics: Arc<Metrics>,
}

impl Channels {
    /// Offers a version, unless it is the newest one already.
    pub(super) fn offer(&self, version: Version) {
        self.versions.send_if_modified(|newest| {
            let is_new = newest.as_ref() != Some(&version);
            *newest = Some(version);
            is_new
        });
    }
}

/// Watches until dropped.
pub(super) async fn follow(mut place: EtcdKey, mut channels: Channels) {
    let mut status = StatusEntry::new(status_key(&place.key, &channels.reports.borrow().replica));
    let mut attempts = FollowAttempts::new("the configuration in etcd cannot be watched; the one in force stays");
    loop {
        let mut reason = follow_once(&place, &mut channels, &mut status, &mut attempts).await;
        channels.metrics.remote_config.reachable.set(0);
        if let Err(unreadable) = place.renew().await {
            reason = format!("{reason}; {unreadable}");
        }
        attempts.failed(reason).await;
    }
}

/// Watches over one connection, and returns why it ended.
async fn follow_once(
    place: &EtcdKey,
    channels: &mut Channels,
    status: &mut StatusEntry,
    attempts: &mut FollowAttempts,
) -> String {
    let opened = async {
        let session = Session::open(&place.servers, attempts.number()).await?;
        let (version, revision) = place.get(&session).await?;
        let watch = session.watch(&place.range(), revision + 1).await?;
        Ok::<_, String>((session, version, watch))
    };
    let (mut session, newest, mut watch) = match opened.await {
        Ok(opened) => opened,
        Err(reason) => return reason,
    };
    channels.metrics.remote_config.reachable.set(1);
    attempts.succeeded();
    tracing::info!(key = &*place.key, revision = &*newest.revision, "watching the configuration in etcd");
    channels.offer(newest);
    channels.reports.mark_changed();
    let mut ticks = interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            changes = watch.changes() => match changes {
                Ok(changes) => {
                    if let Some(newest) = changes.into_iter().next_back() {
                        channels.offer(version(newest));
                    }
                }
                Err(reason) => return reason,
            },
            changed = channels.reports.changed() => {
                let report = channels.reports.borrow_and_update().clone();
                status.publish(&mut session, report).await;
                if changed.is_err() {
                    return std::future::pending().await; // Weir is about to end
                }
            }
            _ = ticks.tick() => status.renew(&mut session).await,
            () = channels.again.notified() => match place.get(&session).await {
                Ok((version, _)) => channels.offer(version),
                Err(reason) => return reason,
            },
        }
    }
}

/// The key of a replica's report: beside the key of the configuration, in the folder `status`.
fn status_key(key: &str, replica: &str) -> String {
    let (folder, _) = key.rsplit_once('/').unwrap_or_default();
    format!("{folder}/status/{replica}")
}

/// The report of this replica in etcd.
struct StatusEntry {
    key: String,
    lease: Option<i64>,
    published: Option<Report>,
    has_complained: bool,
}

impl StatusEntry {
    fn new(key: String) -> Self {
        Self { key, lease: None, published: None, has_complained: false }
    }

    /// Writes a report.
    async fn publish(&mut self, session: &mut Session, report: Report) {
        let mut written = self.write(session, &report).await;
        if let Err(reason) = &written {
            // A lease of an earlier connection may have ended, and the token of the login.
            let has_new_token = session.renew_token(reason).await;
            if self.lease.take().is_some() || has_new_token {
                written = self.write(session, &report).await;
            }
        }
        self.published = Some(report);
        match written {
            Ok(()) => self.has_complained = false,
            Err(reason) if !self.has_complained => {
                tracing::warn!(key = self.key, reason, "the state of this replica cannot be written to etcd");
                self.has_complained = true;
            }
            Err(_) => {}
        }
    }

    async fn write(&mut self, session: &Session, report: &Report) -> Result<(), String> {
        let text = serde_json::to_vec(report).map_err(|error| error.to_string())?;
        let lease = match self.lease {
            Some(lease) => lease,
            None => *self.lease.insert(session.grant(STATUS_TTL).await?),
        };
        session.put(&self.key, text, Some(lease)).await
    }

    /// Prolongs the lease, or writes the report again if the lease has ended.
    async fn renew(&mut self, session: &mut Session) {
        let Some(report) = self.published.clone() else { return };
        let lives = match self.lease {
            Some(lease) => session.keep_alive(lease).await.unwrap_or(false),
            None => false,
        };
        if !lives {
            self.lease = None;
            self.publish(session, report).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_beside_the_configuration() {
        for (key, expected) in
            [("/weir/config", "/weir/status/a"), ("/config", "/status/a"), ("/a/b/c", "/a/b/status/a")]
        {
            assert_eq!(status_key(key, "a"), expected);
        }
    }
}
