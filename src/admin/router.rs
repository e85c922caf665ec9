//! The paths of the admin listener, the layers before them, and the document that describes them.
//!
//! The layers, from the outside: a token for everything but probes; for the API, no requests of web pages; for changes,
//! the role `write`, and a task of their own. The web page has layers of its own.

use std::sync::atomic::Ordering;
use std::sync::{Arc, LazyLock};

use axum::extract::{Request, State};
use axum::middleware::{from_extractor, from_fn, from_fn_with_state};
use axum::{Extension, Router};
use bytes::Bytes;
use http::StatusCode;
use http::header::{ALLOW, HeaderValue};
use tower::Service as _;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::answer::{Answer, of_kind, problem, text};
use super::body::{NoParameters, Parameters};
use super::followed::FollowedClients;
use super::state::Admin;
use super::{
    api_keys, audit_list, ban_changes, bans, client, configuration, endpoint_orders, explain, exposition, fleet,
    history, keys, layers, overrides, page, plans, refusals, resets, spend, tap, top, upstreams, versions,
};

const DOCUMENT_PATH: &str = "/v1/openapi.json";

#[derive(OpenApi)]
#[openapi(
    info(title = "Weir admin API", description = "Health, metrics, explanations, keys, bans, overrides, plans, API keys and upstreams of a running Weir."),
    security(("token" = []))
)]
struct Document;

/// The routes with their layers. Those of the API and of the page are made for their first request: in a debug build they
/// took half of the instructions of a start.
pub(super) fn router(admin: Admin) -> Router {
    let admin = Arc::new(admin);
    let [probes, metrics] = [probes(), metrics()].map(Router::from);
    let metrics = metrics.layer(from_fn_with_state(Arc::clone(&admin), layers::authenticate));
    let served = metrics.merge(probes).with_state(Arc::clone(&admin));
    let others = Arc::new(LazyLock::new(move || api_and_page(admin)));
    served.fallback(move |request: Request| Router::clone(&others).call(request))
}

/// The routes of the API and of the page with their layers.
fn api_and_page(admin: Arc<Admin>) -> Router {
    let followed = Arc::new(FollowedClients::default());
    let api = Router::from(api()).layer(Extension(Arc::clone(&followed)));
    let page = page::router(Arc::clone(&admin), api.clone().with_state(Arc::clone(&admin)), followed);
    let api = api
        .route_layer(from_fn_with_state(Arc::clone(&admin), layers::refuse_pages))
        .fallback(|| async { problem(StatusCode::NOT_FOUND, format!("the paths are {}", DESCRIPTION.paths)) })
        .layer(from_fn_with_state(Arc::clone(&admin), layers::authenticate));
    api.with_state(admin).merge(page)
}

fn probes() -> OpenApiRouter<Arc<Admin>> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz))
}

fn metrics() -> OpenApiRouter<Arc<Admin>> {
    OpenApiRouter::new().routes(routes!(exposition::metrics))
}

/// The routes of the API. Changes need the role `write`.
fn api() -> OpenApiRouter<Arc<Admin>> {
    let [reads, writes] = [reads(), writes()].map(together);
    let writes = writes
        .route_layer(from_fn_with_state(layers::changes(), layers::complete))
        .route_layer(from_fn(layers::require_write));
    reads.merge(writes)
}

/// Routes as one router. A query is refused if none of the operations has parameters.
fn together(all: Vec<UtoipaMethodRouter<Arc<Admin>>>) -> OpenApiRouter<Arc<Admin>> {
    let strict = |(schemas, mut paths, routes): UtoipaMethodRouter<Arc<Admin>>| {
        let has_parameters = |item| operations(item).any(|(_, operation)| operation.parameters.is_some());
        let refuse = from_extractor::<Parameters<NoParameters>>();
        let routes = if paths.paths.values_mut().any(has_parameters) { routes } else { routes.route_layer(refuse) };
        (schemas, paths, routes)
    };
    all.into_iter().map(strict).fold(OpenApiRouter::new(), OpenApiRouter::routes)
}

/// The requests that change nothing.
fn reads() -> Vec<UtoipaMethodRouter<Arc<Admin>>> {
    vec![
        routes!(document),
        routes!(top::top),
        routes!(tap::tap),
        routes!(history::history),
        routes!(fleet::fleet),
        routes!(upstreams::list),
        routes!(explain::explain),
        routes!(keys::show),
        routes!(refusals::show),
        routes!(client::client),
        routes!(bans::list),
        routes!(overrides::list),
        routes!(plans::list),
        routes!(api_keys::list),
        routes!(audit_list::list),
        routes!(configuration::show),
        routes!(configuration::reloads),
        routes!(versions::toml),
        routes!(versions::list),
    ]
}

/// The changes, and the checks that read files.
fn writes() -> Vec<UtoipaMethodRouter<Arc<Admin>>> {
    vec![
        routes!(resets::reset),
        routes!(resets::reset_all),
        routes!(ban_changes::set),
        routes!(ban_changes::lift),
        routes!(ban_changes::lift_all),
        routes!(overrides::change),
        routes!(overrides::remove),
        routes!(plans::assign),
        routes!(plans::remove),
        routes!(api_keys::create),
        routes!(api_keys::rotate),
        routes!(api_keys::revoke),
        routes!(endpoint_orders::drain),
        routes!(endpoint_orders::undrain),
        routes!(endpoint_orders::weight),
        routes!(configuration::check),
        routes!(configuration::reload),
        routes!(versions::diff),
        routes!(versions::rollback),
        routes!(spend::spend),
        routes!(spend::spend_by_its_old_name),
    ]
}

