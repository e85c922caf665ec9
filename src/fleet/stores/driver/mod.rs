//! One way to be a store: the driver of stores of all kinds, and the traits by which a kind adds its protocol.
//!
//! The control runtime watches each node (`monitor`), and sends refunds and settlements later (`flush`, `outbox`). A worker
//! asks over connections of its own (`worker`, `link`). A node that fails is left alone until a probe succeeds (`breaker`).
//!
//! Not here: the protocols (`redis`, `service`, `etcd`).

mod settings;

mod breaker;
mod connect;
mod health;
mod link;
mod nodes;

pub(super) mod grpc;
mod outage_log;
pub(super) mod turn;

mod late_refunds;
mod outbox;
mod random;

mod store;

mod flush;
mod monitor;
mod worker;

mod backend;
mod background;

#[cfg(test)]
mod testing;

pub(super) use connect::{CONNECT_MAX, ConnectError, connect};
pub(super) use flush::{BATCH_MAX, BATCH_TIMEOUT};
#[cfg(test)]
pub(super) use flush::{pass, send_parked};
pub use grpc::MESSAGE_BYTES_MAX;
pub(in crate::fleet) use grpc::is_token_refused;
pub use health::Generation;
pub(super) use health::{Health, StoreContext};
pub(super) use link::{Link, Opened, Server};
pub(super) use nodes::{Nodes, View};
#[cfg(test)]
pub(super) use outbox::Outbox;
pub(super) use outbox::{Batch, Report};
pub(super) use random::random_id;
pub use settings::{Login, NodeAddress, Password, RemoteSettings, Servers, Topology};
#[cfg(test)]
pub(super) use store::NextStep;
pub(super) use store::{Ask, Correct, Joined, Kind, Reached, Shared, Watch, Work};
