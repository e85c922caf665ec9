//! The keys, identities and plan of a request, for logs and for operators who watch. Nothing is charged or counted.

use super::admit::Requester;
use super::check::Checks;
use super::identify::{RequestIdentities, identify_for};
use super::named_charge::NamedCharge;
use super::state::{Gate, Live};
use crate::base::telemetry::{RequestRecord, TappedKey, Text};
use crate::base::time::Timestamp;
use crate::engine::policy::{Facts, Stage};

impl Gate {
    /// Adds to the record of a request the limits of `stage` that apply to it, with its keys; none unless `is_limited`, or
    /// if it has no key. For the identified stage also adds its plan and its identities, as far as limits or access lists
    /// need them.
    #[inline(never)]
    pub fn describe(
        &self,
        live: &Live,
        (stage, is_limited): (Stage, bool),
        facts: &Facts<'_>,
        now: Timestamp,
        record: &mut RequestRecord,
    ) {
        let mut checks = Checks::default();
        if is_limited {
            live.find(stage, facts, &mut checks);
        }
        let mut known = RequestIdentities::new(self, live, facts, now);
        let (identities, plan) = if stage == Stage::Identified && live.needs_identity {
            let access = live.policy.access.as_deref();
            for index in access.iter().flat_map(|access| access.identities()) {
                let _ = known.find(index); // an invalid one is none
            }
            let requires_plan = access.is_some_and(|access| !access.required(facts).is_empty());
            let required_plan = if requires_plan { known.plan().ok().flatten() } else { None };
            let identified = identify_for(&mut known, checks.charges());
            for (index, principal) in known.found() {
                let shown = live.policy.shown_principal(&self.secret, index, principal, facts.client_ip);
                record.add_identity(&live.policy.identities[index].name, &shown);
            }
            if let Some(plan) = identified.as_ref().map_or(&required_plan, |(_, plan)| plan) {
                record.set(Text::Plan, plan);
            }
            let Ok(identified) = identified else { return };
            identified
        } else {
            Default::default()
        };
        let requester = Requester { facts, identities: &identities, plan: plan.as_deref() };
        if self.compute_keys(live, requester, checks.charges_mut(), now).is_err() {
            return;
        }
        for check in checks.charges() {
            let shown: Vec<_> = live.policy.shown(&self.secret, &check.check.applied, facts, &identities).collect();
            let (limit, hash) = (&*check.check.state.name, [check.key.first, check.key.second]);
            record.add_key(TappedKey { limit, hash, shown: &shown.join("|") });
        }
    }

    /// The key of a charge that a caller names, without secrets; empty if there is no such limit.
    #[cold]
    pub fn shown_charge(&self, live: &Live, charge: &NamedCharge) -> String {
        let Some(limit) = live.policy.limits().get(charge.limit) else { return String::new() };
        let parts = limit.key.iter().zip(&charge.texts);
        let shown: Vec<_> = parts.map(|(part, text)| live.policy.shown_text(&self.secret, part, text)).collect();
        shown.join("|")
    }

    /// Adds the limit of a charge that a caller names to the record of its check, with the key.
    #[cold]
    pub fn describe_charge(&self, live: &Live, charge: &NamedCharge, record: &mut RequestRecord) {
        if let Some(limit) = live.policy.limits().get(charge.limit) {
            let hash = [charge.key.first, charge.key.second];
            record.add_key(TappedKey { limit: &limit.name, hash, shown: &self.shown_charge(live, charge) });
        }
    }
}
