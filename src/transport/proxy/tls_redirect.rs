//! Redirects of requests without TLS to the listeners with TLS, before any limit.

use super::context::{NotForwarded, RequestContext};
use super::host;
use super::settings::PlainListeners;
use crate::engine::policy::client_ip::AddressHeader;
use crate::engine::policy::{Facts, RefusalAnswer, compared, forwarded};
use crate::transport::respond::{LocalReply, ProblemKind};

/// Certificate authorities ask for these paths without TLS (RFC 8555, section 8.3).
const ACME: &str = "/.well-known/acme-challenge/";
const HTTPS_PORT: u16 = 443;

impl<'v> RequestContext<'v> {
    /// Answers 308 to a request without TLS, if the configuration says so.
    #[inline]
    pub(super) fn redirect_to_tls(
        &self,
        facts: &Facts<'_>,
        authority: &str,
        path: &str,
        is_grpc: bool,
    ) -> Result<(), NotForwarded<'v>> {
        match self.config.running.settings.plain {
            Some(PlainListeners { redirect_port: Some(port) }) if !self.peer.is_tls => {
                self.redirect(port, facts, (authority, path), is_grpc)
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn redirect(
        &self,
        port: u16,
        facts: &Facts<'_>,
        (authority, path): (&str, &str),
        is_grpc: bool,
    ) -> Result<(), NotForwarded<'v>> {
        if path.starts_with(ACME) || self.is_proxied_tls(facts) {
            return Ok(());
        }
        let host = host::host(authority);
        if host.is_empty() {
            return Err(self.problem(ProblemKind::BadHost, "a redirect needs a host"));
        }
        let port = if port == HTTPS_PORT { String::new() } else { format!(":{port}") };
        let path = path.strip_prefix('*').unwrap_or(path);
        let query = facts.query.map(|query| format!("?{query}")).unwrap_or_default();
        let url = format!("https://{host}{port}{path}{query}").into();
        self.count(ProblemKind::NoTls);
        let status = ProblemKind::NoTls.status();
        let reply = LocalReply::new(ProblemKind::NoTls, "this address needs TLS", is_grpc);
        Err(reply.answered_by(RefusalAnswer::Redirect { status, url }).into())
    }

    /// Whether a trusted proxy has the request over TLS. Only the header that it writes is read.
    fn is_proxied_tls(&self, facts: &Facts<'_>) -> bool {
        let last = |name: &str| facts.headers.all(name).last();
        facts.is_proxied
            && match self.config.running.live.policy.client_ip.header {
                AddressHeader::XForwardedFor => {
                    last("x-forwarded-proto").is_some_and(|last| compared(last).eq_ignore_ascii_case(b"https"))
                }
                AddressHeader::Forwarded => last("forwarded").is_some_and(forwarded::ends_with_https),
            }
    }
}
