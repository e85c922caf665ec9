//! A store as the engine knows it.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::sleep;

use super::background::run;
use super::store::{Driven, Shared};
use super::worker::Worker;
use crate::base::telemetry::StoreMetrics;
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::backend::{
    Backend, Connections, KeyServer, Mirrors, OnFailure, RemoteReceipt, SendPart, Settlement, Unavailable,
};

impl<K: Driven> Backend for Shared<K> {
    fn settings(&self) -> &dyn Any {
        &self.context.settings
    }

    fn name(&self) -> &Arc<str> {
        &self.context.settings.name
    }

    fn on_failure(&self) -> OnFailure {
        self.context.settings.on_failure
    }

    fn timeout(&self) -> Duration {
        self.context.settings.timeout
    }

    fn connect(self: Arc<Self>) -> Rc<dyn Connections> {
        Rc::new(Worker::new(self))
    }

    fn give_back(&self, receipt: RemoteReceipt) {
        if let Some(refund) = self.refund(receipt) {
            self.outbox.give_back(refund, self.context.clock.now());
        }
    }

    fn settle(&self, settlement: Settlement) {
        self.settled(&settlement);
        self.outbox.settle(settlement);
    }

    fn late_refund_at(&self) -> Timestamp {
        self.context.late_refunds.last_at()
    }

    fn server(&self, limit: &str, key: Key) -> Option<KeyServer> {
        let nodes = self.nodes();
        let mut server = nodes.all.get(self.node_of_key(&nodes, limit, key)?)?.server();
        let undecided = || self.undecided(limit, Some(key), self.context.clock.now()).map(Unavailable::Error);
        server.unavailable = server.unavailable.or_else(undecided);
        Some(server)
    }

    fn unavailable(&self, limit: &str) -> Vec<Unavailable> {
        let nodes = self.nodes();
        if nodes.all.is_empty() {
            return vec![Unavailable::Down];
        }
        let undecided = self.undecided(limit, None, self.context.clock.now()).map(Unavailable::Error);
        nodes.all.iter().filter_map(|node| node.server().unavailable).chain(undecided).collect()
    }

    fn set_replicas(&self, replicas: u64) {
        self.context.replicas.store(replicas.max(1), Ordering::Relaxed);
    }

    fn bring_first(&self) {
        self.context.brings_first.store(true, Ordering::Relaxed);
    }

    fn run(self: Arc<Self>, mirrors: Arc<dyn Mirrors>) -> SendPart<'static, ()> {
        Box::pin(run(self, mirrors))
    }

    fn flushed(&self) -> SendPart<'_, ()> {
        Box::pin(async {
            self.end();
            while self.outbox.len() > self.outbox.parked() || !self.is_settled() {
                sleep(Duration::from_millis(1)).await;
            }
        })
    }

    fn labels(&self) -> Vec<String> {
        self.nodes().all.iter().map(|node| node.label.to_string()).chain(self.seeds()).collect()
    }

    fn has_node(&self, label: &str) -> bool {
        self.nodes().all.iter().any(|node| *node.label == *label)
    }

    fn metrics(&self) -> &StoreMetrics {
        &self.context.metrics
    }
}
