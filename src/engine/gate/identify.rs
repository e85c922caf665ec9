//! The identities and the plan of a request, as far as limits and access lists need them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use http::HeaderName;
use http::header::AUTHORIZATION;
use smallvec::SmallVec;

use super::check::Check;
use super::state::{Gate, Live};
use super::stated::Stated;
use crate::base::time::{Timestamp, system_now};
use crate::engine::policy::api_keys::ApiKeyError;
use crate::engine::policy::jwt::{Claimed, TokenError, Verified, Verifier};
use crate::engine::policy::{
    AmbiguousValue, Facts, Identity, IdentitySource, KeyPart, OnMissing, Plan, PlanSource, Principal, Priority, Stage,
    compared, in_header, is_empty_as_read,
};

/// A request without an identity that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Unidentified<'l> {
    /// The identity's name.
    pub identity: &'l str,
    /// The problem.
    pub why: IdentityError,
    /// How a request shows the identity.
    pub credential: Credential,
}

impl Unidentified<'_> {
    /// The answer to a request in which this identity and an `earlier` one are wrong: the earlier one, unless keys that are
    /// not available yet may verify the token of this one.
    pub(super) fn after(self, earlier: Option<Self>) -> Self {
        let may_verify = self.why == IdentityError::Token(TokenError::NoKeys);
        earlier.filter(|_| !may_verify).unwrap_or(self)
    }
}

/// How requests show an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By a token or an API key in `Authorization`.
    Bearer,
    /// By an API key in a header of its own.
    ApiKey,
    /// In another way, which has no authentication scheme.
    Other,
}

impl fmt::Display for Unidentified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            IdentityError::Missing => write!(f, "{}: none given", self.identity),
            IdentityError::Several => write!(f, "{}: more than one given", self.identity),
            IdentityError::Token(error) => write!(f, "{}: {error}", self.identity),
            IdentityError::ApiKey(error) => write!(f, "{}: {error}", self.identity),
        }
    }
}

/// A request whose key cannot be computed.
#[derive(Clone, Copy, Debug)]
pub enum Unkeyed<'l> {
    /// An identity is missing or wrong.
    Unidentified(Unidentified<'l>),
    /// The request has several values for this part of a key.
    Several(&'l KeyPart),
}

impl<'l> From<Unidentified<'l>> for Unkeyed<'l> {
    fn from(unidentified: Unidentified<'l>) -> Self {
        Self::Unidentified(unidentified)
    }
}

impl<'l> From<&'l KeyPart> for Unkeyed<'l> {
    fn from(part: &'l KeyPart) -> Self {
        Self::Several(part)
    }
}

/// The problem with an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// The request has none.
    Missing,
    /// The request has more than one.
    Several,
    /// The token is not valid.
    Token(TokenError),
    /// The API key is not valid.
    ApiKey(ApiKeyError),
}

/// The identities of a request, in the order of the policy. Identities that no limit needs are anonymous.
pub(super) type Principals<'f> = SmallVec<[Principal<'f>; 2]>;

/// The identities and the plan that the checks of `stage` need; none on arrival.
///
/// # Errors
/// The first identity that is wrong, or missing and required.
pub(super) fn identify_for<'l, 'f>(
    request: &mut RequestIdentities<'_, 'l, 'f>,
    stage: Stage,
    checks: &[Check<'l>],
) -> Result<(Principals<'f>, Option<Plan<'f>>), Unidentified<'l>> {
    if stage != Stage::Identified || !request.live.needs_identity {
        return Ok(Default::default());
    }
    let limits = || checks.iter().map(|check| check.check.applied.limit);
    let plan = if limits().any(|limit| limit.allowed.has_plans()) { request.plan()? } else { None };
    let mut principals = Principals::new();
    for index in 0..request.live.policy.identities.len() {
        let is_needed = limits().any(|limit| limit.key.contains(&KeyPart::Identity(index)));
        principals.push(if is_needed { request.identity(index)? } else { Principal::Anonymous });
    }
    Ok((principals, plan))
}

/// The identities of one request. Each is looked up once, when it is first needed.
pub(super) struct RequestIdentities<'a, 'l, 'f> {
    pub(super) gate: &'a Gate,
    pub(super) live: &'l Live,
    pub(super) facts: &'a Facts<'f>,
    now: Timestamp,
    /// Identities that were looked up, by index.
    known: SmallVec<[(usize, Option<Found<'f>>); 1]>,
    /// The plan that an operator states in an explanation.
    stated_plan: Option<&'a Arc<str>>,
}

/// An identity that a request has.
#[derive(Clone)]
pub(super) struct Found<'f> {
    pub(super) principal: Principal<'f>,
    /// The plan beside it, if plans come from this identity.
    plan: Option<Arc<str>>,
}

impl<'a, 'l, 'f> RequestIdentities<'a, 'l, 'f> {
    pub(super) fn new(gate: &'a Gate, live: &'l Live, facts: &'a Facts<'f>, now: Timestamp) -> Self {
        Self { gate, live, facts, now, known: SmallVec::new(), stated_plan: None }
    }

