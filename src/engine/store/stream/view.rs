//! What operators see of a fleet.

use std::fmt;

use super::PeerStatus;

/// A source of [`FleetView`].
pub trait FleetStatus: fmt::Debug + Send + Sync {
    /// The fleet now.
    fn view(&self) -> FleetView;
}

/// The fleet as one replica sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetView {
    /// The address at which others reach this replica, if it is known.
    pub address: Option<Box<str>>,
    /// The process, by the instant of its start in unix nanoseconds.
    pub epoch: u64,
    /// The replicas, this one included.
    pub replicas: u64,
    /// Whether this replica keeps to its share, because another one does not hear it.
    pub is_isolated: bool,
    /// Whether states of another replica are on the way.
    pub is_recovering: bool,
    /// All others, connected ones first.
    pub members: Vec<MemberView>,
}

impl FleetView {
    /// The view of a replica that has no connections to others.
    pub fn alone(replicas: u64, epoch: u64) -> Self {
        Self { address: None, epoch, replicas, is_isolated: false, is_recovering: false, members: Vec::new() }
    }
}

/// Another replica, or an address at which none has answered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberView {
    /// Its address, as far as it is known.
    pub address: Box<str>,
    /// Its process; `None` if none has answered.
    pub epoch: Option<u64>,
    /// What this replica knows of it.
    pub status: Option<PeerStatus>,
    /// Milliseconds since its last message.
    pub silent_ms: Option<u64>,
    /// Milliseconds since the newest message of this replica that it is known to have.
    pub deaf_ms: Option<u64>,
}
