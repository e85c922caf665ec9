//! Weir as its users meet it: the real binary, real sockets, real traffic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]
// Tests measure what Weir does from outside, and read whole numbers from its metrics.
#![allow(clippy::disallowed_methods, clippy::float_cmp)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

mod ops;
mod support;

mod cli;
mod demo;

mod forward;
mod forwarded;
mod streaming;

mod balance;
mod behind_h2;
mod names;
mod ntlm;
mod outages;
mod paths;
mod pool;
mod queue;
mod routes;
mod sealed;

mod beyond;
mod bounds;
mod cuts;
mod failures;
mod fleet;
mod fleet_secret;
mod grpc;
mod h2;
mod hold;

mod access;
mod identity;
mod limits;
mod pairs;

mod answers;
mod attacks;

mod admin;
mod api;
mod asking;
mod drain;
mod explain;
mod jwks;
mod logs;
mod metrics;
mod overrides;
mod proxied;
mod recipes;
mod redis;
mod reliability;
mod reload;
mod settle;
mod snapshot;
mod systemd;
mod takeover;

mod tls;
mod unix;
mod upgrades;
