//! The target of a check: its form, and the status of a refusal.

use http::StatusCode;

use super::super::request::Target;
use crate::base::fields::decimal;

/// The form of the description and of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::proxy) enum CheckForm {
    /// Headers, for another proxy: `/auth`.
    Headers,
    /// JSON, for a service: `/v1/check`.
    Json,
}

/// The target of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::proxy) struct CheckTarget {
    pub(in crate::transport::proxy) form: CheckForm,
    /// The status of a refusal by a limit, in place of 429.
    pub(in crate::transport::proxy) refuse: Option<StatusCode>,
}

/// A target that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transport::proxy) enum TargetFault {
    /// Another path.
    Unknown,
    /// A wrong query.
    BadQuery,
}

impl TargetFault {
    /// The detail for people.
    pub(in crate::transport::proxy) fn detail(self) -> &'static str {
        match self {
            Self::Unknown => "the paths are /auth and /v1/check",
            // A proxy may add the query of its client to a target without one.
            Self::BadQuery => "the only parameter is refuse=STATUS, once, with a status from 400 to 599",
        }
    }
}

impl CheckTarget {
    /// Reads a target.
    pub(in crate::transport::proxy) fn of(target: Target<'_>) -> Result<Self, TargetFault> {
        let form = match target.path {
            "/auth" => CheckForm::Headers,
            "/v1/check" => CheckForm::Json,
            _ => return Err(TargetFault::Unknown),
        };
        let refuse = target.query.filter(|query| !query.is_empty()).map(|query| {
            let status = query.strip_prefix("refuse=").and_then(|text| decimal(text.as_bytes()));
            let status = status.filter(|status| (400..=599).contains(status));
            let status = status.and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
            status.ok_or(TargetFault::BadQuery)
        });
        Ok(Self { form, refuse: refuse.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        use CheckForm::{Headers, Json};
        let good = |form, refuse| Ok((form, refuse));
        for (text, expected) in [
            ("/auth", good(Headers, None)),
            ("/auth?", good(Headers, None)),
            ("/auth?refuse=403", good(Headers, Some(403))),
            ("/auth?refuse=400", good(Headers, Some(400))),
            ("/auth?refuse=599", good(Headers, Some(599))),
            ("/v1/check", good(Json, None)),
            ("/v1/check?refuse=503", good(Json, Some(503))),
            ("/", Err(TargetFault::Unknown)),
            ("/auth/", Err(TargetFault::Unknown)),
            ("/AUTH", Err(TargetFault::Unknown)),
            ("/v1/checks?refuse=403", Err(TargetFault::Unknown)),
            ("/auth?refuse=399", Err(TargetFault::BadQuery)),
            ("/auth?refuse=600", Err(TargetFault::BadQuery)),
            ("/auth?refuse=66036", Err(TargetFault::BadQuery)),
            ("/auth?refuse=", Err(TargetFault::BadQuery)),
            ("/auth?refuse=+403", Err(TargetFault::BadQuery)),
            ("/auth?refuse=403&refuse=401", Err(TargetFault::BadQuery)),
            ("/auth?refuse=403&a=b", Err(TargetFault::BadQuery)),
            ("/auth?a=b", Err(TargetFault::BadQuery)),
        ] {
            let read = CheckTarget::of(Target::in_origin_form(text));
            let read = read.map(|target| (target.form, target.refuse.map(|status| status.as_u16())));
            assert_eq!(read, expected, "{text}");
        }
    }
}
