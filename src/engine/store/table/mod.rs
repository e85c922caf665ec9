//! The states of one limit's keys: in maps, and past the bound in sketches or shared buckets.

mod adopt_rules;
mod dispatch;
mod remote;

mod changes;
mod keys;
mod lost_times;
mod packed;

mod receipt;
mod state;
mod states;

mod shared;
mod sketches;

mod group;
mod map;
mod mirror;
pub(super) mod ranges;
pub(super) mod shards;
mod slot_units;
mod slots;

pub use dispatch::Table;
pub use receipt::Receipt;
pub(super) use receipt::{MirroredCharge, Origin};
pub(super) use remote::scaled;
