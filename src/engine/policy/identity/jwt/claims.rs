//! The payload of a token: the registered claims that Weir checks, and the claims of the client and the plan.
//!
//! All other claims are skipped without a copy. A repeated claim makes the payload malformed, because readers differ in
//! the claim that counts (RFC 7519, 4).

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::base::time::{Timestamp, saturating_ns};

/// Bytes of the longest name of a client or a plan.
const VALUE_BYTES_MAX: usize = 256;

/// The names of the claims that name the client and its plan.
type ClaimNames<'n> = [Option<&'n str>; 2];

/// The claims that Weir reads.
#[derive(Debug, Default)]
pub(super) struct Claims<'t> {
    names: ClaimNames<'t>,
    pub(super) exp: Option<ClaimValue<'t>>,
    pub(super) nbf: Option<ClaimValue<'t>>,
    pub(super) iss: Option<ClaimValue<'t>>,
    pub(super) aud: Option<ClaimValue<'t>>,
    /// The claims in `names` that are none of the above, by their index in `names`.
    others: [Option<ClaimValue<'t>>; 2],
}

/// The value of a claim, as far as Weir needs it.
#[derive(Debug)]
pub(super) enum ClaimValue<'t> {
    Text(Cow<'t, str>),
    Positive(u64),
    Negative(i64),
    Fraction(f64),
    List(Vec<ClaimValue<'t>>),
    Other,
}

impl<'t> Claims<'t> {
    /// Parses a payload and also keeps the claims in `names`. `None` if the payload is no object of distinct claims.
    pub(super) fn parse(json: &'t str, names: ClaimNames<'t>) -> Option<Self> {
        let mut deserializer = serde_json::Deserializer::from_str(json);
        let claims = deserializer.deserialize_map(Self { names, ..Self::default() }).ok()?;
        deserializer.end().ok()?;
        Some(claims)
    }

    /// The claim with this index in `names`.
    pub(super) fn configured(&self, index: usize) -> Option<&ClaimValue<'t>> {
        let name = self.names[index]?;
        match name {
            "exp" => self.exp.as_ref(),
            "nbf" => self.nbf.as_ref(),
            "iss" => self.iss.as_ref(),
            "aud" => self.aud.as_ref(),
            _ => self.others[self.index_of(name)?].as_ref(),
        }
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == Some(name))
    }

    fn slot(&mut self, name: &str) -> Option<&mut Option<ClaimValue<'t>>> {
        match name {
            "exp" => Some(&mut self.exp),
            "nbf" => Some(&mut self.nbf),
            "iss" => Some(&mut self.iss),
            "aud" => Some(&mut self.aud),
            name => self.index_of(name).map(|place| &mut self.others[place]),
        }
    }
}

impl ClaimValue<'_> {
    /// A `NumericDate` (RFC 7519, 2): seconds since the epoch, possibly with a fraction.
    pub(super) fn date(&self) -> Option<Timestamp> {
        let since_epoch = match *self {
            Self::Positive(seconds) => Duration::from_secs(seconds),
            Self::Fraction(seconds) if seconds > 0.0 => Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
            Self::Negative(_) | Self::Fraction(_) => Duration::ZERO,
            Self::Text(_) | Self::List(_) | Self::Other => return None,
        };
        Some(Timestamp::from_ns(saturating_ns(since_epoch)))
    }

    /// A name: text that is neither empty nor too long.
    pub(super) fn name(&self) -> Option<Arc<str>> {
        match self {
            Self::Text(text) => (1..=VALUE_BYTES_MAX).contains(&text.len()).then(|| Arc::from(&**text)),
            _ => None,
        }
    }

    /// The name of the client: text, or an integer in decimal.
    pub(super) fn client(&self) -> Option<Arc<str>> {
        match self {
            Self::Text(_) => self.name(),
            Self::Positive(number) => Some(Arc::from(itoa::Buffer::new().format(*number))),
            Self::Negative(number) => Some(Arc::from(itoa::Buffer::new().format(*number))),
            Self::Fraction(_) | Self::List(_) | Self::Other => None,
        }
    }

    pub(super) fn is(&self, wanted: &str) -> bool {
        matches!(self, Self::Text(text) if text == wanted)
    }

    pub(super) fn is_or_includes(&self, wanted: &str) -> bool {
        match self {
            Self::List(values) => values.iter().any(|value| value.is(wanted)),
            value => value.is(wanted),
        }
    }
}

/// Reads the claims into claims that have none.
impl<'de> Visitor<'de> for Claims<'de> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of claims")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self, A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            match self.slot(&name) {
                Some(Some(_)) => return Err(A::Error::custom("a claim comes twice")),
                Some(slot) => *slot = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(self)
    }
}

/// The name of a claim, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Name<'t>(#[serde(borrow)] Cow<'t, str>);

impl<'de> Deserialize<'de> for ClaimValue<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = ClaimValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<ClaimValue<'de>, E> {
        Ok(ClaimValue::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<ClaimValue<'de>, E> {
        Ok(ClaimValue::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<ClaimValue<'de>, E> {
        Ok(ClaimValue::Positive(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<ClaimValue<'de>, E> {
        Ok(ClaimValue::Negative(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<ClaimValue<'de>, E> {
        Ok(ClaimValue::Fraction(number))
    }

    fn visit_bool<E>(self, _: bool) -> Result<ClaimValue<'de>, E> {
        Ok(ClaimValue::Other)
    }

    fn visit_unit<E>(self) -> Result<ClaimValue<'de>, E> {
        Ok(ClaimValue::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ClaimValue<'de>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element()? {
            values.push(value);
        }
        Ok(ClaimValue::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ClaimValue<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(ClaimValue::Other)
    }
}
