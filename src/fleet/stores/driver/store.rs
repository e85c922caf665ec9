//! One store, as all workers share it, and what its kind adds to the driver.
//!
//! Not here: what the driver does with it (`monitor`, `flush`, `worker`, `background`).

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::connect::ConnectError;
use super::health::{Generation, StoreContext};
use super::link::{Link, Server};
use super::nodes::{Nodes, View};
use super::outbox::{Outbox, Report};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::store::backend::{Answers, Failure, Mirrors, RemoteCharge, RemoteReceipt, Settlement, Unavailable};

/// A kind of store: where its keys are. The value is what a store of the kind has besides the driver.
pub(in crate::fleet::stores) trait Kind: Sized + Send + Sync + 'static {
    /// A server, or several ones that are as good as one.
    type Node: Server;
    /// What tells which node has a key.
    type Map: Send + Sync;
    /// The proof of a charge that is given back.
    type Refund: Send + Sync;
    /// What one worker knows.
    type Session: Default;

    /// The index of the node that has a key.
    fn node_of_key(&self, _: &NodesOf<Self>, _limit: &str, _: Key) -> Option<usize> {
        Some(0)
    }

    /// The index of the node that a report goes to.
    fn node_of_report(&self, _: &NodesOf<Self>, _: &ReportOf<Self>) -> Option<usize> {
        Some(0)
    }

    /// The index of the node that decides a charge of a request, and a number. Charges with equal ones are one call.
    fn call_of(&self, _: &NodesOf<Self>, _: &RemoteCharge<'_>, _position: usize) -> (Option<usize>, usize) {
        (Some(0), 0)
    }

    /// The labels that servers of the settings may have in metrics before they are known as nodes.
    fn seeds(&self) -> Vec<String> {
        Vec::new()
    }

    /// What is given back for `receipt`; `None` if another kind of store made it.
    fn refund(&self, receipt: RemoteReceipt) -> Option<Self::Refund>;

    /// Why nodes that are up do not decide `key` of a limit or, without a key, some key of it; `None` if they decide.
    fn undecided(&self, _limit: &str, _: Option<Key>, _now: Timestamp) -> Option<Failure> {
        None
    }

    /// Notes a settlement that was queued.
    fn settled(&self, _: &Settlement) {}

    /// A node is no node of the store any more.
    fn forget(_: &Shared<Self>, _: &Self::Node) {}

    /// Holds nothing back any more, because the store ends.
    fn end(&self) {}

    /// Whether nodes that decide know of everything but reports.
    fn is_settled(&self) -> bool {
        true
    }
}

/// How a worker asks a node.
pub(in crate::fleet::stores) trait Ask: Kind {
    /// Asks a node about charges until `deadline`. What it charges after that is given back, also if the future is dropped.
    fn ask(
        store: &Arc<Shared<Self>>,
        view: &ViewOf<Self>,
        link: &Arc<Link<Self::Node>>,
        session: &Self::Session,
        charges: &[RemoteCharge<'_>],
        deadline: Instant,
    ) -> impl Future<Output = Result<Answers, Unavailable>>;
}

/// How the control runtime watches a node.
pub(in crate::fleet::stores) trait Watch: Kind {
    /// The time for a probe, and for one step with a node that does not decide yet. A probe must be short enough for a
    /// recovery within 2 s.
    const STEP_MAX: Duration = Duration::from_secs(1);

    /// The time for the answer to a look; `None` if it follows from that for calls.
    const LOOK_MAX: Option<Duration> = None;

    /// The calls of a look, one after another. A probe gives each the time for a call.
    const LOOK_CALLS: u32 = 1;

    /// Prepares a node that is about to decide again.
    fn prepare(_: &mut Reached<'_, Self>) -> impl Answer<()> {
        std::future::ready(Ok(()))
    }

