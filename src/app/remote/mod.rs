//! A configuration from etcd or HTTPS: its newest version, the last good one on disk, and the report of this replica.
//!
//! One task reads versions and offers them. The task that reloads applies or refuses each version, exactly as it does
//! with a changed file, and tells this module the result.

mod address;
mod client;
mod credentials;
mod etcd;
mod feed;
mod last_good;
mod origin;
mod poll;
mod start;
mod version;

pub use address::{ConfigAddress, RemoteAddress};
pub use credentials::{RemoteOptions, TlsFiles};
pub use feed::{ConfigFeed, StartNote};
pub use last_good::StateFile;
pub use start::{FeedOptions, StartError, open, origin};
