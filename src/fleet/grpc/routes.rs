//! The services of a connection, by the path of the call.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
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
type Route = Box<dyn Fn(Request<Incoming>) -> Answering>;

/// All services, each with its name.
pub(super) struct Routes {
    server: Arc<Server>,
    services: Vec<(&'static str, Route)>,
}

impl Routes {
    pub(super) fn new(server: &Arc<Server>, tasks: &StoreTasks) -> Self {
        let max_bytes = server.settings.load().settings.max_message_bytes;
        let checks = LimiterApi { server: Arc::clone(server), tasks: tasks.clone() };
        let limiter = LimiterServer::new(checks.clone());
        let rate_limit = RateLimitServiceServer::new(checks);
        let charges = ChargesServer::new(ChargesApi(Arc::clone(server)));
        let health = HealthService::from_health_reporter(server.health.clone());
        let mut routes = vec![
            route(server, limiter.max_decoding_message_size(max_bytes)),
            route(server, rate_limit.max_decoding_message_size(max_bytes)),
            route(server, charges.max_decoding_message_size(MESSAGE_BYTES_MAX)),
            route(server, tonic_health::pb::health_server::HealthServer::new(health)),
        ];
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        // Older clients know only v1alpha. The descriptors are generated, so neither can fail.
        routes.extend(reflection().build_v1().ok().map(|service| route(server, service)));
        routes.extend(reflection().build_v1alpha().ok().map(|service| route(server, service)));
        Self { server: Arc::clone(server), services: routes }
    }

    /// Answers a call of the caller at `peer`.
    pub(super) fn call(&self, mut request: Request<Incoming>, peer: IpAddr) -> Answering {
        if self.server.taps.is_on() || request.uri().path() == CHECK_STREAM {
            request.extensions_mut().insert(Peer(peer));
        }
        let service = request.uri().path().strip_prefix('/').and_then(|path| path.split('/').next()).unwrap_or("");
        match self.services.iter().find(|(name, _)| *name == service) {
            Some((_, route)) => route(request),
            None => Box::pin(async { Status::unimplemented("there is no such service").into_http() }),
        }
    }
}

fn route<S>(server: &Arc<Server>, service: S) -> (&'static str, Route)
where
    S: NamedService + Clone + 'static,
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future: 'static>,
{
    let server = Arc::clone(server);
    let call = move |request| -> Answering {
        // A service of tonic is always ready.
        let (server, answering) = (Arc::clone(&server), service.clone().call(request));
        Box::pin(async move {
            match answering.await {
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
