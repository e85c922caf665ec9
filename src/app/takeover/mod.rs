//! A takeover: a successor inherits the sockets, the state of the limits and the role of main process from its
//! predecessor.
//!
//! Both processes exchange messages over a Unix socket, `server.takeover`. The steps in their order:
//!
//! | Successor (`take`) | Predecessor (`give`) |
//! |---|---|
//! | sends `Hello` | sends `Hello`, the listening sockets and the fetched keys |
//! | binds the missing sockets, and builds everything else | serves as before |
//! | sends `Prepared` | pauses accepting, records deltas, and sends the state of all limits |
//! | sends `Taken` after the state | names the successor to the service manager as the main process |
//! | sends `Serving` | sends `Committed`; it cannot resume after that |
//! | accepts connections | drains, and sends each charge that it still makes |
//!
//! **One process continues after any failure.** Up to `Committed` the predecessor can resume. It does so if the
//! successor ends, sends an error, or takes longer than ten seconds for a step. If the predecessor ends first, at any
//! message, the successor starts. It uses the sockets and the state that it has received in full, and else binds its
//! own sockets and reads the snapshot on disk. A predecessor that is shutting down says so, and the successor waits for
//! its end. So the end of the connection means the end of the predecessor, unless a refusal came before.
//!
//! **No charge is lost.** The predecessor decides the requests on its own connections, by its own state. It sends each
//! charge as a delta, and the successor charges it too. Until a delta arrives, the two processes can exceed a limit
//! together, once, by at most the units that remained at the handover. The debt is paid before more requests pass. Each
//! process counts requests in flight (`concurrency`) by itself.
//!
//! Not here: the contents of the state (`store::snapshot`), and the end of running requests (`drain`).

mod give;
mod successors;
mod take;
mod wire;

pub(super) use give::{Handover, HandoverProgress, Offered};
pub(super) use successors::Successors;
pub(super) use take::{InheritedSockets, Predecessor, Previous};
pub(super) use wire::Purpose;
