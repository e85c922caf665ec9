//! The layers before the pages: known names of the listener, forms of this listener only, sessions, and header fields that
//! bound what a browser does with a page.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::IntoResponse;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, StatusCode};

use super::fields::{FormFields, link};
use super::pages::Pages;
use super::session::Secret;
use super::shell::{self, Visitor};
use crate::admin::access::{Operator, PeerAddress, Role};
use crate::admin::answer::Answer;
use crate::admin::{body, guard};

/// Nothing is loaded from elsewhere, and no page has scripts or styles in itself.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The script asks with this field for a page that it refreshes. Such a request does not prolong a session.
const REFRESH: HeaderName = HeaderName::from_static("weir-refresh");

/// Refuses requests that the page of another listener may have caused, and reads the fields of a form. A form must have
/// the CSRF token of its page.
pub(super) async fn protect(State(pages): State<Arc<Pages>>, request: Request, next: Next) -> Answer {
    let mut answer = match admitted(&pages, request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal,
    };
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With `no-referrer` a browser would send `Origin: null` with forms.
        (REFERRER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

async fn admitted(pages: &Pages, request: Request) -> Result<Request, Answer> {
    let (mut head, content) = request.into_parts();
    let access = pages.admin.access.load_full();
    if let Some(refusal) = guard::refuse_host(&head, pages.admin.address, &access.hosts) {
        return Err(refusal);
    }
    let address = head.extensions.get::<PeerAddress>().and_then(|PeerAddress(address)| *address);
    head.extensions.insert(address);
    let visitor = visitor(pages, &head.headers, address);
    let csrf = visitor.as_ref().map_or_else(|| pages.csrf.clone(), |visitor| visitor.csrf.clone());
    if let Some(visitor) = visitor {
        head.extensions.insert(visitor);
    }
    if head.method == Method::POST {
        let refused = |detail: &str| shell::problem(StatusCode::FORBIDDEN, detail);
        if !guard::is_same_origin(&head) {
            return Err(refused("This form is not of this page, so it was refused."));
        }
        let fields = FormFields::parse(&body::bytes(content, body::BODY_BYTES_MAX).await?);
        if !csrf.is_some_and(|csrf| csrf.is(fields.get("csrf"))) {
            // The page of a session that has ended leads to the login, with nothing changed.
            if head.extensions.get::<Visitor>().is_none() && head.uri.path() != "/login" {
                return Err(shell::see_other(&link("/login", &[("done", "ended")])));
            }
            return Err(refused("This form is too old. Go back, load the page anew, and repeat the change."));
        }
        head.extensions.insert(fields);
        return Ok(Request::from_parts(head, Body::empty()));
    }
    Ok(Request::from_parts(head, content))
}

/// The operator of a request; `None` if it needs a session and has none.
fn visitor(pages: &Pages, headers: &HeaderMap, address: Option<IpAddr>) -> Option<Visitor> {
    let access = pages.admin.access.load();
    if access.tokens.is_empty() {
        let operator = Operator { token: None, address, role: Role::Write };
        return Some(Visitor { operator, csrf: pages.csrf.clone(), session: None });
    }
    let id = Secret::of(cookie(headers, &pages.cookie_name())?);
    let is_active = !headers.contains_key(REFRESH);
    let now = pages.now();
    let (token, csrf) = pages.sessions(|sessions| sessions.visit(&id, &access, is_active, now))?;
    let operator = Operator { token: Some(token.name), address, role: token.role };
    Some(Visitor { operator, csrf: Some(csrf), session: Some(id) })
}

/// The value of a cookie.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim_ascii().split_once('='));
    pairs.find(|(known, _)| *known == name).map(|(_, value)| value)
}

/// Leads requests without a session to the login.
pub(super) async fn require_session(request: Request, next: Next) -> Answer {
    if request.extensions().get::<Visitor>().is_some() {
        return next.run(request).await;
    }
    let to = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let to = if request.method() == Method::GET { to } else { "/" };
    shell::see_other(&link("/login", &[("to", to)])).into_response()
}
