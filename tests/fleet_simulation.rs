//! Fleets in virtual time: `stream`, `lease` and `split` through faults, by the code that Weir runs.
//!
//! A seed decides everything, so a failure repeats with it: `WEIR_SEED=17 cargo test --test fleet_simulation`. More seeds:
//! `WEIR_SEEDS=10000 cargo test --release --test fleet_simulation seeds`. Figures of large fleets:
//! `WEIR_TABLES=full cargo test --release --test fleet_simulation tables -- --nocapture`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, unreachable_pub)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

#[path = "fleet_simulation/random.rs"]
mod random;
#[path = "fleet_simulation/world.rs"]
mod world;

#[path = "fleet_simulation/leases.rs"]
mod leases;
#[path = "fleet_simulation/split.rs"]
mod split;
#[path = "fleet_simulation/streams.rs"]
mod streams;

#[path = "fleet_simulation/exact.rs"]
mod exact;
#[path = "fleet_simulation/partitions.rs"]
mod partitions;
#[path = "fleet_simulation/seeds.rs"]
mod seeds;
#[path = "fleet_simulation/tables.rs"]
mod tables;
