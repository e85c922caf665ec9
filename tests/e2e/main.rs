//! Weir as its users meet it: the real binary, real sockets, real traffic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]
// Tests wait in real time, and metrics are whole numbers.
#![allow(clippy::disallowed_methods, clippy::float_cmp)]

mod ops;
mod support;

mod cli;
mod demo;
mod drain;
mod logs;
mod metrics;
mod reload;
mod smoke;
