//! The destination of a request: its host, its route, and the endpoint that its affinity selects.

pub mod affinity;
pub mod host;
pub mod route;
pub mod upgrades;