    /// The number of the generation that a node has; `None` if it has lost the one that is known.
    fn look(_: &mut Reached<'_, Self>) -> impl Answer<Option<u64>>;

    /// Joins the generation of a node. This replica has brought its states to that of the number `brought`.
    fn join(_: &mut Reached<'_, Self>, brought: Option<u64>) -> impl Answer<Joined>;

    /// Lets units that are in flight count for longer, before a node decides again and after it got all reports.
    /// `has_brought` says whether it got them by [`Watch::bring`] before these.
    fn renew(_: &mut Reached<'_, Self>, _has_brought: bool) -> impl Answer<()> {
        std::future::ready(Ok(()))
    }

    /// Brings a node what this replica knows of its keys.
    fn bring(_: &mut Reached<'_, Self>, _: &dyn Mirrors) -> impl Answer<()> {
        std::future::ready(Ok(()))
    }
}

/// How reports are sent to a node.
pub(in crate::fleet::stores) trait Correct: Kind {
    /// Sends what is without an answer, and then `reports`, which are taken when nothing else is sent. Counts failures.
    /// Returns whether everything was answered. Otherwise it is kept; nothing is lost if the future is dropped.
    fn send(
        _: &mut Reached<'_, Self>,
        generation: u64,
        reports: impl FnOnce() -> Vec<ReportOf<Self>> + Send,
    ) -> impl Future<Output = bool> + Send;
}

/// What stores of a kind do besides.
pub(in crate::fleet::stores) trait Work: Kind {
    /// Does work on the control runtime, until dropped.
    fn work(_: &Arc<Shared<Self>>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}

/// All parts of a kind of store.
pub(in crate::fleet::stores) trait Driven: Ask + Watch + Correct + Work {}

impl<K: Ask + Watch + Correct + Work> Driven for K {}

/// A node of a store, over a connection of the control runtime.
pub(in crate::fleet::stores) struct Reached<'r, K: Kind> {
    pub(in crate::fleet::stores) store: &'r Arc<Shared<K>>,
    pub(in crate::fleet::stores) node: &'r Arc<K::Node>,
    pub(in crate::fleet::stores) connection: &'r mut Connection<K>,
}

/// The future of a call on the control runtime.
pub(in crate::fleet::stores) trait Answer<T>:
    Future<Output = Result<T, ConnectError>> + Send
{
}

impl<T, F: Future<Output = Result<T, ConnectError>> + Send> Answer<T> for F {}

/// The generation of a node that this replica joins.
pub(in crate::fleet::stores) struct Joined {
    pub(in crate::fleet::stores) generation: Generation,
    /// Whether the node can decide at once: its keys are those that this replica knows, or old ones.
    pub(in crate::fleet::stores) is_known: bool,
    /// Whether the node can decide once this replica has brought its states.
    pub(in crate::fleet::stores) is_ready: bool,
}

/// What a replica does next about a node whose generation it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fleet::stores) enum NextStep {
    /// It lets the node decide.
    Decide,
    /// It brings what it knows of the keys.
    Bring,
    /// It waits for other replicas.
    Wait,
}

impl Joined {
    /// What follows if this replica has brought what it knows to the generation of the number `brought`.
    pub(in crate::fleet::stores) fn next(&self, brought: Option<u64>) -> NextStep {
        let has_brought = brought == Some(self.generation.number);
        match (self.is_known || has_brought && self.is_ready, has_brought) {
            (true, _) => NextStep::Decide,
            (false, true) => NextStep::Wait,
            (false, false) => NextStep::Bring,
        }
    }
}

/// The nodes of a store of a kind.
pub(in crate::fleet::stores) type NodesOf<K> = Nodes<<K as Kind>::Node, <K as Kind>::Map>;
/// A view of a store of a kind.
pub(in crate::fleet::stores) type ViewOf<K> = View<<K as Kind>::Node, <K as Kind>::Map>;
/// A report for a store of a kind.
pub(in crate::fleet::stores) type ReportOf<K> = Report<<K as Kind>::Refund>;
/// A connection to a node of a kind.
pub(in crate::fleet::stores) type Connection<K> = <<K as Kind>::Node as Server>::Connection;

/// One `[store.NAME]`.
pub(in crate::fleet::stores) struct Shared<K: Kind> {
    pub(in crate::fleet::stores) context: Arc<StoreContext>,
    nodes: ArcSwap<NodesOf<K>>,
    /// The connections of the control runtime; `None` until it runs.
    pub(in crate::fleet::stores) background: ArcSwapOption<ViewOf<K>>,
    pub(in crate::fleet::stores) outbox: Outbox<K::Refund>,
    /// Notified when the nodes should be looked for again.
    pub(in crate::fleet::stores) lost: Notify,
    /// Notified when the nodes have changed.
    pub(in crate::fleet::stores) found: Notify,
    kind: K,
}

impl<K: Kind> Shared<K> {
    /// A store with these nodes at first.
    pub(in crate::fleet::stores) fn of_kind(kind: K, context: Arc<StoreContext>, nodes: NodesOf<K>) -> Arc<Self> {
        Arc::new(Self {
            nodes: ArcSwap::from_pointee(nodes),
            background: ArcSwapOption::empty(),
            outbox: Outbox::new(context.metrics.dropped.clone()),
            context,
            lost: Notify::new(),
            found: Notify::new(),
            kind,
        })
    }

    /// The nodes in force.
    pub(in crate::fleet::stores) fn nodes(&self) -> Arc<NodesOf<K>> {
        self.nodes.load_full()
    }

    /// Puts other nodes into force.
    pub(in crate::fleet::stores) fn replace_nodes(&self, nodes: NodesOf<K>) {
        self.nodes.store(Arc::new(nodes));
        self.found.notify_one();
    }

    /// The first node with the connection of the control runtime, if it decides.
    pub(in crate::fleet::stores) fn first(&self) -> Option<(Arc<K::Node>, Connection<K>)> {
        let view = self.background.load_full()?;
        let link = view.links.first().filter(|link| link.node.decides())?;
        Some((Arc::clone(&link.node), link.connection()?))
    }
}

impl<K: Kind> Deref for Shared<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.kind
    }
}

impl<K: Kind> fmt::Debug for Shared<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.context.settings).finish_non_exhaustive()
    }
}
