//! The state behind the pages.

use std::hash::RandomState;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::extract::rejection::ExtensionRejection;
use axum::{Extension, Router};
use http::Method;
use http::request::Parts;

use super::api::Api;
use super::fields::FormFields;
use super::session::{Secret, Sessions};
use super::shell::Visitor;
use crate::admin::followed::FollowedClients;
use crate::admin::state::Admin;
use crate::base::attempts::Attempts;
use crate::base::time::Timestamp;

/// The state behind the pages.
pub(super) struct Pages {
    pub(super) admin: Arc<Admin>,
    pub(super) api: Api,
    /// Held for a look-up or a change, never across an await.
    sessions: Mutex<Sessions>,
    /// Held to look up or count one address.
    attempts: Mutex<Attempts>,
    /// The CSRF token of pages without a session.
    pub(super) csrf: Option<Secret>,
    /// The clients whose requests are kept.
    pub(super) followed: Arc<FollowedClients>,
    /// Hashes overrides for forms.
    pub(super) references: RandomState,
}

impl Pages {
    pub(super) fn new(admin: Arc<Admin>, api: Router, followed: Arc<FollowedClients>) -> Self {
        let (sessions, attempts) = (Mutex::default(), Mutex::default());
        let (csrf, references) = (Secret::random(), RandomState::new());
        Self { admin, api: Api::new(api), sessions, attempts, csrf, followed, references }
    }

    /// The instant of a request.
    pub(super) fn now(&self) -> Timestamp {
        self.admin.gate.clock().now()
    }

    /// Calls `change` with the sessions.
    pub(super) fn sessions<T>(&self, change: impl FnOnce(&mut Sessions) -> T) -> T {
        change(&mut self.sessions.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `change` with the failed logins.
    pub(super) fn attempts<T>(&self, change: impl FnOnce(&mut Attempts) -> T) -> T {
        change(&mut self.attempts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The name of the cookie of a session. Browsers send a cookie to all ports of a host, so the name has the port. With
    /// the prefix `__Host-` a browser accepts a cookie only over TLS, for this host alone (RFC 6265bis, section 4.1.3).
    pub(super) fn cookie_name(&self) -> String {
        let prefix = if self.admin.is_tls { "__Host-" } else { "" };
        format!("{prefix}weir-{}", self.admin.address.port())
    }
}

/// A request for a page that an operator sees.
pub(super) struct PageRequest {
    pub(super) pages: Arc<Pages>,
    pub(super) visitor: Visitor,
    /// The fields of a form; those of the query if the request is not a form.
    pub(super) fields: FormFields,
}

impl FromRequestParts<Arc<Pages>> for PageRequest {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(head: &mut Parts, pages: &Arc<Pages>) -> Result<Self, ExtensionRejection> {
        let Extension(visitor) = Extension::from_request_parts(head, pages).await?;
        let fields = if head.method == Method::POST {
            Extension::from_request_parts(head, pages).await?.0
        } else {
            FormFields::parse(head.uri.query().unwrap_or_default().as_bytes())
        };
        Ok(Self { pages: Arc::clone(pages), visitor, fields })
    }
}
