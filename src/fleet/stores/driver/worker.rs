//! The calls of one worker: its connections to all nodes of a store, and the decision of the charges of a request.
//!
//! Charges of one call are all made, or none. Several calls are made at once; if one is denied, the caller gives the
//! others back. Not here: the calls (`Ask::ask`).

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tokio::time::{Instant, timeout_at};

use super::link::persist;
use super::nodes::View;
use super::store::{Driven, Shared, ViewOf};
use crate::base::time::instant_now;
use crate::engine::store::backend::{
    Answers, Backend as _, Connections, Failure, Part, RemoteCharge, Unavailable, each,
};

/// The connections of one worker to the nodes of a store.
pub(super) struct Worker<K: Driven> {
    store: Arc<Shared<K>>,
    view: RefCell<Arc<ViewOf<K>>>,
    session: K::Session,
}

/// The charges of a request that one call decides, with their positions in the request.
struct Group<'c> {
    call: (Option<usize>, usize),
    charges: SmallVec<[RemoteCharge<'c>; 2]>,
    positions: SmallVec<[usize; 2]>,
}

impl<K: Driven> Worker<K> {
    /// Begins to connect to all nodes. To be called on the runtime that decides.
    pub(super) fn new(store: Arc<Shared<K>>) -> Self {
        let view = RefCell::new(View::new(store.nodes()));
        Self { store, view, session: K::Session::default() }
    }

    async fn decide(&self, charges: &[RemoteCharge<'_>]) -> Answers {
        let view = self.view();
        let groups = self.groups(&view, charges);
        if let [group] = groups.as_slice() {
            return self.ask(&view, group).await;
        }
        let parts = groups.iter().map(|group| -> Part<'_, _> { Box::pin(self.ask(&view, group)) }).collect();
        let mut unmerged = Unmerged { store: &self.store, answers: groups.iter().map(|_| None).collect() };
        each(parts, |index, answers| unmerged.answers[index] = Some(answers)).await;
        unmerged.merge(&groups, charges.len())
    }

    fn view(&self) -> Arc<ViewOf<K>> {
        let mut view = self.view.borrow_mut();
        *view = view.follow(self.store.nodes());
        Arc::clone(&view)
    }

    /// The charges by call.
    fn groups<'c>(&self, view: &ViewOf<K>, charges: &[RemoteCharge<'c>]) -> SmallVec<[Group<'c>; 1]> {
        let mut groups: SmallVec<[Group<'c>; 1]> = SmallVec::new();
        for (position, charge) in charges.iter().enumerate() {
            let call = self.store.call_of(&view.nodes, charge, position);
            match groups.iter_mut().find(|group| group.call == call) {
                Some(group) => {
                    group.charges.push(*charge);
                    group.positions.push(position);
                }
                None => groups.push(Group { call, charges: smallvec![*charge], positions: smallvec![position] }),
            }
        }
        groups
    }

    /// Makes the call of `group`. A store that denies units which came back a moment ago is asked once more when it knows of
    /// them, if there is time for that.
    async fn ask(&self, view: &ViewOf<K>, group: &Group<'_>) -> Answers {
        let (outbox, timeout, begun) = (&self.store.outbox, self.store.context.settings.timeout, instant_now());
        let Some(until) = group.charges.iter().filter_map(|charge| charge.asked_again_until).min() else {
            return self.call(view, group, begun + timeout).await;
        };
        let known = outbox.passes();
        let answers = self.call(view, group, begun + timeout).await;
        if answers.is_admitted {
            return answers;
        }
        // A second call takes as long as the first.
        let took = instant_now().saturating_duration_since(begun);
        let drained = timeout_at(until.checked_sub(took).unwrap_or(begun), outbox.drained()).await;
        if !drained.is_ok_and(|passes| passes > known) {
            return answers;
        }
        // The end at `until` comes before the timeout of the call, so it is no failure of the node.
        let Ok(newer) = timeout_at(until, self.call(view, group, instant_now() + timeout)).await else {
            return answers;
        };
        let (answers, unused) =
            if newer.outcomes.iter().any(Result::is_err) { (answers, newer) } else { (newer, answers) };
        undo(&self.store, unused);
        answers
    }

    async fn call(&self, view: &ViewOf<K>, group: &Group<'_>, deadline: Instant) -> Answers {
        let answers = match group.call.0.and_then(|node| view.links.get(node)) {
            Some(link) => {
                // Without the node, a replica would admit what others may have from it. So another connection is tried first.
                let ask = || K::ask(&self.store, view, link, &self.session, &group.charges, deadline);
                persist(ask, |why| *why == Unavailable::Error(Failure::Broken)).await
            }
            None => Err(Unavailable::Down),
        };
        let none = |why| Answers { is_admitted: true, outcomes: group.charges.iter().map(|_| Err(why)).collect() };
        answers.unwrap_or_else(none)
    }
}

/// The answers to several calls for a request. What they charged is given back on drop.
struct Unmerged<'s, K: Driven> {
    store: &'s Shared<K>,
    /// In the order of the groups; `None` before there is an answer.
    answers: SmallVec<[Option<Answers>; 2]>,
}

