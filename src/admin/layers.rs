//! The layers of the router: who may ask, and what.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Request, State};
use axum::middleware::Next;
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::access::{Operator, PeerAddress, Role};
use super::answer::{Answer, problem};
use super::connections::CONNECTIONS_MAX;
use super::guard;
use super::state::Admin;

/// Far longer than a change takes.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Refuses requests without a token. Notes the operator of every other request.
pub(super) async fn authenticate(State(admin): State<Arc<Admin>>, mut request: Request, next: Next) -> Answer {
    let Some((token, role)) = admin.access.load().role_of(request.headers()) else {
        let detail = if request.headers().contains_key(AUTHORIZATION) {
            "Authorization: this is not a token of this listener"
        } else {
            "Authorization: the token of this listener is required"
        };
        let mut refusal = problem(StatusCode::UNAUTHORIZED, detail);
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

/// The changes that may be made at once. Each connection has one at most, but the change of a client that has left goes on.
pub(super) fn changes() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONNECTIONS_MAX))
}

/// Makes a change in a task of its own. So neither a client that leaves nor a timeout separates the change from its line
/// in the audit log.
pub(super) async fn complete(State(changes): State<Arc<Semaphore>>, request: Request, next: Next) -> Answer {
    let permit = changes.acquire_owned().await;
    let change = tokio::spawn(async move {
        let _permit = permit; // until the change is complete
        next.run(request).await
    });
    match timeout(CHANGE_TIMEOUT, change).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => problem(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        Err(_) => problem(StatusCode::SERVICE_UNAVAILABLE, "the request timed out; it may still take effect"),
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::post;
    use tokio::sync::mpsc;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_completed_without_its_client() {
        let (made, mut changes_made) = mpsc::unbounded_channel();
        let change = move || async move {
            tokio::time::sleep(CHANGE_TIMEOUT * 2).await;
            let _ = made.send(());
        };
        let router = Router::new().route("/", post(change)).route_layer(from_fn_with_state(changes(), complete));
        let ask = || router.clone().oneshot(Request::post("/").body(Body::empty()).unwrap());
        assert_eq!(ask().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
        changes_made.recv().await.unwrap();
        // The last client leaves before its change begins.
        for _ in 0..=CONNECTIONS_MAX {
            assert!(timeout(Duration::from_millis(1), ask()).await.is_err());
        }
        tokio::time::sleep(CHANGE_TIMEOUT * 4).await;
        assert_eq!(changes_made.len(), CONNECTIONS_MAX);
    }
}
