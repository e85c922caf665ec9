//! The web page of operators, on the admin listener.
//!
//! A page is a client of the API: it asks the API within this process in the name of its operator (`api`). So roles, the
//! audit log and the validation of a change are those of the API. Not here: scripts that a page needs. Every page works
//! without scripts and loads nothing from elsewhere.

mod admit;
mod login;

mod overview;

mod limit;
mod limits;

mod api_keys;
mod bans;
mod client;
mod decisions;
mod key;
mod overrides;
mod upstreams;

mod audit;
mod configuration;
mod explain;

mod api;
mod chart;
mod confirm;
mod fields;
mod pages;
mod paging;
mod refused_keys;
mod session;
mod shell;
pub(super) mod verdict;
mod words;

pub use words::{key_parts, mode, on_limit, requests, rule};

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use http::StatusCode;

use super::answer::{Answer, of_kind};
use super::followed::FollowedClients;
use super::state::Admin;
use pages::Pages;

/// The routes of the page. `api` is the API with its roles, but without tokens and without the refusal of web pages.
/// `followed` are the clients whose requests are kept.
pub(super) fn router(admin: Arc<Admin>, api: Router, followed: Arc<FollowedClients>) -> Router {
    let pages = Arc::new(Pages::new(admin, api, followed));
    let for_operators = Router::new()
        .route("/", get(overview::show))
        .route("/limits", get(limits::list))
        .route("/limit", get(limit::show))
        .route("/limit/reset", post(limit::reset))
        .route("/client", get(client::show))
        .route("/key", get(key::show))
        .route("/key/reset", post(key::reset))
        .route("/key/ban", post(key::ban_key))
        .route("/key/lift", post(key::lift_key))
        .route("/key/charge", post(key::charge))
        .route("/key/override", post(key::set_override))
        .route("/bans", get(bans::show))
        .route("/bans/add", post(bans::add))
        .route("/bans/lift", post(bans::remove))
        .route("/bans/lift-all", post(bans::remove_all))
        .route("/overrides", get(overrides::show))
        .route("/overrides/set", post(overrides::set))
        .route("/overrides/remove", post(overrides::remove))
        .route("/apikeys", get(api_keys::show))
        .route("/apikeys/new", post(api_keys::create))
        .route("/apikeys/rotate", post(api_keys::rotate))
        .route("/apikeys/revoke", post(api_keys::revoke))
        .route("/upstreams", get(upstreams::show))
        .route("/upstreams/drain", post(upstreams::drain))
        .route("/upstreams/undrain", post(upstreams::undrain))
        .route("/upstreams/weight", post(upstreams::weight))
        .route("/configuration", get(configuration::show))
        .route("/configuration/check", post(configuration::check))
        .route("/configuration/reload", post(configuration::reload))
        .route("/explain", get(explain::show).post(explain::explain))
        .route("/audit", get(audit::show))
        .route("/logout", post(login::end))
        .route("/session", get(|| async { StatusCode::NO_CONTENT }))
        .route_layer(from_fn_with_state(Arc::clone(&pages), admit::require_session));
    let for_all = Router::new()
        .route("/login", get(login::show).post(login::begin))
        .route("/static/weir.css", get(style))
        .route("/static/weir.js", get(script));
    let protect = from_fn_with_state(Arc::clone(&pages), admit::protect);
    for_operators.merge(for_all).route_layer(protect).with_state(pages)
}

/// The style.
async fn style() -> Answer {
    of_kind(StatusCode::OK, "text/css; charset=utf-8", include_str!("weir.css"))
}

/// The script, which refreshes pages.
async fn script() -> Answer {
    of_kind(StatusCode::OK, "text/javascript; charset=utf-8", include_str!("weir.js"))
}
