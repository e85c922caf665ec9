//! Login with a token, and logout.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use http::header::{HeaderValue, SET_COOKIE};
use http::{StatusCode, Uri};

use super::fields::{FormFields, link};
use super::pages::Pages;
use super::session::Secret;
use super::shell::{self, Visitor, page, see_other};
use crate::admin::answer::Answer;

#[derive(Template)]
#[template(path = "login.html", config = "src/admin/page/askama.toml")]
struct LoginPage<'p> {
    csrf: &'p str,
    /// The page to go to after the login.
    to: &'p str,
    done: Option<&'static str>,
    error: Option<&'static str>,
}

/// The form.
pub(super) async fn show(State(pages): State<Arc<Pages>>, visitor: Option<Extension<Visitor>>, uri: Uri) -> Answer {
    let query = FormFields::parse(uri.query().unwrap_or_default().as_bytes());
    if visitor.is_some() {
        return see_other(local(query.get("to")));
    }
    form(&pages, query.get("to"), StatusCode::OK, (shell::done(&query), None))
}

fn form(
    pages: &Pages,
    to: &str,
    status: StatusCode,
    (done, error): (Option<&'static str>, Option<&'static str>),
) -> Answer {
    let csrf = pages.csrf.as_ref().map_or("", Secret::text);
    page(status, &LoginPage { csrf, to: local(to), done, error })
}

/// Begins a session. A wrong token counts against the address that sent it.
pub(super) async fn begin(
    State(pages): State<Arc<Pages>>,
    Extension(address): Extension<Option<IpAddr>>,
    Extension(fields): Extension<FormFields>,
) -> Answer {
    let (now, access) = (pages.now(), pages.admin.access.load_full());
    // A token is accepted in any case: behind a proxy all operators have one address.
    let Some(token) = access.token_of(fields.get("token").as_bytes()) else {
        if !pages.attempts(|attempts| attempts.may_fail(address, now)) {
            let error = Some("Too many logins have failed. Wait a minute.");
            return form(&pages, fields.get("to"), StatusCode::TOO_MANY_REQUESTS, (None, error));
        }
        pages.attempts(|attempts| attempts.failed(address, now));
        tracing::warn!(address = address.map(tracing::field::display), "a login of the web page failed");
        let error = Some("This is not a token of this listener.");
        return form(&pages, fields.get("to"), StatusCode::FORBIDDEN, (None, error));
    };
    let begun = pages.sessions(|sessions| sessions.begin(token.clone(), &access, now));
    let Some(id) = begun else {
        return shell::problem(StatusCode::INTERNAL_SERVER_ERROR, "The system has no random numbers.");
    };
    tracing::info!(token = &*token.name, address = address.map(tracing::field::display), "an operator has logged in");
    with_cookie(see_other(local(fields.get("to"))), &pages, id.text(), "")
}

/// Ends the session.
pub(super) async fn end(State(pages): State<Arc<Pages>>, Extension(visitor): Extension<Visitor>) -> Answer {
    let Some(id) = visitor.session else { return see_other("/") };
    pages.sessions(|sessions| sessions.end(&id));
    with_cookie(see_other(&link("/login", &[("done", "out")])), &pages, "", "; Max-Age=0")
}

/// Sets the cookie of the session.
fn with_cookie(mut answer: Answer, pages: &Pages, value: &str, more: &str) -> Answer {
    let secure = if pages.admin.is_tls { "; Secure" } else { "" };
    let cookie = format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}", pages.cookie_name());
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}

/// The target if it is on this listener, or else the first page. Browsers read `//` and `/\` as the begin of a host, and
/// skip control characters.
fn local(target: &str) -> &str {
    let is_plain = target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if target.starts_with('/') && !target.starts_with("//") && is_plain { target } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_this_listener_only() {
        for target in ["/", "/key?limit=a&key=b%2F%2Fc", "/bans?done=banned"] {
            assert_eq!(local(target), target);
        }
        for target in ["", "limits", "//evil.example", "/\\evil.example", "/\t/evil.example", "https://evil.example"] {
            assert_eq!(local(target), "/", "{target:?}");
        }
    }
}
