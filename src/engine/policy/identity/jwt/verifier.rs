//! The verification of tokens.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::algorithm::Algorithm;
use super::claims::{self, Claims};
use super::fetched::FetchedKeys;
use super::keys::{self, Key, KeyMaterial, SkippedKeys};
use super::problems::{KeyError, TOKEN_BYTES_MAX, TokenError};
use crate::base::time::{Timestamp, saturating_ns};

/// The settings of a [`Verifier`].
#[derive(Clone, Debug)]
pub struct VerifierSpec {
    /// The claim that names the client: text or an integer.
    pub claim: String,
    /// The algorithms that a token may use.
    pub algorithms: Vec<Algorithm>,
    /// The configured keys.
    pub keys: Vec<KeyMaterial>,
    /// The keys behind a URL.
    pub fetched: Option<Arc<FetchedKeys>>,
    /// The required `iss`; `None` accepts any.
    pub issuer: Option<String>,
    /// The required member of `aud`; `None` accepts any.
    pub audience: Option<String>,
    /// Whether a token without `exp` is refused.
    pub require_exp: bool,
    /// The accepted difference between the clocks of the issuer and of Weir.
    pub leeway: Duration,
}

/// A verifier of tokens.
#[derive(Debug)]
pub struct Verifier {
    /// Without the configured keys, so that no secret stays.
    spec: VerifierSpec,
    plan_claim: Option<Box<str>>,
    keys: Vec<Key>,
    skipped: Vec<SkippedKeys>,
}

/// A verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The client and its plan.
    pub claimed: Claimed,
    /// The expiry of the token, leeway included.
    pub expires: Option<Timestamp>,
}

/// The claims of a verified token about its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The claim of the client; an integer in decimal.
    pub value: Arc<str>,
    /// The claim of the plan, if it is configured; an integer in decimal.
    pub plan: Option<Arc<str>>,
}

/// The JOSE header. Other members (`jku`, `jwk`, `x5u`) are not read, because the token itself offers them.
#[derive(Deserialize)]
struct JoseHeader<'t> {
    #[serde(borrow)]
    alg: Cow<'t, str>,
    kid: Option<String>,
    #[serde(default)]
    crit: Present,
}

/// Whether a member is present, even as `null`.
#[derive(Default)]
struct Present(bool);

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self(true))
    }
}

impl Verifier {
    /// Checks and prepares the keys.
    pub fn new(mut spec: VerifierSpec) -> Result<Self, KeyError> {
        let materials = std::mem::take(&mut spec.keys);
        let (keys, skipped) = match &spec.fetched {
            Some(_) if materials.is_empty() => Default::default(),
            _ => keys::build(&materials, &spec.algorithms)?,
        };
        Ok(Self { spec, plan_claim: None, keys, skipped })
    }

    /// The skipped members of its JWK sets.
    pub fn skipped(&self) -> &[SkippedKeys] {
        &self.skipped
    }

    /// Its fetched keys.
    pub fn fetched(&self) -> Option<&FetchedKeys> {
        self.spec.fetched.as_deref()
    }

    /// Sets the claim that names the plan. The claim is optional in tokens.
    pub fn set_plan_claim(&mut self, claim: &str) {
        self.plan_claim = Some(claim.into());
    }

