//! The target of a check: its form, and the status of a refusal.

use http::StatusCode;

use super::super::request::Target;
use crate::base::fields::decimal;
use crate::transport::respond::ProblemKind;

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

impl CheckTarget {
    /// Reads a target. Errs with the kind of the problem and the detail for people.
    pub(in crate::transport::proxy) fn of(target: Target<'_>) -> Result<Self, (ProblemKind, &'static str)> {
        let form = match target.path {
            "/auth" => CheckForm::Headers,
            "/v1/check" => CheckForm::Json,
            _ => return Err((ProblemKind::NoRoute, "the paths are /auth and /v1/check")),
        };
        let refuse = target.query.filter(|query| !query.is_empty()).map(|query| {
            let status = query.strip_prefix("refuse=").and_then(|text| decimal(text.as_bytes()));
            let status = status.filter(|status| (400..=599).contains(status));
            let status = status.and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok());
            // A proxy may add the query of its client to a target without one.
            let detail = "the only parameter is refuse=STATUS, once, with a status from 400 to 599";
            status.ok_or((ProblemKind::BadCheck, detail))
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
            ("/", Err(ProblemKind::NoRoute)),
            ("/auth/", Err(ProblemKind::NoRoute)),
            ("/AUTH", Err(ProblemKind::NoRoute)),
            ("/v1/checks?refuse=403", Err(ProblemKind::NoRoute)),
            ("/auth?refuse=399", Err(ProblemKind::BadCheck)),
            ("/auth?refuse=600", Err(ProblemKind::BadCheck)),
            ("/auth?refuse=66036", Err(ProblemKind::BadCheck)),
            ("/auth?refuse=", Err(ProblemKind::BadCheck)),
            ("/auth?refuse=+403", Err(ProblemKind::BadCheck)),
            ("/auth?refuse=403&refuse=401", Err(ProblemKind::BadCheck)),
            ("/auth?refuse=403&a=b", Err(ProblemKind::BadCheck)),
            ("/auth?a=b", Err(ProblemKind::BadCheck)),
        ] {
            let read = CheckTarget::of(Target::in_origin_form(text));
            let read =
                read.map(|target| (target.form, target.refuse.map(|status| status.as_u16()))).map_err(|(kind, _)| kind);
            assert_eq!(read, expected, "{text}");
        }
    }
}
