//! The limits of a client as it may know them itself. They are charged nothing.
//!
//! The client must show an identity that Weir verifies, whatever limits there are. It sees the limits whose keys consist of
//! its verified identities and its address. How often it may ask is bounded by its address, before its identity is
//! verified, so nobody can guess tokens here.

use super::access::{AccessError, enter_as};
use super::budget::Budget;
use super::check::{Check, Checked as _, banned_ns, is_limited};
use super::identify::{IdentityError, RequestIdentities, wrong};
use super::keys::{FoundKey, check};
use super::refusal_log::LoggedRefusal;
use super::state::{Gate, Live};
use crate::base::time::Timestamp;
use crate::engine::limit::{OnFull, Retry};
use crate::engine::policy::{ClientApi, Facts, KeyPart, Limit, Mismatch, Mode, Principal};
use crate::engine::store::{Batch, Charge, Table};

/// Addresses that are counted exactly. More addresses share a sketch of fixed size, which may refuse too early.
const ADDRESSES_MAX: usize = 65_536;

/// The most refusals of a limit that are shown.
const REFUSALS_MAX: usize = 20;

/// One limit of a client.
#[derive(Debug)]
pub struct OwnLimit<'l> {
    /// Its rates, with what remains of them.
    pub budget: Budget<'l>,
    /// Nanoseconds until the ban of the key ends; `None` if it is not banned.
    pub banned_ns: Option<u64>,
    /// Whether a store has the state, so that this process has only a copy.
    pub is_copy: bool,
    /// The age of the copy in nanoseconds; `None` if the store was not heard of the key.
    pub copy_age_ns: Option<u64>,
    /// The last refusals, the newest first.
    pub refusals: Vec<LoggedRefusal>,
}

/// Why a client does not see its limits.
#[derive(Debug)]
pub enum OwnLimitsError<'l> {
    /// It asks too often.
    TooOften(Retry),
    /// Access control rejects it, or no identity is verified.
    Access(AccessError<'l>),
}

impl Gate {
    /// The limits of the client of a request. `is_free`: access lists exempt its address.
    ///
    /// # Errors
    /// Why the client does not see them.
    #[cold]
    pub fn own_limits<'l>(
        &self,
        (live, api): (&'l Live, &ClientApi),
        facts: &Facts<'_>,
        is_free: bool,
        now: Timestamp,
    ) -> Result<Vec<OwnLimit<'l>>, OwnLimitsError<'l>> {
        let table = self.own_limits_asked.get_or_init(|| Table::new(&api.rate, ADDRESSES_MAX, OnFull::Sketch));
        let address = self.secret.of_address(facts.client_ip, live.policy.client_ip.prefixes);
        let mut asked: Batch<'_, ()> = [Charge::new(table, address, &api.rate, 1, true, ())].into_iter().collect();
        if !asked.admit(now) {
            let retry = asked.charges().first().and_then(|charge| charge.decision().denied);
            return Err(OwnLimitsError::TooOften(retry.unwrap_or(Retry::AfterNs(0))));
        }
        self.limits_of_client(live, facts, is_free, now).map_err(OwnLimitsError::Access)
    }

    fn limits_of_client<'l>(
        &self,
        live: &'l Live,
        facts: &Facts<'_>,
        is_free: bool,
        now: Timestamp,
    ) -> Result<Vec<OwnLimit<'l>>, AccessError<'l>> {
        let mut request = RequestIdentities::new(self, live, facts, now);
        let is_free = enter_as(&mut request, &[], is_free)?;
        let identities = &live.policy.identities;
        let mut principals = Vec::with_capacity(identities.len());
        let mut rejected = None;
        for (index, identity) in identities.iter().enumerate() {
            let found = request.find(index).unwrap_or_else(|error| {
                rejected = Some(error.after(rejected));
                None
            });
            let found = found.filter(|_| identity.source.is_verified());
            principals.push(found.map_or(Principal::Anonymous, |found| found.principal.clone()));
        }
        let is_anonymous = |principal: &Principal<'_>| *principal == Principal::Anonymous;
        if principals.iter().all(is_anonymous) {
            let first = identities.iter().find(|identity| identity.source.is_verified()).or(identities.first());
            let missing = || first.map(|identity| wrong(identity, IdentityError::Missing));
            return rejected.or_else(missing).map_or(Ok(Vec::new()), |error| Err(error.into()));
        }
        if is_free {
            return Ok(Vec::new());
        }
        let plan = request.plan().ok().flatten();
        let is_own = |part: &KeyPart| match part {
            KeyPart::Ip | KeyPart::Network { .. } => true,
            KeyPart::Identity(index) => principals.get(*index).is_some_and(|principal| !is_anonymous(principal)),
            _ => false,
        };
        let is_shown = |limit: &Limit| !limit.key.is_empty() && limit.key.iter().all(is_own);
        let own = |(index, limit): (usize, &'l Limit)| {
            let exempts = |why: &Mismatch| matches!(why, Mismatch::Except(_) | Mismatch::Client);
            if !is_shown(limit) || live.policy.applies(index, facts).is_err_and(|why| why.iter().any(exempts)) {
                return None;
            }
            let key = self.secret.key(&limit.key, "", facts, live.policy.client_ip.prefixes, &principals).ok()?;
            let found = FoundKey { key, limit: index, shown: None, texts: None };
            self.own_limit(check(live, &found, plan.as_deref())?, now)
        };
        Ok(live.policy.limits().iter().enumerate().filter_map(own).collect())
    }

    fn own_limit<'l>(&self, mut check: Check<'l>, now: Timestamp) -> Option<OwnLimit<'l>> {
        if check.check.mode() != Mode::Enforce || !is_limited(&check) {
            return None;
        }
        check.cost = 1;
        let is_copy = check.remote().is_some();
        let copied_at = if is_copy { check.table().mirrored_at(check.key) } else { None };
        let mut refusals = self.refusals_of_key(&check.check.state.name, check.key, now);
        refusals.truncate(REFUSALS_MAX);
        Some(OwnLimit {
            budget: Budget::new(&check),
            banned_ns: banned_ns(&check, now),
            is_copy,
            copy_age_ns: copied_at.map(|at| now.ns_since(at)),
            refusals,
        })
    }
}