    /// Verifies `token` at the time `now`.
    pub fn verify(&self, token: &[u8], now: Timestamp) -> Result<Verified, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::TooLong);
        }
        let parts = Parts::split(token).ok_or(TokenError::Malformed)?;
        let mut json = Vec::with_capacity(token.len());
        self.verify_signature(&parts, decode_text(parts.header, &mut json)?)?;
        let payload = decode_text(parts.payload, &mut json)?;
        let named = [Some(&*self.spec.claim), self.plan_claim.as_deref()];
        let claims = Claims::parse(payload, named).ok_or(TokenError::Malformed)?;
        let expires = self.check_times(&claims, now)?;
        self.check_parties(&claims)?;
        let value = claims.configured(0).and_then(claims::ClaimValue::client).ok_or(TokenError::Claim)?;
        let plan = claims.configured(1).and_then(claims::ClaimValue::client);
        Ok(Verified { claimed: Claimed { value, plan }, expires })
    }

    fn verify_signature(&self, parts: &Parts<'_>, header: &str) -> Result<(), TokenError> {
        // `serde` would read an array as the members in their order.
        if !header.trim_ascii_start().starts_with('{') {
            return Err(TokenError::Malformed);
        }
        let header: JoseHeader<'_> = serde_json::from_str(header).map_err(|_| TokenError::Malformed)?;
        if header.crit.0 {
            return Err(TokenError::Malformed);
        }
        let algorithm = Algorithm::of_name(&header.alg).ok_or(TokenError::Algorithm)?;
        if !self.spec.algorithms.contains(&algorithm) {
            return Err(TokenError::Algorithm);
        }
        let mut signature = Vec::with_capacity(parts.signature.len());
        decode(parts.signature, &mut signature)?;
        let kid = header.kid.as_deref();
        let try_all = |keys: &[Key]| {
            let (mut refused, mut is_named) = (TokenError::UnknownKey, false);
            for key in keys.iter().filter(|key| key.fits(algorithm, kid)) {
                if key.verifies(parts.signed, &signature) {
                    return Ok(());
                }
                refused = TokenError::Signature;
                is_named |= kid.is_none() || key.has_kid();
            }
            Err((refused, is_named))
        };
        let Err((refused, is_named)) = try_all(&self.keys) else { return Ok(()) };
        let Some(fetched) = &self.spec.fetched else { return Err(refused) };
        match fetched.look(try_all) {
            None => Err(TokenError::NoKeys),
            Some(Ok(())) => Ok(()),
            Some(Err((theirs, is_fetched))) => {
                if !is_named && !is_fetched {
                    fetched.want();
                }
                Err(if theirs == TokenError::UnknownKey { refused } else { theirs })
            }
        }
    }

    /// Checks `exp` and `nbf` (RFC 7519, 4.1.4 and 4.1.5). Returns the expiry with leeway.
    fn check_times(&self, claims: &Claims<'_>, now: Timestamp) -> Result<Option<Timestamp>, TokenError> {
        let leeway_ns = saturating_ns(self.spec.leeway);
        let expires = match &claims.exp {
            Some(exp) => Some(exp.date().ok_or(TokenError::Expired)?.saturating_add_ns(leeway_ns)),
            None if self.spec.require_exp => return Err(TokenError::MissingExp),
            None => None,
        };
        if expires.is_some_and(|expires| now >= expires) {
            return Err(TokenError::Expired);
        }
        if let Some(nbf) = &claims.nbf {
            let not_before = nbf.date().ok_or(TokenError::NotYetValid)?.saturating_sub_ns(leeway_ns);
            if now < not_before {
                return Err(TokenError::NotYetValid);
            }
        }
        Ok(expires)
    }

    fn check_parties(&self, claims: &Claims<'_>) -> Result<(), TokenError> {
        let is =
            |claim: &Option<claims::ClaimValue<'_>>, text: &str| claim.as_ref().is_some_and(|value| value.is(text));
        if self.spec.issuer.as_deref().is_some_and(|issuer| !is(&claims.iss, issuer)) {
            return Err(TokenError::Issuer);
        }
        let includes = |text: &str| claims.aud.as_ref().is_some_and(|value| value.is_or_includes(text));
        if self.spec.audience.as_deref().is_some_and(|audience| !includes(audience)) {
            return Err(TokenError::Audience);
        }
        Ok(())
    }
}

/// A token in compact serialisation (RFC 7515, 7.1), still encoded.
struct Parts<'t> {
    header: &'t [u8],
    payload: &'t [u8],
    signature: &'t [u8],
    /// Header and payload with the dot between them, the signed bytes.
    signed: &'t [u8],
}

impl<'t> Parts<'t> {
    fn split(token: &'t [u8]) -> Option<Self> {
        let first = memchr::memchr(b'.', token)?;
        let second = memchr::memchr(b'.', &token[first + 1..])? + first + 1;
        let signature = &token[second + 1..];
        let has_three = memchr::memchr(b'.', signature).is_none();
        has_three.then(|| Self {
            header: &token[..first],
            payload: &token[first + 1..second],
            signature,
            signed: &token[..second],
        })
    }
}

/// Decodes a part that is JSON into `out`. The JSON parser does not check text that it skips, so UTF-8 is checked here.
fn decode_text<'o>(part: &[u8], out: &'o mut Vec<u8>) -> Result<&'o str, TokenError> {
    out.clear();
    decode(part, out)?;
    str::from_utf8(out).map_err(|_| TokenError::Malformed)
}

fn decode(part: &[u8], out: &mut Vec<u8>) -> Result<(), TokenError> {
    URL_SAFE_NO_PAD.decode_vec(part, out).map_err(|_| TokenError::Malformed)
}
