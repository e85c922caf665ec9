//! Charges that replicas tell each other, so that each can decide from its own tables.
//!
//! A replica charges its own table, and adds the charge to a [`Pending`]. Every `interval`, or as soon as a key has used a
//! part of its limit, the pending charges become a batch with the next sequence number. Each peer gets each batch, and
//! charges it to its own table, **below zero if need be**. The debt keeps the long-run rate right: whatever replicas
//! admit before they hear of each other, they pay before they admit more.
//!
//! **Bound.** With a burst of `B`, a rate of `r`, `N` replicas, a delay `d` from a charge to its arrival at all peers, and
//! a load of `l`, the fleet admits at any time at most `min((N - 1) * (B + r * d), l * d)` units more than one Weir would.
//! Algorithms with windows forget debts at the end of a window, so for them this is the bound of each window.
//!
//! **Faults.** (peer, epoch, sequence) identify a batch, so duplicates and another order do no harm. A batch is sent again
//! until the peer has it. Batches older than `isolate_after` are forgotten: a peer that missed them has a gap, and asks
//! one peer for the states of all keys that owe; of two states of a key, the one that has spent more stays. So does a
//! replica that has just started.
//!
//! **Partitions.** Each charge counts once for each of the `N` replicas: here, and at each peer that hears of it. In the
//! place of a peer that has not confirmed a message of the last `isolate_after`, a replica charges its own table once more.
//! So the sum of all tables grows by `N` units with each admitted one, and the fleet admits at most the limit, whichever
//! messages are lost. One deaf peer halves the part of a replica that has all the load.
//!
//! **Bounds of memory.** Pending charges and batches are bounded by keys. Where a bound is met, a sequence number is left
//! out, so that all peers have a gap.
//!
//! Nothing here does I/O or reads a clock. Not here: the tables and what an isolated replica does (gate, by [`Ledger`]), and
//! the connections (grpc).

mod history;
mod link;
pub mod message;
mod parts;
mod peer;
mod pending;
mod recovery;
mod replica;
mod sequences;
mod skew;
mod states;

pub use link::Link;
pub use peer::{PeerId, PeerStatus};
pub use pending::{KEYS_MAX, Pending, PendingCharge, becomes_urgent};
pub use replica::{Ledger, Replica, Taken, Timing};
pub use states::{merge_states, pack_states};

#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;
