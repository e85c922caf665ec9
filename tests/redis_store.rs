//! A store as the gate uses it, with real servers that fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]
#![allow(clippy::disallowed_methods, clippy::float_cmp)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss)]

#[allow(dead_code)]
#[path = "e2e/ops.rs"]
mod ops;
#[allow(dead_code, unused_imports)]
#[path = "e2e/support/mod.rs"]
mod support;

#[path = "redis_store/lab.rs"]
mod lab;

#[path = "redis_store/cluster.rs"]
mod cluster;
#[path = "redis_store/failures.rs"]
mod failures;
#[path = "redis_store/generations.rs"]
mod generations;
#[path = "redis_store/logins.rs"]
mod logins;
#[path = "redis_store/reports.rs"]
mod reports;
#[path = "redis_store/ring.rs"]
mod ring;
#[path = "redis_store/sentinel.rs"]
mod sentinel;
