//! Connections to one endpoint, and the bounds on their number.

pub(crate) mod ceiling;
pub(crate) mod checkout;
pub(crate) mod connection;
pub(crate) mod endpoint_pool;
mod fair_use;
pub(crate) mod permit;
pub(crate) mod pin;
pub(crate) mod pinned;
pub(crate) mod queue;
pub(crate) mod stream;
pub(crate) mod streams;
pub(crate) mod usage;
