//! The path under which clients see their own limits. It is no request to a service: no limit is charged but its own.

use http::Method;

use super::access_record::AccessRecord;
use super::context::{NotForwarded, RequestContext};
use super::request::Request;
use crate::engine::gate::{AccessError, OwnLimitsError};
use crate::engine::policy::{ClientApi, Facts};
use crate::transport::respond::{LocalReply, OwnLimitsReply};

impl<'v> RequestContext<'v> {
    /// Answers a request for the path, if the configuration has one, or redirects a request without TLS.
    #[inline]
    pub(super) fn answer_itself(
        &self,
        request: &Request<'_>,
        facts: &Facts<'_>,
        (authority, path): (&str, &str),
        is_grpc: bool,
        record: &mut AccessRecord<'_>,
    ) -> Result<(), NotForwarded<'v>> {
        self.redirect_to_tls(facts, authority, path, is_grpc)?;
        match &self.config.running.live.policy.client_api {
            Some(api) if *api.path == *facts.path => Err(self.own_limits(api, request, facts, is_grpc, record)),
            _ => Ok(()),
        }
    }

    #[cold]
    fn own_limits(
        &self,
        api: &ClientApi,
        request: &Request<'_>,
        facts: &Facts<'_>,
        is_grpc: bool,
        record: &mut AccessRecord<'_>,
    ) -> NotForwarded<'v> {
        record.identified(facts.client_ip, facts.host, facts.path);
        let (gate, live) = (&self.worker.shared.gate, &self.config.running.live);
        let now = gate.clock().at(self.began);
        if let Some(refusal) = gate.refuse_address(facts.client_ip, now) {
            record.refused(&refusal);
            return LocalReply::refusal(refusal, facts.headers, is_grpc).into();
        }
        let on_arrival = live.policy.access.as_deref().map(|access| access.on_arrival(facts.client_ip, facts.path));
        let is_free = match on_arrival.transpose() {
            Ok(is_free) => is_free.unwrap_or_default(),
            Err(ground) => return self.denied(ground, is_grpc),
        };
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return self.counted(LocalReply::method_refused("the limits of a client can only be read", "GET, HEAD"));
        }
        match gate.own_limits((live, api), facts, is_free, now) {
            Ok(limits) => NotForwarded::OwnLimits(Box::new(OwnLimitsReply::new(&limits, facts.headers, now))),
            Err(OwnLimitsError::TooOften(retry)) => LocalReply::too_often(retry).into(),
            Err(OwnLimitsError::Access(AccessError::Denied(ground))) => self.denied(ground, is_grpc),
            Err(OwnLimitsError::Access(AccessError::Unidentified(missing))) => self.unkeyed(missing.into(), is_grpc),
        }
    }
}
