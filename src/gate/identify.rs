//! Who a request is from, as far as its limits need to know.

use smallvec::SmallVec;

use super::{Gate, Live};
use crate::policy::jwt::{TokenError, Verifier};
use crate::policy::key::{KeyPart, Who};
use crate::policy::{Applied, CertificateName, Facts, Identity, IdentitySource, OnMissing};
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
    gate: &Gate,
    live: &'l Live,
    applied: &(impl Iterator<Item = Applied<'l>> + Clone),
    facts: &Facts<'f>,
    now: Timestamp,
) -> Result<Whos<'f>, Unidentified<'l>> {
    let mut whos = Whos::new();
    let parts = || applied.clone().flat_map(|applied| &applied.limit.key);
    for (index, identity) in live.policy.identities.iter().enumerate() {
        let is_needed = parts().any(|part| *part == KeyPart::Identity(index));
        whos.push(if is_needed { one(gate, live, index, identity, facts, now)? } else { Who::Anonymous });
    }
    Ok(whos)
}

fn one<'l, 'f>(
    gate: &Gate,
    live: &'l Live,
    index: usize,
    identity: &'l Identity,
    facts: &Facts<'f>,
    now: Timestamp,
) -> Result<Who<'f>, Unidentified<'l>> {
    let (header, verifier) = match &identity.source {
        IdentitySource::Certificate(name) => return of_certificate(identity, *name, facts),
        IdentitySource::Header(header) => (header, None),
        IdentitySource::Jwt { header, verifier } => (header, Some(verifier)),
    };
    let wrong = |why| Unidentified {
        identity: &identity.name,
        why,
        wants_bearer: verifier.is_some() && *header == http::header::AUTHORIZATION,
    };
    let mut values = facts.headers.all(header.as_str());
    let value = values.next();
    if values.next().is_some() {
        return Err(wrong(Why::Several));
    }
    let value = match (value, verifier) {
        (Some(value), Some(_)) if *header == http::header::AUTHORIZATION => bearer(value),
        (value, _) => value.filter(|value| !value.is_empty()),
    };
    match (value, verifier) {
        (Some(value), None) => Ok(Who::Bytes(value)),
        (Some(token), Some(verifier)) => {
            claim(gate, live, index, verifier, token, now).map_err(|error| wrong(Why::Token(error)))
        }
        (None, _) => missing(identity.on_missing).ok_or_else(|| wrong(Why::Missing)),
    }
}

/// Who a request without an identity is from; none if it is refused.
fn missing<'f>(on_missing: OnMissing) -> Option<Who<'f>> {
    match on_missing {
        OnMissing::Reject => None,
        OnMissing::Anonymous => Some(Who::Anonymous),
        OnMissing::Ip => Some(Who::Ip),
    }
}

/// The name in the certificate of the request's connection.
fn of_certificate<'l, 'f>(
    identity: &'l Identity,
    name: CertificateName,
    facts: &Facts<'f>,
) -> Result<Who<'f>, Unidentified<'l>> {
    let wrong = |why| Unidentified { identity: &identity.name, why, wants_bearer: false };
    match facts.certificate.map(|certificate| name.of(certificate)) {
        Some([only]) => Ok(Who::Bytes(only.as_bytes())),
        Some([_, ..]) => Err(wrong(Why::Several)),
        Some([]) | None => missing(identity.on_missing).ok_or_else(|| wrong(Why::Missing)),
    }
}

/// The claim of a token, verified now or before.
fn claim<'f>(
    gate: &Gate,
    live: &Live,
    index: usize,
    verifier: &Verifier,
    token: &[u8],
    now: Timestamp,
) -> Result<Who<'f>, TokenError> {
    let key = gate.secret.token(index, token);
    if let Some(value) = live.tokens.find(key, now) {
        return Ok(Who::Claim(value));
    }
    let verified = verifier.verify(token, now)?;
    live.tokens.insert(key, verified.value.clone(), verified.expires, now);
    Ok(Who::Claim(verified.value))
}

/// The token of `Bearer TOKEN` (RFC 6750, section 2.1; the scheme in any case, RFC 9110, section 11.1).
/// Credentials of another scheme are no token.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"bearer".len())?;
    let token = rest.strip_prefix(b" ")?.trim_ascii();
    scheme.eq_ignore_ascii_case(b"bearer").then_some(token).filter(|token| !token.is_empty())
}
