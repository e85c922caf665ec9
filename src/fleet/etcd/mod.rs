//! A client of etcd: keys with their revisions, watches, and leases.
//!
//! A [`Session`] is one connection to one server. It ends with its first failure; its owner opens another one, after a
//! pause of [`FollowAttempts`]. So no state of a watch has to outlive a connection: the owner reads the keys again.
//!
//! Not here: the meaning of keys.

mod attempts;
mod backoff;
mod link;
mod proto;
mod session;

pub use attempts::FollowAttempts;
pub use backoff::Backoff;
pub use link::EtcdServers;
pub(in crate::fleet) use link::Sender;
pub use session::{Entry, KeyRange, PutError, Session, Snapshot, Watch};
