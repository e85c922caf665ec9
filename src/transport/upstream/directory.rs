//! The upstreams in force, as the tasks of the control runtime see and change them.

use std::fmt::Debug;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;

use super::settings::Upstream;
use super::state::UpstreamState;

/// Holds the upstreams in force.
pub(crate) trait Directory: Debug + Send + Sync + 'static {
    /// Notified after each change of the configuration or of an address.
    fn changes(&self) -> watch::Receiver<()>;

    /// The upstreams in force now.
    fn in_force(&self) -> InForce;

    /// Replaces what is known of the endpoints, in the order of the settings, and notifies all receivers of `changes`.
    fn replace_states(&self, states: Vec<UpstreamState>);
}

/// The upstreams of one configuration.
#[derive(Clone, Debug)]
pub(crate) struct InForce {
    pub(crate) settings: Vec<Upstream>,
    /// In the order of the settings.
    pub(crate) states: Vec<UpstreamState>,
    /// The DNS servers to ask; those of the system if there are none.
    pub(crate) name_servers: Arc<[SocketAddr]>,
}