    /// The identities of a request of which an operator states some.
    pub(super) fn stating(
        gate: &'a Gate,
        live: &'l Live,
        (facts, stated): (&'a Facts<'f>, &'a Stated),
        now: Timestamp,
    ) -> Self {
        let known = stated.identities.iter().map(|(index, text)| {
            let principal = stated_principal(live.policy.identities.get(*index), text);
            (*index, Some(Found { principal, plan: None }))
        });
        let known = known.collect();
        Self { known, stated_plan: stated.plan.as_ref(), ..Self::new(gate, live, facts, now) }
    }

    /// The identity at `index`, if the request has it.
    ///
    /// # Errors
    /// The identity is wrong.
    pub(super) fn find(&mut self, index: usize) -> Result<Option<&Found<'f>>, Unidentified<'l>> {
        let known = self.known.iter().position(|(known, _)| *known == index);
        let position = known.unwrap_or(self.known.len());
        if known.is_none() {
            let found = look_up(self.gate, self.live, index, self.facts, self.now)?;
            self.known.push((index, found));
        }
        Ok(self.known[position].1.as_ref())
    }

    /// The identities that were looked up and that the request has, by index.
    pub(super) fn found(&self) -> impl Iterator<Item = (usize, &Principal<'f>)> {
        self.known.iter().filter_map(|(index, found)| Some((*index, &found.as_ref()?.principal)))
    }

    /// The identity at `index`, or what counts as such in a request without it.
    ///
    /// # Errors
    /// The identity is wrong, or missing and required.
    pub(super) fn identity(&mut self, index: usize) -> Result<Principal<'f>, Unidentified<'l>> {
        if let Some(found) = self.find(index)? {
            return Ok(found.principal.clone());
        }
        let identity = &self.live.policy.identities[index];
        match identity.on_missing {
            OnMissing::Reject => Err(wrong(identity, IdentityError::Missing)),
            OnMissing::Anonymous => Ok(Principal::Anonymous),
            OnMissing::Ip => Ok(Principal::Ip),
        }
    }

    /// The plan of the request, if it has one. If plans are claims of an identity that is missing, its `on_missing`
    /// decides.
    ///
    /// # Errors
    /// The identity is wrong, or missing and required.
    pub(super) fn plan(&mut self) -> Result<Option<Plan<'f>>, Unidentified<'l>> {
        if let Some(stated) = self.stated_plan {
            return Ok(Some(Plan::Claim(Arc::clone(stated))));
        }
        match &self.live.policy.plans {
            None => Ok(None),
            Some(PlanSource::Header(name)) => Ok(Plan::in_header(self.facts.headers, name)),
            Some(PlanSource::Claim(index)) => {
                self.identity(*index)?;
                let found = self.find(*index)?;
                Ok(found.and_then(|found| found.plan.clone()).map(Plan::Claim))
            }
        }
    }

    /// The plan of the request, if the client cannot have invented it: in a header it counts from a trusted proxy only.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub(super) fn proven_plan(&mut self) -> Result<Option<Plan<'f>>, Unidentified<'l>> {
        let is_in_header = matches!(self.live.policy.plans, Some(PlanSource::Header(_)));
        if is_in_header && !self.facts.is_proxied { Ok(None) } else { self.plan() }
    }
}

impl RequestIdentities<'_, '_, '_> {
    /// The priority of the request. `is_arrival`: no token is verified for its plan. A plan that is unknown, wrong or not
    /// proven fits no rule.
    pub(super) fn priority(&mut self, is_arrival: bool) -> Priority {
        let (live, facts) = (self.live, self.facts);
        let Some(priorities) = &live.policy.priorities else { return Priority::default() };
        let is_verified_later = is_arrival && matches!(live.policy.plans, Some(PlanSource::Claim(_)));
        priorities.of(facts, |plans| {
            let plan = if is_verified_later { None } else { self.proven_plan().ok().flatten() };
            plan.is_some_and(|plan| plans.iter().any(|one| **one == *plan))
        })
    }
}

/// The principal of an identity that an operator states as `text`: as the value of a request is shown and compared.
pub(super) fn stated_principal(identity: Option<&Identity>, text: &Arc<str>) -> Principal<'static> {
    match identity.map(|identity| &identity.source) {
        Some(IdentitySource::Header(..)) => Principal::Joined(text.as_bytes().into()),
        Some(source) => Principal::Claim(source.spelled(text).into()),
        None => Principal::Claim(Arc::clone(text)),
    }
}

/// A request whose identity has this problem.
pub(super) fn wrong(identity: &Identity, why: IdentityError) -> Unidentified<'_> {
    let credential = match &identity.source {
        IdentitySource::Jwt { header, .. } | IdentitySource::ApiKeys { header, .. } if *header == AUTHORIZATION => {
            Credential::Bearer
        }
        IdentitySource::ApiKeys { .. } => Credential::ApiKey,
        IdentitySource::Header(..) | IdentitySource::Certificate(_) | IdentitySource::Jwt { .. } => Credential::Other,
    };
    Unidentified { identity: &identity.name, why, credential }
}

