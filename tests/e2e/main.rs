//! Weir as its users meet it: the real binary, real sockets, real traffic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]
#![allow(dead_code, unused_imports, clippy::float_cmp)] // metrics are whole numbers
#![allow(clippy::disallowed_methods)] // real time: nothing here goes by a clock of its own
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

mod support;

mod attacks;
mod smoke;
