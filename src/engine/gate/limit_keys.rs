//! The keys, identities and plan of a request, for logs and for operators who watch. Nothing is charged or counted.

use super::admit::Requester;
use super::check::Checks;
use super::identify::{RequestIdentities, identify_for};
use super::named_charge::NamedCharge;
use super::state::{Gate, Live};
use crate::base::telemetry::{RequestRecord, TappedKey, Text};
use crate::base::time::Timestamp;
use crate::engine::limit::Key;
use crate::engine::policy::{Facts, Limit, Stage};

impl Gate {
    /// Adds the plan and the identities of a request to its record, as far as limits or access lists need them. Limits
    /// need none unless it `is_limited`.
    #[inline(never)]
    pub fn describe_identities(
        &self,
        live: &Live,
        is_limited: bool,
        facts: &Facts<'_>,
        now: Timestamp,
        record: &mut RequestRecord,
    ) {
        if !live.needs_identity {
            return;
        }
        let mut checks = Checks::default();
        if is_limited {
            live.find(Stage::Identified, facts, &mut checks);
        }
        let mut known = RequestIdentities::new(self, live, facts, now);
        let access = live.policy.access.as_deref();
        for index in access.iter().flat_map(|access| access.identities()) {
            let _ = known.find(index); // an invalid one is none
        }
        let requires_plan = access.is_some_and(|access| !access.required(facts).is_empty());
        let required_plan = if requires_plan { known.plan().ok().flatten() } else { None };
        let identified = identify_for(&mut known, Stage::Identified, checks.charges());
        for (index, principal) in known.found() {
            let write = |out: &mut String| {
                live.policy.write_principal(out, &self.secret, index, principal, facts.client_ip);
            };
            record.add_identity(&live.policy.identities[index].name, write);
        }
        if let Some(plan) = identified.as_ref().map_or(&required_plan, |(_, plan)| plan) {
            record.set(Text::Plan, plan);
        }
    }

    /// Adds the limits of `checks`, with the keys of the request, to its record.
    #[inline(never)]
    pub(super) fn describe_keys(
        &self,
        live: &Live,
        requester: Requester<'_, '_>,
        checks: &Checks<'_>,
        record: &mut RequestRecord,
    ) {
        let Requester { facts, identities, .. } = requester;
        record.begin_stage();
        for check in checks.charges() {
            let applied = &check.check.applied;
            let write = |out: &mut String| live.policy.write_shown(out, &self.secret, applied, facts, identities);
            add_key(record, applied.limit, check.key, check.cost, write);
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
            let write = |out: &mut String| out.push_str(&self.shown_charge(live, charge));
            add_key(record, limit, charge.key, charge.units, write);
        }
    }
}

fn add_key(record: &mut RequestRecord, limit: &Limit, key: Key, cost: u64, write: impl FnOnce(&mut String)) {
    let unit = limit.unit();
    let (hash, unit) = ([key.first, key.second], unit.as_ref().map_or("", |unit| unit.name()));
    record.add_key(TappedKey { limit: &limit.name, hash, cost, unit, shown: "" }, write);
}
