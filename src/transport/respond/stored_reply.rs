//! A stored answer as a response: its fields with those of now.
//!
//! Not here: the status line, framing headers and the body, which differ by protocol.

use std::fmt::Write as _;

use super::headers::number;
use super::{Disposition, HeaderSink, Profiles, is_limit_header, is_retirement_header, limit_headers};
use crate::engine::gate::{Budgets, Standing};
use crate::engine::policy::StaleCause;
use crate::transport::stale::Found;

/// A stored answer with the limit headers of now.
#[derive(Debug)]
pub struct StoredReply<'a> {
    found: Found,
    cause: StaleCause,
    /// The status of the service, if it answered.
    forward_status: Option<u16>,
    standing: Option<Standing<'a>>,
    budgets: Budgets<'a>,
    /// The id of the request, if requests have ids.
    id: Option<Box<str>>,
}

impl<'a> StoredReply<'a> {
    /// The stored answer to a request with this standing. `forward_status` is that of the service, if it answered.
    pub(crate) fn new(
        found: Found,
        cause: StaleCause,
        forward_status: Option<u16>,
        (standing, budgets): (Option<Standing<'a>>, Budgets<'a>),
    ) -> Self {
        Self { found, cause, forward_status, standing, budgets, id: None }
    }

    /// Sets the id of the request.
    pub(crate) fn set_id(&mut self, id: &str) {
        self.id = Some(id.into());
    }

    /// Why the request gets it.
    pub(crate) fn cause(&self) -> StaleCause {
        self.cause
    }

    /// The body.
    pub(crate) fn body(&self) -> &[u8] {
        self.found.answer.body()
    }

    /// `Cache-Status` (RFC 9211). A request that was forwarded is no hit.
    fn cache_status(&self) -> String {
        let (ttl_s, detail) = (self.found.reuse.ttl_s, self.cause.label());
        let mut status = "weir".to_owned();
        // Writing to memory does not fail.
        let _ = match (self.cause, self.forward_status) {
            (StaleCause::Refused, _) => write!(status, "; hit"),
            (_, Some(forward_status)) => write!(status, "; fwd=stale; fwd-status={forward_status}"),
            (_, None) => write!(status, "; fwd=stale"),
        };
        let _ = write!(status, "; ttl={ttl_s}; detail={detail}");
        status
    }

    /// The fields of the service, without those that [`Self::write_fields`] replaces.
    pub(crate) fn fields(&self, profiles: Profiles) -> impl Iterator<Item = (&[u8], &[u8])> {
        let is_retired = self.budgets.iter().any(|budget| budget.retirement().is_some());
        let is_replaced = move |name: &[u8]| {
            let is = |lower: &str| name.eq_ignore_ascii_case(lower.as_bytes());
            is("age")
                || is("retry-after")
                || (self.id.is_some() && is("x-request-id"))
                || (self.standing.is_some() && is_limit_header(profiles, name))
                || (is_retired && is_retirement_header(name))
        };
        self.found.answer.fields().iter().filter(move |(name, _)| !is_replaced(name))
    }

    /// Writes the fields of Weir. Its member of `Cache-Status` comes behind those of caches that are nearer to the
    /// service.
    pub(crate) fn write_fields(&self, sink: &mut impl HeaderSink, profiles: Profiles) {
        number(sink, "age", self.found.reuse.age_s);
        sink.put("cache-status", &self.cache_status());
        if let Some(id) = &self.id {
            sink.put("x-request-id", id);
        }
        if let Some(standing) = &self.standing {
            limit_headers(sink, profiles, standing, &self.budgets, Disposition::Forwarded);
        }
    }
}
