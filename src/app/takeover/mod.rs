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
//! | asks whether it may serve | agrees, and cannot resume any more |
//! | accepts | drains, and sends each charge that it still makes |
//!
//! **Whoever fails, one goes on.** Up to the last row the old process has all it needs: if the other ends, errs or takes
//! longer than ten seconds for a step, it accepts again. If the old process ends first, at whatever message, the new one
//! starts: with the state if it has all of it, else from the snapshot on disk; on the given sockets if it has all of them,
//! else on sockets of its own. An old process that is shutting down says so, and the new one waits for its end. So the
//! end of the connection means the end of the old process, which otherwise closes it only after a refusal.
//!
//! **No charge is lost.** A request that the old process has in hand, or that comes on one of its connections, is decided
//! there, by the state as it was given away; the charge is made in the new one as well when it hears of it. What each of
//! the two admits before it knows of the other can exceed a limit once, by no more than was left at that moment, and
//! such a debt is paid before anything passes. Requests in flight (`concurrency`) are counted by each for itself.
//!
//! Not here: what is in the state (`store::snapshot`), and how what runs is finished (`drain`).

mod give;
mod successors;
mod take;
mod wire;

pub(super) use give::{Handover, HandoverProgress, HandoverServer, Offered};
pub(super) use successors::Successors;
pub(super) use take::{InheritedSockets, Predecessor, Previous};
pub(super) use wire::Purpose;
