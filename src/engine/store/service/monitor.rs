//! Watches the limiter on the control runtime: probes that close its breaker, and the states that a new process gets.

use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tokio::select;
use tokio::time::{sleep, timeout};

use super::JOIN;
use super::flush::{flush, send_parked};
use super::limiter::Limiter;
use super::node::Node;
use super::proto::{JoinRequest, JoinResponse, KeyState};
use crate::engine::store::backend::grpc::{CallError, Caller};
use crate::engine::store::backend::{ConnectError, Link, Mirrors, Server as _};

/// The pause between looks at a limiter that works, so that a failure is known without requests.
const CHECK_PAUSE: Duration = Duration::from_secs(1);

/// The pause between looks at a limiter whose callers bring what they know.
const WARM_PAUSE: Duration = Duration::from_millis(50);

/// The time for a probe, which must be short enough for a recovery within 2 s.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// The time for one step with a limiter that does not decide yet.
const STEP_MAX: Duration = Duration::from_secs(1);

/// Bytes of states in one message, about.
const STATE_BYTES: usize = 64 * 1024;

impl Limiter {
    /// Does the work of the store besides decisions, until dropped. To be run once.
    pub async fn run(self: Arc<Self>, mirrors: Arc<dyn Mirrors>) {
        let background = Background { store: &self };
        background.store.background.store(Some(Arc::new(Link::new(Arc::clone(&self.node)))));
        tokio::join!(monitor(&self, &*mirrors), flush(&self));
    }
}

/// The connection of the control runtime, which is closed on drop.
struct Background<'s> {
    store: &'s Limiter,
}

impl Drop for Background<'_> {
    fn drop(&mut self) {
        self.store.background.store(None);
    }
}

/// Watches the limiter until dropped.
async fn monitor(store: &Arc<Limiter>, mirrors: &dyn Mirrors) {
    let node = &store.node;
    loop {
        if let Some(at) = node.probe_at() {
            let probed = async { timeout(PROBE_MAX, probe(store)).await? };
            node.probe(at, probed).await;
            store.outbox.unpark();
        } else if node.process().is_none() {
            if let Err(error) = warm(store, mirrors).await {
                node.unreachable(&error);
            }
            store.outbox.unpark();
        } else {
            // An open breaker ends the look, whose timeout may be long: the next probe is due.
            select! {
                () = node.trouble() => {}
                () = async { sleep(CHECK_PAUSE).await; check(store).await } => {}
            }
        }
    }
}

async fn join(node: &Node, caller: &Caller, limit: Duration) -> Result<JoinResponse, CallError> {
    caller.call_within(limit, JOIN, &node.joining()).await
}

/// Whether the limiter answers in time. What is parked for it is sent before the breaker closes.
async fn probe(store: &Limiter) -> Result<(), ConnectError> {
    let node = &store.node;
    let probed = node.open().await?.during(async |caller| -> Result<(), ConnectError> {
        let joined = join(node, caller, store.context.timeout).await?;
        match node.process() {
            Some(process) if process == joined.process => {
                // What is late is sent while the limiter decides.
                let _ = timeout(STEP_MAX, send_parked(store, caller, process)).await;
            }
            Some(process) => node.is_cold(process),
            None => {}
        }
        Ok(())
    });
    probed.await
}

/// Looks whether the limiter works, and is the same process.
async fn check(store: &Limiter) {
    let node = &store.node;
    let caller = store.background.load().as_ref().and_then(|link| link.connection());
    let (Some(caller), Some(process)) = (caller, node.process()) else { return };
    match join(node, &caller, store.context.timeout * 3).await {
        Ok(joined) if joined.process == process => node.succeeded(),
        Ok(_) => node.is_cold(process),
        Err(error) => node.failed(error.failure, &error.text),
    }
}

/// Brings what this replica knows to a new process of the limiter, and waits until it decides.
async fn warm(store: &Limiter, mirrors: &dyn Mirrors) -> Result<(), ConnectError> {
    let node = &store.node;
    let warmed = node.open().await?.during(async |caller| -> Result<(), ConnectError> {
        let mut brought = None;
        loop {
            let JoinResponse { process, is_ready } = join(node, caller, STEP_MAX).await?;
            if process == node.last_process() || (is_ready && brought == Some(process)) {
                let _ = timeout(STEP_MAX, send_parked(store, caller, process)).await;
                node.warmed(process);
                return Ok(());
            }
            if brought == Some(process) {
                sleep(WARM_PAUSE).await;
                continue;
            }
            if node.last_process() != 0 {
                node.lost_keys();
            }
            bring(store, caller, mirrors).await?;
            brought = Some(process);
        }
    });
    warmed.await
}

/// Tells the limiter the states that this replica knows.
async fn bring(store: &Limiter, caller: &Caller, mirrors: &dyn Mirrors) -> Result<(), CallError> {
    let (mut part, mut has_more) = (0, true);
    let mut states: Vec<KeyState> = Vec::new();
    while has_more {
        has_more = mirrors.visit(&store.context.name, part, &mut |mirror| {
            states.push(KeyState {
                limit: mirror.limit.into(),
                key: Some(mirror.key.into()),
                rule: mirror.rule.digest(),
                numbers: mirror.state.export(mirror.rule, store.context.clock.now()).concat(),
            });
        });
        part += 1;
        while !states.is_empty() {
            let mut bytes = 0;
            let fits = |state: &&KeyState| {
                bytes += state.encoded_len();
                bytes <= STATE_BYTES
            };
            let rest = states.split_off(states.iter().take_while(fits).count().max(1));
            let some = std::mem::replace(&mut states, rest);
            send_states(store, caller, some, false).await?;
        }
    }
    send_states(store, caller, Vec::new(), true).await
}

async fn send_states(
    store: &Limiter,
    caller: &Caller,
    states: Vec<KeyState>,
    is_complete: bool,
) -> Result<(), CallError> {
    let question = JoinRequest { states, is_complete, ..store.node.joining() };
    caller.call_within::<JoinResponse>(STEP_MAX, JOIN, &question).await.map(drop)
}