/// Looks an identity up in the request. The date of the system, which may have been corrected since the start, decides
/// whether it has expired.
fn look_up<'l, 'f>(
    gate: &Gate,
    live: &'l Live,
    index: usize,
    facts: &Facts<'f>,
    now: Timestamp,
) -> Result<Option<Found<'f>>, Unidentified<'l>> {
    let identity = &live.policy.identities[index];
    let (header, verifier) = match &identity.source {
        IdentitySource::Certificate(name) => {
            return match facts.certificate.map(|certificate| name.of(certificate)) {
                Some([only]) => Ok(Some(Found { principal: Principal::Claim(Arc::clone(only)), plan: None })),
                Some([_, ..]) => Err(wrong(identity, IdentityError::Several)),
                Some([]) | None => Ok(None),
            };
        }
        IdentitySource::Header(header, several) => {
            let value = in_header(facts.headers, header, *several)
                .map_err(|AmbiguousValue| wrong(identity, IdentityError::Several))?;
            let value = value.filter(|value| !is_empty_as_read(value));
            let principal = value.map(|value| match value {
                Cow::Borrowed(value) => Principal::Bytes(value),
                Cow::Owned(value) => Principal::Joined(value.into()),
            });
            return Ok(principal.map(|principal| Found { principal, plan: None }));
        }
        IdentitySource::ApiKeys { header, keys, .. } => {
            let Some(key) = shown_in(identity, header, facts)? else { return Ok(None) };
            let owner = keys.verify(compared(key), system_now());
            let owner = owner.map_err(|error| wrong(identity, IdentityError::ApiKey(error)))?;
            let principal = Principal::Claim(Arc::clone(&owner.name));
            return Ok(Some(Found { principal, plan: owner.plan.clone() }));
        }
        IdentitySource::Jwt { header, verifier } => (header, verifier),
    };
    let Some(token) = shown_in(identity, header, facts)? else { return Ok(None) };
    let claimed = claims(gate, live, index, verifier, token, now);
    let Claimed { value, plan } = claimed.map_err(|error| wrong(identity, IdentityError::Token(error)))?;
    Ok(Some(Found { principal: Principal::Claim(value), plan }))
}

/// The token or the API key in this header.
fn shown_in<'l, 'f>(
    identity: &'l Identity,
    header: &HeaderName,
    facts: &Facts<'f>,
) -> Result<Option<&'f [u8]>, Unidentified<'l>> {
    let mut values = facts.headers.all(header.as_str());
    let value = values.next();
    if values.next().is_some() {
        return Err(wrong(identity, IdentityError::Several));
    }
    Ok(match value {
        Some(value) if *header == AUTHORIZATION => bearer(value),
        value => value.filter(|value| !value.is_empty()),
    })
}

/// The claims of a token that is verified now, or was before.
fn claims(
    gate: &Gate,
    live: &Live,
    index: usize,
    verifier: &Verifier,
    token: &[u8],
    now: Timestamp,
) -> Result<Claimed, TokenError> {
    let key = gate.secret.token(index, token);
    if let Some(claimed) = live.tokens.find(key, now) {
        return Ok(claimed);
    }
    let date = system_now();
    let Verified { claimed, expires } = verifier.verify(token, date)?;
    let until = expires.map(|expires| now.saturating_add_ns(expires.ns_since(date)));
    live.tokens.insert(key, claimed.clone(), until, now);
    Ok(claimed)
}

/// The token of `Bearer TOKEN` (RFC 6750, section 2.1). The scheme is compared without case (RFC 9110, section 11.1).
/// Credentials of another scheme are no token. Every byte that is not allowed in the name of a scheme ends it, because
/// services split the two at any white space. So an oddly spelt token is verified, and not taken for absent.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = compared(value).split_at_checked(b"bearer".len())?;
    let is_longer = rest.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte));
    let token = compared(rest);
    (scheme.eq_ignore_ascii_case(b"bearer") && !is_longer && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::bearer;

    #[test]
    fn a_bearer_token_is_found_however_it_is_spelt() {
        for (value, token) in [
            (&b"Bearer a.b.c"[..], Some(&b"a.b.c"[..])),
            (b"bEARER  a.b.c ", Some(b"a.b.c")),
            (b"Bearer\ta.b.c", Some(b"a.b.c")),
            (b"Bearer\xA0a.b.c", Some(b"a.b.c")),
            (b"\xA0Bearer a.b.c\x85", Some(b"a.b.c")),
            (b"Bearer\xC2\xA0a.b.c", Some(b"a.b.c")),
            // Verified, and so refused: a service may accept it as a token.
            (b"Bearer:a.b.c", Some(b":a.b.c")),
            (b"Bearer,a", Some(b",a")),
            (b"Bearer", None),
            (b"Bearer \t", None),
            (b"Bearers a", None),
            (b"Bearera", None),
            (b"Bearer-x a", None),
            (b"Basic a", None),
            (b"", None),
        ] {
            assert_eq!(bearer(value), token, "{}", value.escape_ascii());
        }
    }
}