/// A description of all routes.
struct Description {
    /// The document of `OpenAPI` as JSON, with the scheme of tokens.
    document: Bytes,
    /// All paths, for a refusal.
    paths: String,
}

/// Made at its first use: few processes need it, and it took a third of a start.
static DESCRIPTION: LazyLock<Description> = LazyLock::new(|| {
    let mut document = Document::openapi();
    let [reads, writes] = [reads(), writes()].map(together);
    for (routes, errors) in [(probes(), 0), (metrics(), 1), (reads, 4), (writes, ERRORS.len())] {
        let mut described = routes.into_openapi();
        for (path, item) in &mut described.paths.paths {
            operations(item).for_each(|(method, operation)| complete(path, method, operation, &ERRORS[..errors]));
        }
        document.merge(described);
    }
    let token = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    document.components.get_or_insert_default().add_security_scheme("token", token);
    let paths = document.paths.paths.keys().cloned().collect::<Vec<_>>().join(", ");
    // It has text keys only, so this cannot fail.
    Description { document: serde_json::to_vec(&document).unwrap_or_default().into(), paths }
});

/// The errors that operations have in common: metrics the first, reads the first four, changes all.
const ERRORS: [(&str, &str); 6] = [
    ("401", "the token of this listener is required"),
    ("400", "a parameter or the body is unknown, missing or invalid"),
    ("403", "the token may only read, or a web page may have sent the request"),
    ("500", "Weir, a file or another replica failed"),
    ("404", "the limit or another thing that the request names does not exist"),
    ("503", "the request is not done in time, and may be done later"),
];

/// The errors of bodies.
const BODY_ERRORS: [(&str, &str); 2] =
    [("408", "the body did not arrive in time"), ("415", "the body has another media type")];

/// The operations of a path with their methods.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let PathItem { get, put, post, delete, .. } = item;
    let all = [("get", get), ("put", put), ("post", post), ("delete", delete)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds to an operation its id, the common `errors` that it does not describe itself, and the body of each error.
fn complete(path: &str, method: &str, operation: &mut Operation, errors: &[(&str, &str)]) {
    operation.operation_id = Some(format!("{method}{path}").replace(['/', '.'], "_"));
    let of_body = if operation.request_body.is_some() { &BODY_ERRORS[..] } else { &[] };
    let responses = &mut operation.responses.responses;
    for (status, description) in errors.iter().chain(of_body) {
        responses.entry((*status).to_owned()).or_insert_with(|| Response::new(*description).into());
    }
    for (_, response) in responses.iter_mut().filter(|(status, _)| status.as_str() >= "400") {
        if let RefOr::T(Response { content, .. }) = response
            && content.is_empty()
        {
            let problem = Content::new(Some(Ref::from_schema_name("Problem")));
            content.insert("application/problem+json".to_owned(), problem.into());
        }
    }
}

/// A header of every answer. No other server sends it, so a client finds that it asks the wrong one.
pub const MARK: &str = "weir-admin";

/// Completes every answer: with the mark, and the refusal of a method with the methods of the path. Layers of the router
/// come too early for that: the router adds `Allow` after them.
pub(super) fn finish(answer: Answer) -> Answer {
    let mut answer = name_methods(answer);
    answer.headers_mut().insert(MARK, HeaderValue::from_static("1"));
    answer
}

fn name_methods(answer: Answer) -> Answer {
    if answer.status() != StatusCode::METHOD_NOT_ALLOWED {
        return answer;
    }
    let methods = answer.headers().get(ALLOW).and_then(|methods| methods.to_str().ok()).unwrap_or_default();
    let methods = methods.split(',').collect::<Vec<_>>().join(", ");
    let mut refusal = problem(StatusCode::METHOD_NOT_ALLOWED, format!("the methods of this path are {methods}"));
    if let Ok(methods) = HeaderValue::try_from(methods) {
        refusal.headers_mut().insert(ALLOW, methods);
    }
    refusal
}

/// Whether Weir runs.
#[utoipa::path(get, path = "/healthz", security(()), responses((status = 200, body = str, description = "Weir runs")))]
async fn healthz() -> Answer {
    text(StatusCode::OK, "weir ok\n")
}

/// Whether Weir accepts requests.
#[utoipa::path(
    get,
    path = "/readyz",
    security(()),
    responses(
        (status = 200, body = str, description = "Weir accepts requests"),
        (status = 503, body = str, description = "Weir is stopping"),
    )
)]
async fn readyz(State(admin): State<Arc<Admin>>) -> Answer {
    if admin.ready.load(Ordering::Acquire) {
        text(StatusCode::OK, "ready\n")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

/// This document.
#[utoipa::path(get, path = DOCUMENT_PATH, responses((status = 200, body = Object, description = "the OpenAPI document")))]
async fn document() -> Answer {
    of_kind(StatusCode::OK, "application/json", DESCRIPTION.document.clone())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// The document keeps one of several schemas with the same name.
    #[test]
    fn each_schema_has_a_name_of_its_own() {
        let mut known = HashMap::new();
        for (name, schema) in reads().into_iter().chain(writes()).flat_map(|(schemas, ..)| schemas) {
            let other = known.insert(name.clone(), schema.clone());
            assert!(other.is_none_or(|other| other == schema), "{name}");
        }
        assert!(known.contains_key("Problem"));
    }
}
