//! The connections of one worker to the stores of limits.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::task::spawn_local;

use super::ask::Decider;
use super::lease::Refill;
use crate::engine::store::RemoteStore;
use crate::engine::store::backend::{Answers, Connections, RemoteCharge};

/// The stores of a worker, each with its connections.
#[derive(Debug, Default)]
pub struct WorkerStores {
    known: RefCell<Vec<(RemoteStore, Rc<dyn Connections>)>>,
}

impl WorkerStores {
    /// Connects to `stores`, and closes the connections to all others once their calls have ended.
    pub fn follow(&self, stores: &[RemoteStore]) {
        self.known.borrow_mut().retain(|(known, _)| stores.iter().any(|store| store.is(known)));
        for store in stores {
            self.connected(store);
        }
    }

    fn connected(&self, store: &RemoteStore) -> Rc<dyn Connections> {
        let mut known = self.known.borrow_mut();
        if let Some((_, found)) = known.iter().find(|(known, _)| known.is(store)) {
            return Rc::clone(found);
        }
        let new = store.connect();
        known.push((store.clone(), Rc::clone(&new)));
        new
    }
}

impl Decider for WorkerStores {
    async fn decide(&self, store: &RemoteStore, charges: &[RemoteCharge<'_>]) -> Answers {
        self.connected(store).decide(charges).await
    }

    fn refill(&self, refill: Refill) {
        let store = self.connected(refill.store());
        spawn_local(async move {
            let answers = store.decide(&[refill.charge()]).await;
            refill.complete(answers);
        });
    }
}
