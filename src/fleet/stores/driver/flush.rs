//! The instants at which the reports of an outbox are sent, and their batches.
//!
//! Not here: the calls that send them (`Correct::send`).

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::sleep;

use super::outbox::{Batch, Outbox, Report};
use super::store::{Correct, Kind, NodesOf, Reached, ReportOf, Shared};
use crate::base::time::Timestamp;
use crate::engine::store::backend::{SendPart, all};

/// Reports of one batch.
pub(in crate::fleet::stores) const BATCH_MAX: usize = 128;

/// The time for one batch. No request waits for it.
pub(in crate::fleet::stores) const BATCH_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause before a batch without an answer is sent again.
const PAUSE: Duration = Duration::from_millis(100);

/// The time in which more reports may join those that wait.
const GATHER: Duration = Duration::from_millis(2);

/// The age from which a batch without an answer is dropped: later, the store might make it twice.
const BATCH_AGE_MAX_NS: u64 = 300_000_000_000;

/// Sends what is queued, until dropped.
pub(super) async fn flush<K: Correct>(store: &Arc<Shared<K>>) {
    let mut is_whole = true;
    loop {
        due(&store.outbox, is_whole).await;
        is_whole = pass(store).await;
        store.outbox.end_pass();
    }
}

/// Waits until something is queued, or for a pause if the last pass was not whole.
async fn due<R>(outbox: &Outbox<R>, is_whole: bool) {
    if is_whole {
        outbox.queued().await;
    } else {
        // Also if something is queued meanwhile: a pass does not see parked reports.
        sleep(PAUSE).await;
        outbox.unpark();
    }
    sleep(GATHER).await;
}

/// Sends what is queued now, and what has no answer. Returns whether everything was answered, or is parked; otherwise it is
/// called again after a pause.
pub(in crate::fleet::stores) async fn pass<K: Correct>(store: &Arc<Shared<K>>) -> bool {
    // Without a view there are no connections yet.
    let Some(view) = store.background.load_full() else { return false };
    let (mut by_node, unknown) = split(store, &view.nodes, store.outbox.take());
    store.outbox.park(unknown);
    let mut is_whole = true;
    let mut parts: SmallVec<[SendPart<'_, bool>; 2]> = SmallVec::new();
    for (link, reports) in view.links.iter().zip(&mut by_node) {
        let (node, reports) = (&link.node, std::mem::take(reports));
        let generation = node.generation().filter(|_| node.is_closed());
        if let (Some(mut connection), Some(known)) = (link.connection(), generation) {
            parts.push(Box::pin(async move {
                K::send(&mut Reached { store, node, connection: &mut connection }, known.number, || reports).await
            }));
            continue;
        }
        store.outbox.park(reports);
        // Its connection may be about to open, or it may decide since. Batches without an answer wait for it too.
        is_whole &= !node.decides() || store.outbox.len() == 0;
    }
    all(parts).await.into_iter().all(|is_sent| is_sent) && is_whole
}

/// Sends what is parked for a node before it decides again. Nothing is lost if the future is dropped.
pub(in crate::fleet::stores) async fn send_parked<K: Correct>(reached: &mut Reached<'_, K>, generation: u64) {
    let (store, node) = (reached.store, reached.node);
    let parked = || {
        let nodes = store.nodes();
        let (mut by_node, mut others) = split(store, &nodes, store.outbox.take_parked());
        let own = nodes.all.iter().position(|known| Arc::ptr_eq(known, node));
        let own = own.and_then(|own| by_node.get_mut(own)).map(std::mem::take).unwrap_or_default();
        others.extend(by_node.into_iter().flatten());
        store.outbox.park(others);
        own
    };
    K::send(reached, generation, parked).await;
}

/// The reports of each node, and those that no node serves.
fn split<K: Kind>(
    store: &Shared<K>,
    nodes: &NodesOf<K>,
    reports: Vec<ReportOf<K>>,
) -> (Vec<Vec<ReportOf<K>>>, Vec<ReportOf<K>>) {
    let mut by_node: Vec<Vec<ReportOf<K>>> = nodes.all.iter().map(|_| Vec::new()).collect();
    let mut unknown = Vec::new();
    for report in reports {
        let node = store.node_of_report(nodes, &report).and_then(|node| by_node.get_mut(node));
        node.unwrap_or(&mut unknown).push(report);
    }
    (by_node, unknown)
}

impl<R> Batch<R> {
    /// The batches of `reports`, which are sent first at `since`. `number` gives the number of the first of so many reports.
    pub(in crate::fleet::stores) fn of_all(
        reports: Vec<Report<R>>,
        since: Timestamp,
        mut number: impl FnMut(usize) -> u64,
    ) -> impl Iterator<Item = Self> {
        let mut reports = reports.into_iter();
        std::iter::from_fn(move || {
            let reports: Vec<_> = reports.by_ref().take(BATCH_MAX).collect();
            (!reports.is_empty()).then(|| Self { first: number(reports.len()), reports, since })
        })
    }

    /// Whether it is so old that it is dropped.
    pub(in crate::fleet::stores) fn is_old(&self, now: Timestamp) -> bool {
        now.ns_since(self.since) > BATCH_AGE_MAX_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::telemetry::Counter;
    use crate::base::time::instant_now;

    /// A node decides, and its connection opens late. Then its reports are sent, also if others are queued meanwhile.
    #[tokio::test(start_paused = true)]
    async fn parked_reports_are_sent_once_there_is_a_connection() {
        const OPENS_AT: Duration = Duration::from_millis(350);
        let outbox = Outbox::new(Counter::new("dropped", "Dropped.").unwrap());
        let begin = instant_now();
        let mut sent = 0;
        let sends = async {
            let mut is_whole = true;
            loop {
                due(&outbox, is_whole).await;
                let reports = outbox.take();
                is_whole = begin.elapsed() >= OPENS_AT;
                if is_whole {
                    sent += reports.len();
                    outbox.sent(reports.len());
                } else {
                    outbox.park(reports);
                }
            }
        };
        let queues = async {
            for number in 0..9 {
                outbox.give_back(number, Timestamp::ZERO);
                sleep(Duration::from_millis(60)).await;
            }
        };
        let both = async {
            tokio::join!(sends, queues);
        };
        assert!(tokio::time::timeout(Duration::from_secs(2), both).await.is_err(), "it runs until dropped");
        assert_eq!((sent, outbox.len()), (9, 0));
    }
}
