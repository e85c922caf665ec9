//! The frame of each page: its head, its navigation, and the outcome of the last change.

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::StatusCode;
use http::header::{HeaderValue, LOCATION};

use super::fields::FormFields;
use super::session::Secret;
use super::words;
use crate::admin::access::{Operator, Role};
use crate::admin::answer::{Answer, Refused, of_kind};
use crate::base::visible::visible;

/// The operator who asks for a page.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    pub(super) operator: Operator,
    /// The CSRF token of forms; `None` if the system has no random numbers, and then no form is accepted.
    pub(super) csrf: Option<Secret>,
    /// The session; `None` if no token is required.
    pub(super) session: Option<Secret>,
}

/// The frame of a page.
pub(super) struct Shell {
    /// The title of the page.
    pub(super) title: String,
    /// The name of its entry of the navigation.
    entry: &'static str,
    /// The name of the operator's token.
    pub(super) name: Option<Box<str>>,
    /// Whether there is a session to end.
    pub(super) has_session: bool,
    /// Whether the role allows changes.
    pub(super) may_write: bool,
    /// The CSRF token of forms.
    pub(super) csrf: String,
    /// The change that was made.
    pub(super) done: Option<&'static str>,
    /// Why a change was not made.
    pub(super) error: Option<String>,
}

/// The outcomes of changes, by the word that a redirection has for them.
const DONE: &[(&str, &str)] = &[
    ("ended", "The session has ended. Nothing was changed. Log in, and repeat the change."),
    ("out", "You have logged out."),
    ("reset_all", "All keys have all their units back."),
    (
        "reset_many",
        "Many keys have all their units back, but not all: the store of the limit must hear of each. Reset again.",
    ),
    ("banned", "The ban is in force."),
    ("banned_not_kept", "The ban is in force, but it ends with the process. The log has the reason."),
    ("lifted", "The ban was lifted."),
    ("lifted_all", "The bans were lifted."),
    ("lifted_not_kept", "The ban was lifted, but the file of bans cannot be written. The log has the reason."),
    ("reset", "The key has all its units again."),
    ("charged", "The units of the key were changed."),
    ("override", "The override is in force."),
    ("override_not_kept", "The override is in force. It is kept in memory, so it ends with the process."),
    ("removed", "The override was removed."),
    ("drained", "The endpoint gets no new request. Active requests finish."),
    ("undrained", "The drain has ended: the endpoint gets requests again."),
    ("weighted", "The weight is in force."),
    ("reloaded", "The configuration was read, and is in force."),
];

/// The entries of the navigation.
const PAGES: &[(&str, &str)] = &[
    ("/", "Overview"),
    ("/limits", "Limits"),
    ("/client", "Clients"),
    ("/key", "Keys"),
    ("/bans", "Bans"),
    ("/overrides", "Overrides"),
    ("/apikeys", "API keys"),
    ("/upstreams", "Upstreams"),
    ("/configuration", "Configuration"),
    ("/explain", "Explain"),
    ("/audit", "Audit log"),
];

impl Shell {
    /// The frame of the page with this entry of the navigation. The query says which change was made.
    pub(super) fn new(visitor: &Visitor, entry: &'static str, query: &FormFields) -> Self {
        Self {
            title: entry.to_owned(),
            entry,
            name: visitor.operator.token.clone(),
            has_session: visitor.session.is_some(),
            may_write: visitor.operator.role == Role::Write,
            csrf: visitor.csrf.as_ref().map(|csrf| csrf.text().to_owned()).unwrap_or_default(),
            done: done(query),
            error: None,
        }
    }

    /// The frame with another title.
    pub(super) fn with_title(self, title: String) -> Self {
        Self { title, ..self }
    }

    /// The frame with the reason why a change was not made.
    pub(super) fn with_error(self, error: Option<String>) -> Self {
        Self { error: error.map(words::sentence), ..self }
    }

    /// The entries of the navigation: link, name, and whether it is this page.
    pub(super) fn pages(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> + '_ {
        PAGES.iter().map(|(path, name)| (*path, *name, *name == self.entry))
    }
}

/// The outcome that a query names.
pub(super) fn done(query: &FormFields) -> Option<&'static str> {
    DONE.iter().find(|(word, _)| *word == query.get("done")).map(|(_, text)| *text)
}

#[derive(Template)]
#[template(path = "problem.html", config = "src/admin/page/askama.toml")]
struct ProblemPage<'p> {
    title: &'p str,
    detail: &'p str,
}

/// What a handler shows. The error is a page in place of the one that was asked for.
pub(super) type Shown = Result<Answer, Answer>;

/// The page that shows a refusal of the API alone.
pub(super) fn refused(Refused(status, detail): Refused) -> Answer {
    problem(status, &detail)
}

/// A page that says why there is no other one.
pub(super) fn problem(status: StatusCode, detail: &str) -> Answer {
    let title = status.canonical_reason().unwrap_or("Error");
    page(status, &ProblemPage { title, detail })
}

/// A page as an answer, without marks of direction.
pub(super) fn page(status: StatusCode, template: &impl Template) -> Answer {
    const KIND: &str = "text/html; charset=utf-8";
    match template.render() {
        Ok(text) => of_kind(status, KIND, visible(&text).into_owned()),
        Err(error) => {
            tracing::error!(%error, "a page cannot be rendered");
            of_kind(StatusCode::INTERNAL_SERVER_ERROR, KIND, "This page cannot be rendered.")
        }
    }
}

/// A redirection to a page of this listener, by GET.
pub(super) fn see_other(target: &str) -> Answer {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    if let Ok(target) = HeaderValue::from_str(target) {
        answer.headers_mut().insert(LOCATION, target);
    }
    answer
}
