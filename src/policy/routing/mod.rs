//! Where a request goes: its host, its route, and the endpoint that its affinity selects.

pub mod affinity;
pub mod host;
pub mod route;
pub mod upgrades;
