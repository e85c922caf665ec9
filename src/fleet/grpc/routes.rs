//! The services of a connection, by the path of the call.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tower::Service;

use super::charges::ChargesApi;
use super::checks::LimiterApi;
use super::proto::DESCRIPTORS;
use super::proto::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use super::proto::weir::v1::limiter_server::LimiterServer;
use super::server::Server;
use super::watched::{CHECK_STREAM, Peer};
use crate::engine::gate::StoreTasks;
use crate::fleet::stores::driver::MESSAGE_BYTES_MAX;
use crate::fleet::stores::service::proto::charges_server::ChargesServer;

type Answering = Pin<Box<dyn Future<Output = Response<Body>>>>;
/// Answers a call whose messages have at most so many bytes.
type Route = Box<dyn Fn(Request<Incoming>, usize) -> Answering>;

/// The time for the message of a call to arrive and for its answer, for which a store may take 10 seconds. Calls whose
/// messages are a stream are answered before these arrive.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// All services, each with its name.
pub(super) struct Routes {
    server: Arc<Server>,
    services: Vec<(&'static str, Route)>,
}

impl Routes {
    pub(super) fn new(server: &Arc<Server>, tasks: &StoreTasks) -> Self {
        let checks = LimiterApi { server: Arc::clone(server), tasks: tasks.clone() };
        let limiter = LimiterServer::new(checks.clone());
        let rate_limit = RateLimitServiceServer::new(checks);
        let charges = ChargesServer::new(ChargesApi(Arc::clone(server)));
        let charges_bytes_max = server.has_fleet_secret.then_some(MESSAGE_BYTES_MAX);
        let health = HealthServer::new(HealthService::from_health_reporter(server.health.clone()));
        let mut routes = vec![
            route(server, move |bytes_max| limiter.clone().max_decoding_message_size(bytes_max)),
            route(server, move |bytes_max| rate_limit.clone().max_decoding_message_size(bytes_max)),
            route(server, move |bytes_max| {
                charges.clone().max_decoding_message_size(charges_bytes_max.unwrap_or(bytes_max))
            }),
            route(server, move |bytes_max| health.clone().max_decoding_message_size(bytes_max)),
        ];
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // Older clients know only v1alpha. The descriptors are generated, so neither can fail.
        routes.extend(
            reflection()
                .build_v1()
                .ok()
                .map(|service| route(server, move |bytes_max| service.clone().max_decoding_message_size(bytes_max))),
        );
        routes.extend(
            reflection()
                .build_v1alpha()
                .ok()
                .map(|service| route(server, move |bytes_max| service.clone().max_decoding_message_size(bytes_max))),
        );
        Self { server: Arc::clone(server), services: routes }
    }

    /// Answers a call of the caller at `peer`, whose messages have at most `bytes_max` bytes.
    pub(super) fn call(&self, mut request: Request<Incoming>, peer: IpAddr, bytes_max: usize) -> Answering {
        if self.server.taps.is_on() || request.uri().path() == CHECK_STREAM {
            request.extensions_mut().insert(Peer(peer));
        }
        let service = request.uri().path().strip_prefix('/').and_then(|path| path.split('/').next()).unwrap_or("");
        match self.services.iter().find(|(name, _)| *name == service) {
            Some((_, route)) => route(request, bytes_max),
            None => Box::pin(async { Status::unimplemented("there is no such service").into_http() }),
        }
    }
}

/// The route to a service. `bounded` gives the service a bound on the bytes of a message.
fn route<S>(server: &Arc<Server>, bounded: impl Fn(usize) -> S + 'static) -> (&'static str, Route)
where
    S: NamedService + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: 'static>,
{
    let server = Arc::clone(server);
    let call = move |request, bytes_max| -> Answering {
        // A service of tonic is always ready.
        let (server, answering) = (Arc::clone(&server), bounded(bytes_max).call(request));
        Box::pin(async move {
            let Ok(answered) = timeout(CALL_TIMEOUT, answering).await else {
                return Status::deadline_exceeded("the call takes too long").into_http();
            };
            match answered {
                Ok(response) => match Status::from_header_map(response.headers()) {
                    Some(status) => server.error(status).into_http(),
                    None => response,
                },
                Err(never) => match never {},
            }
        })
    };
    (S::NAME, Box::new(call))
}
