//! Answers to requests that access lists, identities and overload refuse.

use super::context::{NotForwarded, RequestContext};
use crate::engine::gate::{Shed, Unkeyed};
use crate::engine::policy::Facts;
use crate::engine::policy::access::{Access, DenialReason};
use crate::transport::respond::{LocalReply, ProblemKind};

impl<'v> RequestContext<'v> {
    /// Whether the access lists exempt its address or its path from all limits.
    pub(super) fn check_arrival_access(
        &self,
        access: &Access,
        facts: &Facts<'_>,
        is_grpc: bool,
    ) -> Result<bool, NotForwarded<'v>> {
        access.on_arrival(facts.client_ip, facts.path).map_err(|ground| self.denied(ground, is_grpc))
    }

    pub(super) fn denied(&self, ground: DenialReason<'_>, is_grpc: bool) -> NotForwarded<'v> {
        self.count(ProblemKind::AccessRefused);
        LocalReply::denied(ground, is_grpc).into()
    }

    #[cold]
    pub(super) fn shed(&self, shed: &Shed, is_grpc: bool) -> NotForwarded<'v> {
        self.count(ProblemKind::Overloaded);
        self.worker.shared.metrics.overload.shed[shed.priority as usize].inc();
        LocalReply::shed(shed, is_grpc).into()
    }

    pub(super) fn unkeyed(&self, unkeyed: Unkeyed<'_>, is_grpc: bool) -> NotForwarded<'v> {
        let answer = match unkeyed {
            Unkeyed::Unidentified(missing) => LocalReply::unidentified(&missing, is_grpc),
            Unkeyed::Several(part) => {
                LocalReply::new(ProblemKind::SeveralValues, self.config.running.live.policy.several(part), is_grpc)
            }
        };
        self.count(answer.kind());
        answer.into()
    }
}
