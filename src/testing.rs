//! A search through all orders of events, for tests: models of replicas whose parts are those of production.
//!
//! Most parts cannot be copied, so a state is the list of its events, which happen again for each event that may follow.
//! Two lists that lead to the same [`Story::digest`] are one state.

pub(crate) mod picture;

use std::collections::{HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What can happen, in any order.
pub(crate) trait Story {
    /// Everything that events change.
    type World;
    /// One thing that happens.
    type Event: Clone + Debug;

    /// The world before the first event.
    fn begin(&self) -> Self::World;

    /// The events that can happen next. They end, because each takes from a budget.
    fn possible(&self, world: &Self::World) -> Vec<Self::Event>;

    /// Lets an event happen.
    fn happen(&self, world: &mut Self::World, event: &Self::Event);

    /// A copy of a world whose parts can be copied.
    fn copy(&self, _world: &Self::World) -> Option<Self::World> {
        None
    }

    /// Everything that decides what follows.
    fn digest(&self, world: &Self::World) -> String;

    /// The bound that is broken now, or after everything that is under way has come to its end.
    fn broken(&self, world: Self::World) -> Option<String>;
}

/// Messages that may arrive in any order, for a digest.
pub(crate) fn sorted(messages: &[impl Debug]) -> Vec<String> {
    let mut messages: Vec<_> = messages.iter().map(|message| format!("{message:?}")).collect();
    messages.sort_unstable();
    messages
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

/// Searches all states of `story`. Returns their number, or a shortest list of events that breaks a bound.
pub(crate) fn search<S: Story>(story: &S) -> Result<usize, String> {
    let (mut known, mut queue) = (HashSet::new(), VecDeque::new());
    reach(story, story.begin(), Vec::new(), &mut known, &mut queue)?;
    while let Some((events, possible)) = queue.pop_front() {
        let replay = || {
            let mut world = story.begin();
            for event in &events {
                story.happen(&mut world, event);
            }
            world
        };
        let mut last = Some(replay());
        for event in possible {
            let copy = last.as_ref().and_then(|world| story.copy(world));
            let mut world = copy.or_else(|| last.take()).unwrap_or_else(replay);
            story.happen(&mut world, &event);
            let events = events.iter().cloned().chain([event]).collect();
            reach(story, world, events, &mut known, &mut queue)?;
        }
    }
    Ok(known.len())
}

/// States as the events that led to them, each with those that can happen next.
type Queue<E> = VecDeque<(Vec<E>, Vec<E>)>;

/// Checks a state and queues it, with the events that can happen next, unless it is known.
fn reach<S: Story>(
    story: &S,
    world: S::World,
    events: Vec<S::Event>,
    known: &mut HashSet<u64>,
    queue: &mut Queue<S::Event>,
) -> Result<(), String> {
    let mut hasher = DefaultHasher::new();
    story.digest(&world).hash(&mut hasher);
    if known.insert(hasher.finish()) {
        let possible = story.possible(&world);
        if let Some(broken) = story.broken(world) {
            let steps: Vec<_> = events.iter().map(|event| format!("  {event:?}")).collect();
            return Err(format!("{broken} after\n{}", steps.join("\n")));
        }
        queue.push_back((events, possible));
    }
    Ok(())
}

/// Checks that no order of events breaks a bound, and that there are at least `states` states.
#[track_caller]
pub(crate) fn holds<S: Story>(name: &str, story: &S, states: usize) {
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
pub(crate) fn finds<S: Story>(name: &str, story: &S, expected: &str) {
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
