//! The scripts of Redis, run by a real server, against the arithmetic of `limit`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test that cannot go on panics
#![allow(unreachable_pub)] // nothing is reachable from outside a test

#[path = "redis_script/model.rs"]
mod model;
#[path = "e2e/support/programs.rs"]
mod programs;
#[path = "redis_script/properties.rs"]
mod properties;
#[path = "redis_script/random.rs"]
mod random;
#[path = "redis_script/receipts.rs"]
mod receipts;
#[path = "redis_script/rows.rs"]
mod rows;
#[path = "redis_script/server.rs"]
mod server;
