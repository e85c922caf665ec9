//! The connections of one worker to the stores of limits.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::spawn_local;

use super::ask::Decider;
use super::lease::Refill;
use crate::store::redis::{Answers, RemoteCharge, Store, WorkerStore};

/// The stores of a worker, each with its connections.
#[derive(Debug, Default)]
pub struct WorkerStores {
    known: RefCell<Vec<(Arc<Store>, Rc<WorkerStore>)>>,
}

impl WorkerStores {
    /// Connects to `stores`, and closes the connections to all others once their calls have ended.
    pub fn follow(&self, stores: &[Arc<Store>]) {
        self.known.borrow_mut().retain(|(known, _)| stores.iter().any(|store| Arc::ptr_eq(store, known)));
        for store in stores {
            self.worker_store(store);
        }
    }

    fn worker_store(&self, store: &Arc<Store>) -> Rc<WorkerStore> {
        let mut known = self.known.borrow_mut();
        if let Some((_, found)) = known.iter().find(|(known, _)| Arc::ptr_eq(store, known)) {
            return Rc::clone(found);
        }
        let new = Rc::new(WorkerStore::new(Arc::clone(store)));
        known.push((Arc::clone(store), Rc::clone(&new)));
        new
    }
}

impl Decider for WorkerStores {
    async fn decide(&self, store: &Arc<Store>, charges: &[RemoteCharge<'_>]) -> Answers {
        self.worker_store(store).decide(charges).await
    }

    fn refill(&self, refill: Refill) {
        let store = self.worker_store(refill.store());
        spawn_local(async move {
            let answers = store.decide(&[refill.charge()]).await;
            refill.complete(answers);
        });
    }
}