impl<K: Driven> Unmerged<'_, K> {
    /// The answers in the order of the charges.
    fn merge(mut self, groups: &[Group<'_>], charges: usize) -> Answers {
        let mut outcomes: SmallVec<[_; 2]> = (0..charges).map(|_| Err(Unavailable::Down)).collect();
        let mut is_admitted = true;
        for (group, answers) in groups.iter().zip(self.answers.drain(..)) {
            let Some(answers) = answers else { continue };
            is_admitted &= answers.is_admitted;
            for (position, outcome) in group.positions.iter().zip(answers.outcomes) {
                outcomes[*position] = outcome;
            }
        }
        Answers { is_admitted, outcomes }
    }
}

impl<K: Driven> Drop for Unmerged<'_, K> {
    fn drop(&mut self) {
        self.answers.drain(..).flatten().for_each(|answers| undo(self.store, answers));
    }
}

/// Gives back what `answers` charged.
fn undo<K: Driven>(store: &Shared<K>, answers: Answers) {
    let receipts = answers.outcomes.into_iter().filter_map(|outcome| outcome.ok()?.receipt);
    receipts.for_each(|receipt| store.give_back(receipt));
}

impl<K: Driven> Connections for Worker<K> {
    fn decide<'a>(&'a self, charges: &'a [RemoteCharge<'a>]) -> Part<'a, Answers> {
        Box::pin(self.decide(charges))
    }
}

