//! Names of endpoints: `lookup` asks the DNS once, `resolve` repeats lookups and publishes the addresses.

pub(crate) mod address;
pub(crate) mod lookup;
pub(crate) mod resolve;
