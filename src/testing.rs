//! A search through all orders of events, for tests: models of replicas whose parts are those of production.
//!
//! The parts cannot be copied, so a state is the list of its events. They happen again for each look at it.
//! Two lists that lead to the same [`Story::digest`] are one state.

pub(crate) mod picture;

use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};

use stateright::{Checker as _, Expectation, HasDiscoveries, Model, Property};

/// What can happen, in any order.
pub(crate) trait Story: Send + Sync + 'static {
    /// Everything that events change.
    type World;
    /// One thing that happens.
    type Event: Clone + Debug + PartialEq + Send + Sync;

    /// The world before the first event.
    fn begin(&self) -> Self::World;

    /// The events that can happen next. They end, because each takes from a budget.
    fn possible(&self, world: &Self::World) -> Vec<Self::Event>;

    /// Lets an event happen.
    fn happen(&self, world: &mut Self::World, event: &Self::Event);

    /// Everything that decides what follows.
    fn digest(&self, world: Self::World) -> String;

    /// The bound that is broken now, or after everything that is under way has come to its end.
    fn broken(&self, world: Self::World) -> Option<String>;
}

/// How often each kind of event may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    pub(crate) requests: usize,
    /// Answers that come late or never.
    pub(crate) late: usize,
    pub(crate) returns: usize,
    pub(crate) losses: usize,
    pub(crate) doubles: usize,
    /// Steps of time.
    pub(crate) steps: usize,
    /// Processes that die; others take their places.
    pub(crate) crashes: usize,
}

impl Budget {
    /// Nothing happens.
    pub(crate) const NONE: Self =
        Self { requests: 0, late: 0, returns: 0, losses: 0, doubles: 0, steps: 0, crashes: 0 };
}

/// Replicas without a safeguard `F`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet<F> {
    pub(crate) replicas: usize,
    pub(crate) budget: Budget,
    pub(crate) fault: F,
}

/// The difference between `spent` units and those that requests `have`, if it is larger than what dead processes left spent
/// and unspent.
pub(crate) fn miscounted(spent: u64, have: u64, (left_spent, left_unspent): (u64, u64)) -> Option<String> {
    if spent > have + left_spent {
        return Some(format!("lost units: {spent} are spent, {have} were admitted"));
    }
    (spent + left_unspent < have).then(|| format!("free units: {spent} are spent, {have} were admitted"))
}

/// A state.
#[derive(Clone, Debug)]
pub(crate) struct Reached<E> {
    events: Vec<E>,
    digest: u64,
}

impl<E> PartialEq for Reached<E> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<E> Hash for Reached<E> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

struct Search<S>(S);

impl<S: Story> Search<S> {
    fn world(&self, events: &[S::Event]) -> S::World {
        let mut world = self.0.begin();
        for event in events {
            self.0.happen(&mut world, event);
        }
        world
    }

    fn reached(&self, events: Vec<S::Event>) -> Reached<S::Event> {
        let mut hasher = DefaultHasher::new();
        self.0.digest(self.world(&events)).hash(&mut hasher);
        Reached { events, digest: hasher.finish() }
    }

    fn broken(&self, events: &[S::Event]) -> Option<String> {
        self.0.broken(self.world(events))
    }
}

impl<S: Story> Model for Search<S> {
    type State = Reached<S::Event>;
    type Action = S::Event;

    fn init_states(&self) -> Vec<Self::State> {
        vec![self.reached(Vec::new())]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>) {
        *actions = self.0.possible(&self.world(&state.events));
    }

    fn next_state(&self, last: &Self::State, event: Self::Action) -> Option<Self::State> {
        Some(self.reached(last.events.iter().cloned().chain([event]).collect()))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let condition = |search: &Self, state: &Self::State| search.broken(&state.events).is_none();
        vec![Property { expectation: Expectation::Always, name: BOUNDS, condition }]
    }
}

const BOUNDS: &str = "all bounds hold";

/// Searches all states of `story`. Returns their number, or a shortest list of events that breaks a bound.
pub(crate) fn search<S: Story>(story: S) -> Result<usize, String> {
    let found = Search(story).checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let Some(path) = found.discovery(BOUNDS) else { return Ok(found.unique_state_count()) };
    let events = path.into_actions();
    let broken = found.model().broken(&events).unwrap_or_default();
    let steps: Vec<_> = events.iter().map(|event| format!("  {event:?}")).collect();
    Err(format!("{broken} after\n{}", steps.join("\n")))
}

/// Checks that no order of events breaks a bound, and that there are at least `states` states.
#[track_caller]
pub(crate) fn holds<S: Story>(name: &str, story: S, states: usize) {
    match search(story) {
        Ok(found) => {
            println!("{name}: {found} states");
            assert!(found >= states, "{name}: {found} states, expected {states}");
        }
        Err(broken) => panic!("{name}: {broken}"),
    }
}

/// Checks that the search finds the fault of `story`, and that what is broken begins with `expected`.
#[track_caller]
pub(crate) fn finds<S: Story>(name: &str, story: S, expected: &str) {
    match search(story) {
        Ok(states) => panic!("{name}: {states} states without a broken bound"),
        Err(broken) => assert!(broken.starts_with(expected), "{name}: expected {expected}: {broken}"),
    }
}

/// Whether a future is ready at once.
#[cfg(feature = "loom")]
pub(crate) fn is_woken(future: impl Future<Output = ()>) -> bool {
    std::pin::pin!(future).poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
}
