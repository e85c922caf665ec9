//! Weir as its users meet it: the real binary, real sockets, real traffic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]

mod support;

mod attacks;
mod smoke;
