//! The ground: time, header fields, metrics and logs, and small functions that all other storeys use.
//!
//! Not here: anything that knows of limits or of sockets.

pub mod digits;
pub(crate) mod opaque;
pub mod split_mix;
pub(crate) mod sync;
pub mod visible;

pub mod time;

pub(crate) mod attempts;

pub mod cpu;

pub mod fields;
pub mod telemetry;
