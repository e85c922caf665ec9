//! One process takes over from another: its sockets, the state of its limits, its place with the service manager.
//!
//! They speak over a Unix socket, `server.takeover`. In this order:
//!
//! | The new one (`take`) | The old one (`give`) |
//! |---|---|
//! | says hello | says hello, and gives handles of all listening sockets, and fetched keys |
//! | binds what is missing, builds all there is to build | serves as ever |
//! | says that it is prepared | begins no more connections, notes what is charged, sends the state of all limits |
//! | has read the state | names it to the service manager as the main process |
//! | accepts | drains, and tells of each charge that it still makes |
//!
//! **Whoever fails, one goes on.** Up to the last row the old process has all it needs: if the other ends, errs or takes
//! longer than ten seconds for a step, it accepts again. If the old process ends before the new one has the state, the
//! new one begins from the snapshot on disk, with the sockets; if after that, with the state too. No socket is closed in
//! between, so that whoever connects meanwhile waits in the kernel's queue.
//!
//! **No charge is lost.** A request that the old process has in hand, or that comes on one of its connections, is decided
//! there, by the state as it was given away; the charge is made in the new one as well when it hears of it. What each of
//! the two admits before it knows of the other can exceed a limit once, by no more than was left at that moment, and
//! such a debt is paid before anything passes. Requests in flight (`concurrency`) are counted by each for itself.
//!
//! Not here: what is in the state (`store::snapshot`), and how what runs is finished (`drain`).

mod again;
mod give;
mod take;
mod wire;

pub(super) use again::Successors;
pub(super) use give::{Estate, Giver, Handed, Offered};
pub(super) use take::{Given, Predecessor};
pub(super) use wire::Purpose;
