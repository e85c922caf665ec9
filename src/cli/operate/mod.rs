//! `weir keys`, `weir bans` and the like: what operators ask of a running Weir, over the admin API.
//!
//! On a terminal the answer is a table, elsewhere it is the JSON of the API.

mod api_keys;
mod audit;
mod bans;
mod client;
mod config;
mod keys;
mod overrides;
mod plans;
mod tap;
mod top;
mod upstreams;

mod target;

pub(super) use api_keys::{ApiKeysArgs, api_keys};
pub(super) use audit::{AuditArgs, audit};
pub(super) use bans::{BansArgs, bans};
pub(super) use client::{ClientArgs, client};
pub(super) use config::{ConfigArgs, config};
pub(super) use keys::{KeysArgs, keys};
pub(super) use overrides::{OverridesArgs, overrides};
pub(super) use plans::{PlansArgs, plans};
pub(super) use tap::{TapArgs, tap};
pub(super) use target::address_in;
pub(super) use top::{TopArgs, top};
pub(super) use upstreams::{UpstreamsArgs, upstreams};
