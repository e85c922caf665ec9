//! The decision about a described request: access lists and both stages of the gate.

use super::super::access_record::AccessRecord;
use super::super::admission::Admission;
use super::super::context::{NotForwarded, RequestContext};
use super::super::error;
use super::super::http1::wire::Wire;
use super::super::service::GateInput;
use super::described::DescribedRequest;
use crate::engine::gate::Budgets;
use crate::engine::policy::host::host;
use crate::engine::policy::path::escaped_query;
use crate::engine::policy::{Facts, Stage};
use crate::transport::respond::{CheckDecision, ProblemKind};

impl<'v> RequestContext<'v> {
    /// Decides about a described request. `wire` is the connection of the asking peer: if the peer leaves while the
    /// request waits, the check ends. If there is a list, `listed` gets the budgets that apply to the request.
    pub(in crate::transport::proxy) async fn check(
        &self,
        described: &DescribedRequest<'_>,
        wire: &mut Wire,
        record: &mut AccessRecord<'_>,
        listed: Option<&mut Budgets<'v>>,
    ) -> Result<CheckDecision<'v>, NotForwarded<'v>> {
        match self.decide(described, wire, &mut *record, listed).await {
            Err(NotForwarded::Reply(mut reply)) => {
                self.name(&mut reply, record);
                Ok(CheckDecision::Refused(reply))
            }
            decided => decided,
        }
    }

    async fn decide(
        &self,
        described: &DescribedRequest<'_>,
        wire: &mut Wire,
        record: &mut AccessRecord<'_>,
        listed: Option<&mut Budgets<'v>>,
    ) -> Result<CheckDecision<'v>, NotForwarded<'v>> {
        let &DescribedRequest { ref method, target, authority, client: client_ip, fields: headers, cost } = described;
        record.requested(method, target.path, headers);
        if *method == http::Method::CONNECT {
            return Err(self.counted(error::no_connect()));
        }
        let policy = &self.config.running.live.policy;
        let path = policy.paths.normalise(target.path);
        let path = path.map_err(|error| self.problem(ProblemKind::BadPath, error.to_string()))?;
        let query = target.query.map(escaped_query);
        let mut facts = Facts {
            method,
            host: &host(authority),
            path: &policy.paths.fold(&path),
            query: query.as_deref(),
            headers,
            client_ip,
            is_free_preflight: false,
            // Only trusted proxies may ask, but the headers are those that the client sent.
            is_proxied: false,
            // The certificate of the connection is that of the asking peer.
            certificate: None,
            cost,
            body: None,
        };
        let gate = &self.worker.shared.gate;
        facts.is_free_preflight = gate.frees_preflight(policy, &facts, gate.clock().at(self.began));
        record.identified(client_ip, facts.host, &path);
        let mut admission = Admission::default();
        let mut input = GateInput {
            facts: &facts,
            is_grpc: false,
            wire: Some(wire),
            body: None,
            record,
            admission: &mut admission,
        };
        let decided = self.both_stages(&mut input, |_, _| Ok(((), &[]))).await;
        let decided = self.check_newest(decided, &mut input, false);
        if decided.is_ok() {
            admission.identified.charged.close();
        }
        if let Some(listed) = listed {
            *listed = self.budgets_of(&facts);
        }
        decided?;
        let budgets = admission.budgets(self.config.running.settings.profiles);
        Ok(CheckDecision::Allowed { standing: admission.standing(), budgets })
    }

    /// The budgets of a request now, unless access lists decide about it.
    fn budgets_of(&self, facts: &Facts<'_>) -> Budgets<'v> {
        let (gate, live) = (&self.worker.shared.gate, &self.config.running.live);
        let (now, access) = (gate.clock().now(), live.policy.access.as_deref());
        let on_arrival = access.map(|access| access.on_arrival(facts.client_ip, facts.path));
        if matches!(on_arrival, Some(Ok(true) | Err(_))) {
            return Budgets::new();
        }
        let mut budgets = gate.budgets(live, Stage::Arrival, facts, now);
        if matches!(gate.enter(live, &[], facts, false, now), Ok(false)) {
            budgets.append(&mut gate.budgets(live, Stage::Identified, facts, now));
        }
        budgets
    }
}
