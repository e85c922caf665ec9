//! The connections between replicas, on which they stream their charges to each other.
//!
//! Reading order: `members` and `registry` (which addresses there are), `dial` and `listen` (a connection to each),
//! `handshake` (the proof of the other end), `hub` (all connections meet at the replica), `messages` (in both directions),
//! `run` (the tasks).
//!
//! All of it runs on the control runtime. Not here: what replicas tell each other, and when (`store::stream`).

pub mod settings;

mod members;
mod registry;

mod handshake;
mod hub;
mod published;
mod roster;

mod dial;
mod listen;
mod messages;

mod run;
mod status;

pub use hub::{FleetParts, Hub};
pub use listen::connections_max;
pub use run::{accept, flush, run, unregister};
pub use status::{FleetView, MemberView};

#[cfg(test)]
mod tests;
