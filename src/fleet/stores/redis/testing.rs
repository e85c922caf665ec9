//! A store without a server, for tests.

use std::sync::Arc;
use std::time::Duration;

use super::settings::{StoreSettings, Topology};
use super::store::Store;
use crate::base::telemetry::Metrics;
use crate::base::time::Clock;
use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::driver::{Login, NodeAddress};

impl Store {
    /// A store whose server does not exist.
    pub(super) fn unreachable(on_failure: OnFailure, clock: Clock) -> Arc<Self> {
        let settings = StoreSettings {
            name: "main".into(),
            topology: Topology::Ring(vec![NodeAddress::tcp("redis", 6379)]),
            login: Login::default(),
            tls: None,
            timeout: Duration::from_millis(10),
            prefix: "weir".into(),
            on_failure,
        };
        Self::new(settings, None, clock, &Metrics::new("", "").unwrap())
    }
}
