//! A search through all orders of events, for tests: models of replicas whose parts are those of production.
//!
//! Most parts cannot be copied, so a state is the list of its events, which happen again for each event that may follow.
//! Two lists that lead to the same [`Story::digest`] are one state.

pub(crate) mod picture;

use std::collections::{HashSet, VecDeque};
use std::fmt::{Debug, Write};
use std::hash::{BuildHasherDefault, Hash, Hasher};

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

    /// The digest of everything that decides what follows.
    fn digest(&self, world: &Self::World) -> u64;

    /// The bound that is broken now, or after everything that is under way has come to its end.
    fn broken(&self, world: Self::World) -> Option<String>;
}

/// A hash of 64 bits that costs little without optimization.
#[derive(Default)]
pub(crate) struct Digest(u64);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.write_u64(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        Hasher::write(self, text.as_bytes());
        Ok(())
    }
}

/// The digest of a value.
pub(crate) fn hashed(value: &impl Hash) -> u64 {
    let mut digest = Digest::default();
    value.hash(&mut digest);
    digest.finish()
}

/// The digest of a value that has no hash, by its text.
pub(crate) fn printed(value: &impl Debug) -> u64 {
    let mut digest = Digest::default();
    let _ = write!(digest, "{value:?}");
    digest.finish()
}

/// Digests of messages that may arrive in any order.
pub(crate) fn sorted<M>(messages: &[M], digest: impl Fn(&M) -> u64) -> Vec<u64> {
    let mut digests: Vec<_> = messages.iter().map(digest).collect();
    digests.sort_unstable();
    digests
}

/// How often each kind of event may happen.
#[derive(Clone, Copy, Debug, Hash)]
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
    let (mut known, mut queue) = (Known::default(), VecDeque::new());
    reach(story, story.begin(), &[], None, &mut known, &mut queue)?;
    while let Some(State { events, possible, world }) = queue.pop_front() {
        let replay = || {
            let mut world = story.begin();
            for event in &events {
                story.happen(&mut world, event);
            }
            world
        };
        let mut last = Some(world.unwrap_or_else(replay));
        for event in possible {
            let copy = last.as_ref().and_then(|world| story.copy(world));
            let mut world = copy.or_else(|| last.take()).unwrap_or_else(replay);
            story.happen(&mut world, &event);
            reach(story, world, &events, Some(event), &mut known, &mut queue)?;
        }
    }
    Ok(known.len())
}

/// Digests of states.
type Known = HashSet<u64, BuildHasherDefault<Digest>>;

struct State<S: Story> {
    /// Those that led to it, and those that can happen next.
    events: Vec<S::Event>,
    possible: Vec<S::Event>,
    /// `None` if it cannot be copied.
    world: Option<S::World>,
}

/// Checks a state and queues it, unless it is known. `before` and `last` are the events that led to it.
fn reach<S: Story>(
    story: &S,
    world: S::World,
    before: &[S::Event],
    last: Option<S::Event>,
    known: &mut Known,
    queue: &mut VecDeque<State<S>>,
) -> Result<(), String> {
    if !known.insert(story.digest(&world)) {
        return Ok(());
    }
    let events: Vec<_> = before.iter().cloned().chain(last).collect();
    let (possible, copy) = (story.possible(&world), story.copy(&world));
    if let Some(broken) = story.broken(world) {
        let steps: Vec<_> = events.iter().map(|event| format!("  {event:?}")).collect();
        return Err(format!("{broken} after\n{}", steps.join("\n")));
    }
    queue.push_back(State { events, possible, world: copy });
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
