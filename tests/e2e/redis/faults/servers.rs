//! Faults of the network before a single server.

use std::path::PathBuf;
use std::time::Duration;

use super::Fault;
use crate::redis::REPLICAS;
use crate::support::{Fleet, Link, Redis, Relay};

/// A server behind a relay, and what happens to them.
struct Single {
    _redis: Redis,
    relay: Relay,
    begin: fn(&mut Single),
    end: fn(&mut Single),
    slow_ms: u64,
}

impl Fault for Single {
    fn store(&self) -> String {
        format!("redis = [\"{}\"]", self.relay.url())
    }

    fn begin(&mut self) {
        (self.begin)(self);
    }

    fn end(&mut self) {
        (self.end)(self);
    }
}

fn single(slow_ms: u64, begin: fn(&mut Single), end: fn(&mut Single)) -> Box<dyn Fault> {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    Box::new(Single { _redis: redis, relay, begin, end, slow_ms })
}

/// The fault is over as soon as it has happened.
fn nothing(_: &mut Single) {}

pub(super) fn slow(slow_ms: u64) -> Box<dyn Fault> {
    let begin = |single: &mut Single| single.relay.set(Link::Slow(Duration::from_millis(single.slow_ms)));
    single(slow_ms, begin, |single| single.relay.set(Link::Clear))
}

pub(super) fn silence(slow_ms: u64) -> Box<dyn Fault> {
    single(slow_ms, |single| single.relay.set(Link::Silent), |single| single.relay.set(Link::Clear))
}

pub(super) fn reset(slow_ms: u64) -> Box<dyn Fault> {
    single(slow_ms, |single| single.relay.set(Link::Reset), |single| single.relay.set(Link::Clear))
}

/// A server behind a relay, and a file with its name.
struct Named {
    single: Single,
    hosts: tempfile::TempDir,
}

/// The name is gone, and so are the connections. Neither can be had again before the name is back.
pub(super) fn name_gone(slow_ms: u64) -> Box<dyn Fault> {
    let redis = Redis::start();
    let relay = Relay::to(redis.address());
    let named = Named {
        single: Single { _redis: redis, relay, begin: nothing, end: nothing, slow_ms },
        hosts: tempfile::tempdir().unwrap(),
    };
    named.write("127.0.0.1 redis.test\n");
    Box::new(named)
}

impl Named {
    fn file(&self) -> PathBuf {
        self.hosts.path().join("hosts")
    }

    /// Replaces the file in one step.
    fn write(&self, text: &str) {
        let new = self.hosts.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.file()).unwrap();
    }
}

impl Fault for Named {
    fn store(&self) -> String {
        format!("redis = [\"redis://redis.test:{}\"]", self.single.relay.address().port())
    }

    fn fleet(&self, config: &str) -> Fleet {
        Fleet::with_hosts(REPLICAS, config, &self.file())
    }

    fn begin(&mut self) {
        self.write("127.0.0.1 other.test\n");
        self.single.relay.reset();
    }

    fn end(&mut self) {
        self.write("127.0.0.1 redis.test\n");
    }
}