impl<K: Driven> fmt::Debug for Worker<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("store", &self.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::base::time::{Clock, Timestamp};
    use crate::engine::limit::state::State as _;
    use crate::engine::limit::{Algorithm, AnyState, Key, Quota, Rate};
    use crate::engine::store::backend::{Handling, OnFailure, RemoteOutcome, RemoteReceipt, Units};
    use crate::fleet::stores::driver::flush::flush;
    use crate::fleet::stores::driver::health::{Generation, Health, StoreContext};
    use crate::fleet::stores::driver::link::tests::Socketless;
    use crate::fleet::stores::driver::link::{Link, Server as _};
    use crate::fleet::stores::driver::nodes::Nodes;
    use crate::fleet::stores::driver::store::{Answer, Ask, Correct, Joined, Kind, Reached, ReportOf, Watch, Work};

    const TIMEOUT: Duration = Duration::from_millis(100);
    /// The time that a report takes.
    const REPORT: Duration = Duration::from_millis(40);

    /// A store that denies everything, with the time that each of the next calls takes.
    struct Denying(Mutex<Vec<Duration>>);

    impl Kind for Denying {
        type Node = Socketless;
        type Map = ();
        type Refund = ();
        type Session = ();

        fn refund(&self, _: RemoteReceipt) -> Option<()> {
            None
        }
    }

    impl Ask for Denying {
        async fn ask(
            store: &Arc<Shared<Self>>,
            _: &ViewOf<Self>,
            link: &Arc<Link<Socketless>>,
            (): &(),
            charges: &[RemoteCharge<'_>],
            deadline: Instant,
        ) -> Result<Answers, Unavailable> {
            link.ready(deadline).await?;
            let takes = store.0.lock().unwrap().pop().unwrap();
            if timeout_at(deadline, sleep(takes)).await.is_err() {
                link.node.failed(Failure::Timeout, "late");
                return Err(Unavailable::Timeout);
            }
            link.node.succeeded();
            let state = AnyState::fresh(charges[0].rule);
            let denial = RemoteOutcome { admitted: 0, is_charged: false, is_outdated: false, state, receipt: None };
            Ok(Answers { is_admitted: false, outcomes: smallvec![Ok(denial)] })
        }
    }

    impl Watch for Denying {
        fn look(_: &mut Reached<'_, Self>) -> impl Answer<Option<u64>> {
            ready(Ok(None))
        }

        fn join(_: &mut Reached<'_, Self>, _: Option<u64>) -> impl Answer<Joined> {
            pending()
        }
    }

    impl Correct for Denying {
        async fn send(
            reached: &mut Reached<'_, Self>,
            _: u64,
            reports: impl FnOnce() -> Vec<ReportOf<Self>> + Send,
        ) -> bool {
            let reports = reports().len();
            sleep(REPORT).await;
            reached.store.outbox.sent(reports);
            true
        }
    }

    impl Work for Denying {}

    /// Three requests at once are denied by calls of `first_ms`, a time after which units come back. A second call each takes
    /// `second_ms`, if it is made. Returns the time until all are answered, and the second calls.
    async fn denied([first_ms, second_ms]: [u64; 2], refund_ms: Option<u64>, until_ms: u64) -> (u64, usize) {
        let context = StoreContext::of_test(OnFailure::Reject, TIMEOUT, Clock::start());
        let node = Arc::new(Socketless { health: Health::new(Arc::clone(&context), "node"), ends: false });
        let calls = [[second_ms; 3], [first_ms; 3]].concat().into_iter().map(Duration::from_millis);
        let kind = Denying(Mutex::new(calls.collect()));
        let nodes = Nodes { all: vec![Arc::clone(&node)], map: () };
        let store = Shared::of_kind(kind, context, nodes);
        node.warmed(Generation::of(1));
        store.background.store(Some(View::new(store.nodes())));
        let flushed = Arc::clone(&store);
        tokio::spawn(async move { flush(&flushed).await });
        // A node knows of what it heard before.
        store.outbox.give_back((), Timestamp::ZERO);
        store.outbox.drained().await;
        let (worker, begun) = (Worker::new(Arc::clone(&store)), instant_now());
        let rule = Algorithm::TokenBucket(Quota::new(Rate { count: 1, period_ns: 1_000_000_000 }, 1).unwrap());
        let charge = RemoteCharge {
            limit: "a",
            key: Key { first: 1, second: 2 },
            rule: &rule,
            units: Units::exactly(1),
            handling: Handling::Enforce,
            asked_again_until: Some(begun + Duration::from_millis(until_ms)),
        };
        let refund = async {
            if let Some(after_ms) = refund_ms {
                sleep(Duration::from_millis(after_ms)).await;
                store.outbox.give_back((), Timestamp::ZERO);
            }
        };
        let charges = [charge];
        let asks = async {
            let answers = tokio::join!(worker.decide(&charges), worker.decide(&charges), worker.decide(&charges));
            for Answers { is_admitted, outcomes } in [answers.0, answers.1, answers.2] {
                assert!(!is_admitted && outcomes[0].is_ok(), "{outcomes:?}");
            }
            u64::try_from(begun.elapsed().as_millis()).unwrap()
        };
        let (took_ms, ()) = tokio::join!(asks, refund);
        assert!(node.decides(), "the breaker is closed");
        assert_eq!(store.context.errors[Failure::Timeout as usize].get(), 0);
        let left = store.0.lock().unwrap().len();
        (took_ms, 3 - left)
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_denies_is_asked_again_in_time() {
        // The times of both calls, when units come back, until when the store is asked again; the end, and second calls.
        for (calls_ms, refund_ms, until_ms, expected) in [
            ([40, 40], Some(0), 100, (82..85, 3)),
            // The store knows of all units.
            ([40, 40], None, 100, (40..42, 0)),
            // It hears of them too late for another call.
            ([40, 40], Some(30), 100, (60..63, 0)),
            ([40, 40], Some(0), 70, (40..42, 0)),
            // A call that has less than the timeout does not fail.
            ([40, 80], Some(0), 100, (100..103, 3)),
        ] {
            let (took_ms, second_calls) = denied(calls_ms, refund_ms, until_ms).await;
            let found = (expected.0.contains(&took_ms), second_calls);
            assert_eq!(found, (true, expected.1), "{calls_ms:?} {refund_ms:?} {until_ms}: {took_ms} ms");
        }
    }
}
