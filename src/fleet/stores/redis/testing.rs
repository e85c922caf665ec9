//! A store without a server, for tests.

use std::sync::Arc;
use std::time::Duration;

use super::store::Store;
use crate::base::time::Clock;
use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::driver::{Login, NodeAddress, StoreContext, Topology};

impl Store {
    /// A store whose server does not exist.
    pub(super) fn unreachable(on_failure: OnFailure, clock: Clock) -> Arc<Self> {
        let topology = Topology::Ring(vec![NodeAddress::tcp("redis", 6379)]);
        let context = StoreContext::of_test(on_failure, Duration::from_millis(10), clock);
        Self::new(context, None, topology, &Login::default(), "weir")
    }
}
