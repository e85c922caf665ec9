//! The plan of a request: a name that gives a limit other numbers, or opens a path.
//!
//! Not here: the effects of a plan, and the verification of tokens (gate).

use std::ops::Deref;
use std::sync::Arc;

use http::HeaderName;

use crate::base::fields::Fields;

/// The source of the plan of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanSource {
    /// A claim of the token, or the plan of the API key, of the identity with this index.
    Claim(usize),
    /// A header, trusted without a check.
    Header(HeaderName),
}

/// The name of the plan of a request; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan<'f> {
    /// A claim of a verified token, or the plan of an API key.
    Claim(Arc<str>),
    /// A value of a header.
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
    /// The plan in this header, without white space around it. None if the value is not UTF-8, or if there are several
    /// values: one of them may be the client's own.
    pub fn in_header(headers: Fields<'f>, name: &HeaderName) -> Option<Self> {
        let mut values = headers.all(name.as_str());
        let value = str::from_utf8(values.next()?).ok()?.trim();
        (values.next().is_none() && !value.is_empty()).then_some(Self::Header(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::fields::FieldBuf;

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
