//! Answers to requests that access lists, identities and overload refuse.

use std::sync::Arc;

use super::context::{NotForwarded, RequestContext};
use super::running_config::RunningConfig;
use super::service::GateInput;
use crate::base::telemetry::{Outcome, RefusedBy};
use crate::engine::gate::{AccessError, Shed, Unkeyed};
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

    /// Tests a request that was `decided` after a wait by the access lists and identities of the newest configuration: a
    /// reload may have denied it, or revoked its credentials. `is_routed`: its route may need identities.
    #[inline]
    pub(super) fn check_newest<D>(
        &self,
        decided: Result<D, NotForwarded<'v>>,
        input: &mut GateInput<'_, '_, '_, 'v>,
        is_routed: bool,
    ) -> Result<D, NotForwarded<'v>> {
        if self.has_waited() && decided.is_ok() {
            let newest = &self.worker.config.current().running;
            if !Arc::ptr_eq(newest, &self.config.running) {
                self.check_by(newest, input, is_routed)?;
            }
        }
        decided
    }

    #[cold]
    fn check_by(
        &self,
        newest: &RunningConfig,
        input: &mut GateInput<'_, '_, '_, 'v>,
        is_routed: bool,
    ) -> Result<(), NotForwarded<'v>> {
        let (facts, gate) = (input.facts, &self.worker.shared.gate);
        let routes = newest.settings.routes.as_ref().filter(|_| is_routed);
        let required = routes.and_then(|routes| routes.find(facts)).map_or(&[][..], |route| &route.require);
        let Err(error) = gate.check_admitted(&newest.live, required, facts, gate.clock().now()) else { return Ok(()) };
        input.record.outcome = Outcome::Refused(RefusedBy::Other); // until another outcome is set
        Err(match error {
            AccessError::Denied(reason) => self.denied(reason, input.is_grpc),
            AccessError::Unidentified(missing) => self.unkeyed(missing.into(), input.is_grpc),
        })
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
