//! The wait of a request for its limits.
//!
//! Bytes that come of its body meanwhile take capacity too, as they come. Over HTTP/1 none do: the kernel keeps them.
//! Not here: the queues (`engine::gate`).

use std::future::poll_fn;
use std::task::Poll;

use super::context::{NotForwarded, RequestContext};
use super::leaving::{Unless, unless_gone};
use super::replay::GateBody;
use super::service::GateInput;
use crate::base::telemetry::{Outcome, RefusedBy};
use crate::engine::gate::{Pass, Refusal};
use crate::engine::policy::Facts;
use crate::transport::respond::{LocalReply, ProblemKind};

/// The result of a wait.
pub(super) type Waited<'v> = Result<Box<Pass<'v>>, Box<Refusal<'v>>>;

impl<'v> RequestContext<'v> {
    /// Waits for a turn, and records the wait. A request whose body outgrows the capacity for waiting requests is refused.
    pub(super) async fn hold<F: Future<Output = Waited<'v>>>(
        &self,
        held_by: &'v str,
        turn: impl FnOnce() -> F,
        input: &mut GateInput<'_, '_, '_, 'v>,
    ) -> Result<Waited<'v>, NotForwarded<'v>> {
        let GateInput { facts, is_grpc, wire, body, record, .. } = input;
        let turn = unless_gone(turn, wire.as_deref_mut());
        record.outcome = Outcome::Abandoned;
        record.hold_started(held_by);
        self.waited.set(true);
        let decided = self.while_it_fits(turn, facts, body.as_ref()).await.transpose()?;
        record.hold_ended();
        record.outcome = Outcome::Refused(RefusedBy::Other); // until another outcome is set
        decided.ok_or_else(|| self.no_capacity(*is_grpc))
    }

    /// Waits for a turn; `None` if there is no capacity for what comes of the body meanwhile.
    async fn while_it_fits(
        &self,
        mut turn: Unless<'_, 'v, Waited<'v>>,
        facts: &Facts<'_>,
        body: Option<&GateBody<'_>>,
    ) -> Option<Result<Waited<'v>, NotForwarded<'v>>> {
        let unread = || body.map_or(0, GateBody::unread);
        let before = unread(); // counted when it joined the queue
        let mut growth = self.worker.shared.gate.body_growth(&self.config.running.live, facts);
        // What comes on the stream wakes the task.
        poll_fn(|cx| {
            if growth.reach(unread().saturating_sub(before)) {
                turn.as_mut().poll(cx).map(Some)
            } else {
                Poll::Ready(None)
            }
        })
        .await
    }

    /// The answer to a request that there is no capacity to keep waiting.
    pub(super) fn no_capacity(&self, is_grpc: bool) -> NotForwarded<'v> {
        self.count(ProblemKind::ClientBusy);
        let detail = "too many requests wait, or too many bytes of them";
        LocalReply::new(ProblemKind::ClientBusy, detail, is_grpc).into()
    }
}
