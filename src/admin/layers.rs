//! The layers of the router: who may ask, and what.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::Next;
use http::StatusCode;
use http::header::{HeaderValue, WWW_AUTHENTICATE};

use super::access::{Operator, PeerAddress, Role};
use super::answer::{Answer, problem};
use super::guard;
use super::state::Admin;

/// Refuses requests without a token, and tells all others who sends them.
pub(super) async fn authenticate(State(admin): State<Arc<Admin>>, mut request: Request, next: Next) -> Answer {
    let Some((token, role)) = admin.access.load().role_of(request.headers()) else {
        let mut refusal = problem(StatusCode::UNAUTHORIZED, "Authorization: the token of this listener is required");
        refusal.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"weir\""));
        return refusal;
    };
    let address = request.extensions().get::<PeerAddress>().and_then(|PeerAddress(address)| *address);
    request.extensions_mut().insert(Operator { token, address, role });
    next.run(request).await
}

/// Refuses requests that a web page may have caused.
pub(super) async fn refuse_pages(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Answer {
    let (head, body) = request.into_parts();
    let refusal = guard::refuse(&head, admin.address, &admin.access.load().hosts);
    match refusal {
        Some(refusal) => refusal,
        None => next.run(Request::from_parts(head, body)).await,
    }
}

/// Refuses requests of tokens that may only read.
pub(super) async fn require_write(Extension(operator): Extension<Operator>, request: Request, next: Next) -> Answer {
    match operator.role {
        Role::Write => next.run(request).await,
        Role::Read => problem(StatusCode::FORBIDDEN, "this token may only read; its role is `read`"),
    }
}
