//! Polls a configuration behind a URL.

use std::time::Duration;

use tokio::time::sleep;

use super::client::Page;
use super::etcd::Channels;
use crate::fleet::etcd::Backoff;

/// Polls `page` every `every` until dropped. After a failure it polls earlier, at first.
pub(super) async fn poll(mut page: Page, every: Duration, channels: Channels) {
    let mut backoff = Backoff::default();
    let mut last_reason = None;
    loop {
        let known = channels.versions.borrow().clone();
        let mut pause = every;
        match page.get_or_renew(known.as_ref()).await {
            Ok(version) => {
                channels.metrics.remote_config.reachable.set(1);
                backoff.reset();
                last_reason = None;
                if let Some(version) = version {
                    channels.offer(version);
                }
            }
            Err(reason) => {
                channels.metrics.remote_config.reachable.set(0);
                if last_reason.as_ref() != Some(&reason) {
                    tracing::warn!(reason, "the configuration cannot be fetched; the one in force stays");
                }
                last_reason = Some(reason);
                pause = backoff.pause().min(every);
            }
        }
        tokio::select! {
            () = sleep(pause) => {}
            () = channels.again.notified() => {
                let _ = page.renew().await; // a failed reading tells of the files
            }
        }
    }
}
