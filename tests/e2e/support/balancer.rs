//! Clients behind a balancer: each request goes to the next Weir that is in service.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use super::fleet::{Asker, sorted};
use super::{Samples, SetOnDrop, Weir, poll};

/// The Weirs in service.
#[derive(Default)]
pub struct Balancer {
    in_service: RwLock<Vec<SocketAddr>>,
    turn: AtomicUsize,
    /// Answers of 200.
    passed: AtomicUsize,
    answered: AtomicUsize,
}

impl Balancer {
    /// A balancer with these Weirs.
    pub fn of<'w>(weirs: impl IntoIterator<Item = &'w Weir>) -> Self {
        let balancer = Self::default();
        weirs.into_iter().for_each(|weir| balancer.add(weir.address()));
        balancer
    }

    /// Puts a Weir in service.
    pub fn add(&self, weir: SocketAddr) {
        self.in_service.write().unwrap().push(weir);
    }

    /// Takes a Weir out of service. All requests to it have been answered when this returns.
    pub fn remove(&self, weir: SocketAddr) {
        self.in_service.write().unwrap().retain(|address| *address != weir);
    }

    /// Waits for so many more answers, and for so many more that passed.
    pub fn wait_for(&self, answers: usize, passes: usize) {
        let before = (self.answered.load(Ordering::Relaxed), self.passed.load(Ordering::Relaxed));
        poll(|| {
            let is_answered = self.answered.load(Ordering::Relaxed) >= before.0 + answers;
            (is_answered && self.passed.load(Ordering::Relaxed) >= before.1 + passes).then_some(())
        });
    }

    /// Lets so many clients ask while `during` runs, each at most once per `pace`. Returns the results, and the time from
    /// before the first request until after the last one.
    pub fn during(&self, clients: usize, pace: Duration, target: &str, during: impl FnOnce()) -> (Samples, Duration) {
        let (is_over, all, began) = (AtomicBool::new(false), Mutex::default(), Instant::now());
        thread::scope(|scope| {
            for _ in 0..clients {
                let (is_over, all) = (&is_over, &all);
                scope.spawn(move || {
                    let mut asker = Asker::default();
                    while !is_over.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        self.ask(&mut asker, target);
                        thread::sleep(pace.saturating_sub(began.elapsed()));
                    }
                    asker.give(all);
                });
            }
            // Also if it panics, so that there is an end.
            let _over = SetOnDrop(&is_over);
            during();
        });
        (sorted(all), began.elapsed())
    }

    fn ask(&self, asker: &mut Asker, target: &str) {
        // Held until the answer, see `remove`.
        let in_service = self.in_service.read().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let address = in_service[turn % in_service.len()];
        let has_passed = asker.ask_again(address, target).status == Ok(200);
        drop(in_service);
        self.answered.fetch_add(1, Ordering::Relaxed);
        self.passed.fetch_add(usize::from(has_passed), Ordering::Relaxed);
    }
}
