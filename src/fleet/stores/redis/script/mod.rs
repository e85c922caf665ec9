//! The scripts that servers run, their arguments, and their replies.
//!
//! A script decides by the arithmetic of `limit`, in integers below 2^53, by the clock of its server. Not here: connections,
//! timeouts, and what follows an error.

mod call;
mod names;

mod correct;
mod decide;

pub use call::{Call, Caller, Script, all};
pub use correct::{Change, Correction, InFlight, KnownState, Noting, correct, in_flight, push, released, renew};
pub use decide::{decide, decided};
pub use names::{Names, key_of};
