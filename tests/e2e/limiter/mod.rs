//! The limiter service, asked by clients of tonic.

mod askers;
mod checks;
mod listener;
pub mod rate_limit;
mod stores;

use std::net::SocketAddr;

use tokio::runtime::Runtime;
use tonic::transport::Channel;
use tonic::{Code, Status};
use weir::fleet::grpc::proto::weir::v1::limiter_client::LimiterClient;
use weir::fleet::grpc::proto::weir::v1::{CheckRequest, CheckResponse};

use crate::support::{Upstream, Weir};

/// A runtime for one client.
pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Starts a Weir with a limiter service, and these tables.
pub(super) fn start(upstream: &Upstream, rest: &str) -> Weir {
    Weir::start(upstream, &format!("[grpc]\nlisten = \"127.0.0.1:0\"\n{rest}"))
}

pub(super) async fn channel(address: SocketAddr) -> Channel {
    Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
}

/// A client of the limiter service.
pub struct Caller {
    runtime: Runtime,
    client: LimiterClient<Channel>,
}

impl Caller {
    pub fn of(weir: &Weir) -> Self {
        let runtime = runtime();
        let client = LimiterClient::new(runtime.block_on(channel(weir.grpc())));
        Self { runtime, client }
    }

    pub fn check(&mut self, request: CheckRequest) -> Result<CheckResponse, Status> {
        let answer = self.runtime.block_on(self.client.check(request));
        answer.map(tonic::Response::into_inner)
    }

    /// Whether a check is allowed, and the units that remain.
    pub(super) fn ask(&mut self, actor: &str, method: &str, cost: u64) -> (bool, u64) {
        let answer = self.check(of(actor, method, cost)).unwrap();
        (answer.allowed, answer.remaining)
    }

    pub(super) fn code(&mut self, request: CheckRequest) -> Code {
        self.check(request).map_or_else(|status| status.code(), |_| Code::Ok)
    }
}

/// A check in scope `api`.
pub(super) fn of(actor: &str, method: &str, cost: u64) -> CheckRequest {
    let (actor, scope, method) = (actor.into(), "api".into(), method.into());
    CheckRequest { actor, scope, method, cost: Some(cost), plan: String::new() }
}
