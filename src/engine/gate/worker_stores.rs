//! The connections of one worker to the stores of limits.

use std::cell::RefCell;
use std::rc::Rc;

use tokio::task::spawn_local;

use super::ask::Decider;
use super::lease::Refill;
use crate::engine::store::RemoteStore;
use crate::engine::store::backend::{Answers, RemoteCharge};
use crate::engine::store::etcd::WorkerEtcd;
use crate::engine::store::redis::WorkerStore;
use crate::engine::store::service::WorkerLimiter;

/// The stores of a worker, each with its connections.
#[derive(Debug, Default)]
pub struct WorkerStores {
    known: RefCell<Vec<(RemoteStore, Connected)>>,
}

/// The connections of a worker to one store.
#[derive(Clone, Debug)]
enum Connected {
    Redis(Rc<WorkerStore>),
    Service(Rc<WorkerLimiter>),
    Etcd(Rc<WorkerEtcd>),
}

impl WorkerStores {
    /// Connects to `stores`, and closes the connections to all others once their calls have ended.
    pub fn follow(&self, stores: &[RemoteStore]) {
        self.known.borrow_mut().retain(|(known, _)| stores.iter().any(|store| store.is(known)));
        for store in stores {
            self.connected(store);
        }
    }

    fn connected(&self, store: &RemoteStore) -> Connected {
        let mut known = self.known.borrow_mut();
        if let Some((_, found)) = known.iter().find(|(known, _)| known.is(store)) {
            return found.clone();
        }
        let new = Connected::new(store);
        known.push((store.clone(), new.clone()));
        new
    }
}

impl Connected {
    fn new(store: &RemoteStore) -> Self {
        match store {
            RemoteStore::Redis(store) => Self::Redis(Rc::new(WorkerStore::new(store.clone()))),
            RemoteStore::Service(store) => Self::Service(Rc::new(WorkerLimiter::new(store.clone()))),
            RemoteStore::Etcd(store) => Self::Etcd(Rc::new(WorkerEtcd::new(store.clone()))),
        }
    }

    async fn decide(&self, charges: &[RemoteCharge<'_>]) -> Answers {
        match self {
            Self::Redis(store) => store.decide(charges).await,
            Self::Service(store) => store.decide(charges).await,
            Self::Etcd(store) => store.decide(charges).await,
        }
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
