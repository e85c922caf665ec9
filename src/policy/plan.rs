//! Which plan a request has: a name that gives a limit other numbers, or opens a path.
//!
//! Not here: what a plan changes. Looking a token up, and verifying it, is for the gate.

use std::ops::Deref;
use std::sync::Arc;

use http::HeaderName;

use crate::fields::Fields;

/// Where the name of a request's plan is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanSource {
    /// In another claim of the token that the identity with this index comes from.
    Claim(usize),
    /// In a header, trusted as it stands.
    Header(HeaderName),
}

/// The name of a request's plan; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan<'f> {
    /// From a verified token.
    Claim(Arc<str>),
    /// From a header.
    Header(&'f str),
}

impl Deref for Plan<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Claim(name) => name,
            Self::Header(name) => name,
        }
    }
}

impl<'f> Plan<'f> {
    /// The plan in this header, without white space around it: none if it is not text, or if there are several, of which
    /// one may be the client's own.
    pub fn in_header(headers: Fields<'f>, name: &HeaderName) -> Option<Self> {
        let mut values = headers.all(name.as_str());
        let value = str::from_utf8(values.next()?).ok()?.trim();
        (values.next().is_none() && !value.is_empty()).then_some(Self::Header(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::FieldBuf;

    #[test]
    fn plans_in_headers() {
        let name = HeaderName::from_static("x-plan");
        for (values, plan) in [
            (&[][..], None),
            (&[&b"premium"[..]][..], Some("premium")),
            (&[b"Premium"], Some("Premium")),
            (&[b""], None),
            (&[b"\xFF"], None),
            (&["\u{a0}premium\u{85}".as_bytes()], Some("premium")),
            (&[b"premium\xA0"], None),
            (&["\u{a0}".as_bytes()], None),
            (&[b"premium", b"premium"], None),
            (&[b"free", b"premium"], None),
            (&[b"free", b""], None),
        ] {
            let headers: FieldBuf = values.iter().map(|value| ("X-Plan", value)).collect();
            assert_eq!(Plan::in_header(headers.fields(), &name).as_deref(), plan, "{values:?}");
        }
    }
}
