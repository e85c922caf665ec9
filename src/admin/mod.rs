//! The admin listener over HTTP/1: metrics, health, the admin API, and a web page.
//!
//! A GET changes nothing. `guard` refuses requests that a web page can make a browser send. Every change has a line in
//! the audit log.
//! Not here: the answers themselves (gate). This module has their HTTP and JSON.

mod router;

mod access;
mod guard;
mod layers;

mod page;

mod api_keys;
mod ban_changes;
mod bans;
mod client;
mod configuration;
mod endpoint_orders;
mod explain;
mod exposition;
mod fleet;
mod history;
mod keys;
mod overrides;
mod plans;
mod refusals;
mod resets;
mod spend;
mod tap;
mod top;
mod upstreams;
mod versions;

mod audit;
mod audit_list;
mod change;
mod edits;
mod followed;
mod rates;
mod reloads;
mod series;
mod state;

mod answer;
mod ban_file;
mod body;
mod connections;
mod key;
mod times;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::yield_now;
use tokio::time::timeout;
use tower::Service;

use crate::transport::net::accept::{AsyncListener, FailedAccepts};
use crate::transport::net::socket::Socket;
use access::PeerAddress;
use connections::{Activity, Connections};

pub use access::{Access, OperatorToken, Role};
pub use api_keys::{ApiKeyOwnerBody, OVERLAP_DEFAULT};
pub use audit::AuditFile;
pub use ban_changes::ChangedBanBody;
pub use ban_file::BanFile;
pub use bans::{BanBody, BansBody};
pub use change::{Change, Changed, Outcome, Overrides};
pub use connections::CONNECTIONS_MAX;
pub use edits::record_ended;
pub use endpoint_orders::end_orders;
pub use explain::{BudgetBody, ExplanationBody, LimitBody, NEEDS_BODY, QuestionBody, RouteBody};
pub use history::keep_history;
pub use keys::{KeyBody, LimitedBody, LimitedPage};
pub use page::{key_parts, mode, on_limit, requests, rule};
pub use rates::{unit_in_words, units_in_words};
pub use refusals::{OtherRefusalBody, RefusalBody, RefusalsBody};
pub use reloads::{
    CheckBody, ConfigBody, ConfigReader, DiffBody, DifferenceBody, FindingBody, Order, ReloadBody, ReloadTarget,
    Reloads, SETTINGS_MAX, SettingBody, SettingDiffBody, VersionBody, VersionsBody,
};
pub use router::MARK;
pub use series::{History, HistoryBody, LimitHistoryBody};
pub use state::{Admin, EditKeys};
pub use times::{parse_rfc3339, rfc3339};
pub use upstreams::{EndpointBody, MinuteBody, OrderBody, UpstreamBody, UpstreamsBody};

const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The bound on the life of a connection without an open stream of events. It also ends connections that read slowly.
const CONNECTION_LIFE: Duration = Duration::from_mins(5);

/// Serves on `listener` until it is dropped, at most `connections_max` connections. `open` prepares each connection, for
/// example with a TLS handshake.
pub(crate) async fn serve<S, F>(
    listener: AsyncListener,
    admin: Admin,
    connections_max: usize,
    open: impl Fn(Socket) -> F,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Future<Output = io::Result<S>> + Send + 'static,
{
    let (mut connections, mut failed) = (Connections::new(connections_max), FailedAccepts::default());
    let metrics = Arc::clone(&admin.metrics);
    let router = router::router(admin);
    loop {
        let (socket, peer) = match listener.accept().await {
            Ok((socket @ Socket::Tcp(_), peer)) => (socket, Some(peer.ip().to_canonical())),
            Ok((socket @ Socket::Unix(_), _)) => (socket, None),
            Err(error) => {
                failed.pause(&error, "cannot accept on the admin listener").await;
                continue;
            }
        };
        let opening = timeout(HEAD_TIMEOUT, open(socket));
        let activity = connections.activity();
        let (router, of_connection, streams) = (router.clone(), Arc::clone(&activity), Arc::clone(&activity));
        let connection = tokio::spawn(async move {
            let opened = opening.await.map_err(io::Error::from).flatten();
            let served =
                async { converse(opened?, PeerAddress(peer), router, of_connection).await.map_err(io::Error::other) };
            let mut served = pin!(served);
            let ended = loop {
                match timeout(CONNECTION_LIFE, &mut served).await {
                    Err(_) if streams.is_streaming() => {}
                    ended => break ended,
                }
            };
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "admin connection ended"),
                Err(_) => tracing::debug!("admin connection lasted too long"),
            }
        });
        if connections.add(activity, connection.abort_handle()) {
            metrics.admin_connections_displaced.inc();
        }
        // Lets the connection answer a waiting request before the next connection can displace it.
        yield_now().await;
    }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    peer: PeerAddress,
    router: Router,
    activity: Arc<Activity>,
) -> hyper::Result<()> {
    let service = service_fn(move |mut request: Request<Incoming>| {
        activity.touch();
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&activity));
        let (answer, activity) = (router.clone().call(request), Arc::clone(&activity));
        async move {
            let answer: Result<_, Infallible> = answer.await;
            activity.touch();
            answer.map(router::finish)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    http.serve_connection(TokioIo::new(stream), service).await
}
