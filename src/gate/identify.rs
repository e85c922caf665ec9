//! Who a request is from and which plan it has, as far as anything needs to know.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Gate, Live};
use crate::policy::jwt::{Claimed, TokenError, Verified, Verifier};
use crate::policy::{
    Applied, CertificateName, Facts, Identity, IdentitySource, OnMissing, Plan, PlanSource, Several, compared,
    in_header,
};
use crate::policy::{KeyPart, Who};
use crate::time::Timestamp;

/// A request without an identity that it needs.
#[derive(Clone, Copy, Debug)]
pub struct Unidentified<'l> {
    /// The identity's name.
    pub identity: &'l str,
    /// What is wrong.
    pub why: Why,
    /// Whether a bearer token would have been the way to say it.
    pub wants_bearer: bool,
}

/// A request of which nobody can say whose budget it takes.
#[derive(Clone, Copy, Debug)]
pub enum Unkeyed<'l> {
    /// It lacks an identity.
    Unidentified(Unidentified<'l>),
    /// It has this part of a key several times.
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

/// What is wrong with an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// There is none.
    Missing,
    /// There is more than one.
    Several,
    /// It is a token that does not hold.
    Token(TokenError),
}

/// One entry for each identity of the policy; those that no limit needs are anonymous.
pub(super) type Whos<'f> = SmallVec<[Who<'f>; 2]>;

/// Finds the identities that `applied` limits are keyed by.
pub(super) fn identify<'l, 'f>(
    asked: &mut Asked<'_, 'l, 'f>,
    applied: &(impl Iterator<Item = Applied<'l>> + Clone),
) -> Result<Whos<'f>, Unidentified<'l>> {
    let mut whos = Whos::new();
    let parts = || applied.clone().flat_map(|applied| &applied.limit.key);
    for index in 0..asked.live.policy.identities.len() {
        let is_needed = parts().any(|part| *part == KeyPart::Identity(index));
        whos.push(if is_needed { asked.who(index)? } else { Who::Anonymous });
    }
    Ok(whos)
}

/// What one request says of itself, each identity looked up once, when it is asked for.
pub(super) struct Asked<'a, 'l, 'f> {
    gate: &'a Gate,
    live: &'l Live,
    facts: &'a Facts<'f>,
    now: Timestamp,
    known: SmallVec<[(usize, Option<Found<'f>>); 1]>,
}

/// An identity that a request has.
#[derive(Clone)]
pub(super) struct Found<'f> {
    pub(super) who: Who<'f>,
    /// The plan beside it, if plans come from this identity.
    plan: Option<Arc<str>>,
}

impl<'a, 'l, 'f> Asked<'a, 'l, 'f> {
    pub(super) fn new(gate: &'a Gate, live: &'l Live, facts: &'a Facts<'f>, now: Timestamp) -> Self {
        Self { gate, live, facts, now, known: SmallVec::new() }
    }

    /// The identity with this index, if the request has it. One that is wrong is refused.
    pub(super) fn find(&mut self, index: usize) -> Result<Option<&Found<'f>>, Unidentified<'l>> {
        let known = self.known.iter().position(|(known, _)| *known == index);
        let place = known.unwrap_or(self.known.len());
        if known.is_none() {
            let found = one(self.gate, self.live, index, self.facts, self.now)?;
            self.known.push((index, found));
        }
        Ok(self.known[place].1.as_ref())
    }

    /// Who it is by the identity with this index, or who it counts as without.
    pub(super) fn who(&mut self, index: usize) -> Result<Who<'f>, Unidentified<'l>> {
        if let Some(found) = self.find(index)? {
            return Ok(found.who.clone());
        }
        let identity = &self.live.policy.identities[index];
        match identity.on_missing {
            OnMissing::Reject => Err(wrong(identity, Why::Missing)),
            OnMissing::Anonymous => Ok(Who::Anonymous),
            OnMissing::Ip => Ok(Who::Ip),
        }
    }

    /// Its plan, if it has one. If that is beside an identity that it lacks, `on_missing` decides.
    pub(super) fn plan(&mut self) -> Result<Option<Plan<'f>>, Unidentified<'l>> {
        match &self.live.policy.plans {
            None => Ok(None),
            Some(PlanSource::Header(name)) => Ok(Plan::in_header(self.facts.headers, name)),
            Some(PlanSource::Claim(index)) => {
                self.who(*index)?;
                let found = self.find(*index)?;
                Ok(found.and_then(|found| found.plan.clone()).map(Plan::Claim))
            }
        }
    }
}

fn wrong(identity: &Identity, why: Why) -> Unidentified<'_> {
    let wants_bearer =
        matches!(&identity.source, IdentitySource::Jwt { header, .. } if *header == http::header::AUTHORIZATION);
    Unidentified { identity: &identity.name, why, wants_bearer }
}

