//! The verified identities and the plan of a request, as its service gets them in header fields.

use http::HeaderName;

use super::identify::RequestIdentities;
use super::state::{Gate, Live};
use crate::base::time::Timestamp;
use crate::engine::policy::identity_header::{IdentityHeader, IdentityValue, is_field_value};
use crate::engine::policy::{Facts, Principal};

/// Names and values of fields.
pub type IdentityFields<'l> = Vec<(&'l HeaderName, Box<[u8]>)>;

impl Gate {
    /// The fields in which the service gets the identities and the plan of the request. A value that is missing, wrong, not
    /// proven or no value of a field has no field.
    #[inline]
    pub fn identity_fields<'l>(&self, live: &'l Live, facts: &Facts<'_>, now: Timestamp) -> IdentityFields<'l> {
        let headers = &*live.policy.identity_headers;
        if headers.is_empty() {
            return IdentityFields::new();
        }
        let mut request = RequestIdentities::new(self, live, facts, now);
        let field = |header: &'l IdentityHeader| {
            let value = value(&mut request, header.value).filter(|value| is_field_value(value))?;
            Some((&header.name, value))
        };
        headers.iter().filter_map(field).collect()
    }
}

fn value(request: &mut RequestIdentities<'_, '_, '_>, value: IdentityValue) -> Option<Box<[u8]>> {
    match value {
        IdentityValue::Removed => None,
        IdentityValue::Plan => Some(request.proven_plan().ok()??.as_bytes().into()),
        IdentityValue::Identity(index) => match &request.find(index).ok()??.principal {
            Principal::Bytes(bytes) => Some((*bytes).into()),
            Principal::Joined(bytes) => Some((**bytes).into()),
            Principal::Claim(text) => Some(text.as_bytes().into()),
            Principal::Anonymous | Principal::Ip => None,
        },
    }
}
