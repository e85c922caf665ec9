//! The settings of a limiter: its address, and what follows when it fails.
//!
//! `config` builds the settings. A reload compares them with `==`, and keeps a store whose settings are equal.

use std::sync::Arc;
use std::time::Duration;

use crate::engine::store::backend::OnFailure;
use crate::transport::net::tls::StoreTls;

/// A `[store.NAME]` with `service`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterSettings {
    /// The name of the table: 1 to 64 of `A-Z a-z 0-9 _ -`.
    pub name: Arc<str>,
    /// The host of its limiter service: a name in lower case, or an address without brackets.
    pub host: Box<str>,
    /// The port.
    pub port: u16,
    /// TLS; `None` for plain connections.
    pub tls: Option<StoreTls>,
    /// The time after which a call has failed.
    pub timeout: Duration,
    /// What decides while the limiter is down.
    pub on_failure: OnFailure,
}