fn one<'l, 'f>(
    gate: &Gate,
    live: &'l Live,
    index: usize,
    facts: &Facts<'f>,
    now: Timestamp,
) -> Result<Option<Found<'f>>, Unidentified<'l>> {
    let identity = &live.policy.identities[index];
    let (header, verifier) = match &identity.source {
        IdentitySource::Certificate(name) => return of_certificate(identity, *name, facts),
        IdentitySource::Header(header, several) => {
            let value = in_header(facts.headers, header, *several).map_err(|Several| wrong(identity, Why::Several))?;
            let value = value.filter(|value| !compared(value).is_empty());
            let who = value.map(|value| match value {
                Cow::Borrowed(value) => Who::Bytes(value),
                Cow::Owned(value) => Who::Joined(value.into()),
            });
            return Ok(who.map(|who| Found { who, plan: None }));
        }
        IdentitySource::Jwt { header, verifier } => (header, verifier),
    };
    let mut values = facts.headers.all(header.as_str());
    let value = values.next();
    if values.next().is_some() {
        return Err(wrong(identity, Why::Several));
    }
    let token = match value {
        Some(value) if *header == http::header::AUTHORIZATION => bearer(value),
        value => value.filter(|value| !value.is_empty()),
    };
    let Some(token) = token else { return Ok(None) };
    let claimed = claims(gate, live, index, verifier, token, now);
    let Claimed { value, plan } = claimed.map_err(|error| wrong(identity, Why::Token(error)))?;
    Ok(Some(Found { who: Who::Claim(value), plan }))
}

/// The name in the certificate of the request's connection.
fn of_certificate<'l, 'f>(
    identity: &'l Identity,
    name: CertificateName,
    facts: &Facts<'f>,
) -> Result<Option<Found<'f>>, Unidentified<'l>> {
    match facts.certificate.map(|certificate| name.of(certificate)) {
        Some([only]) => Ok(Some(Found { who: Who::Bytes(only.as_bytes()), plan: None })),
        Some([_, ..]) => Err(wrong(identity, Why::Several)),
        Some([]) | None => Ok(None),
    }
}

/// The claims of a token, verified now or before.
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
    let Verified { claimed, expires } = verifier.verify(token, now)?;
    live.tokens.insert(key, claimed.clone(), expires, now);
    Ok(claimed)
}

/// The token of `Bearer TOKEN` (RFC 6750, section 2.1; the scheme in any case, RFC 9110, section 11.1).
/// Credentials of another scheme are no token. Services split the two at any white space, so every byte that cannot
/// stand in the name of a scheme ends it: a token that is spelt oddly is verified, and never absent.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = compared(value).split_at_checked(b"bearer".len())?;
    let goes_on = rest.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte));
    let token = compared(rest);
    (scheme.eq_ignore_ascii_case(b"bearer") && !goes_on && !token.is_empty()).then_some(token)
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
            // Verified, and so refused: a service may take it for a token.
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
