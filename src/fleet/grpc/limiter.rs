//! `weir.v1.Limiter`: its calls.

use tonic::{Request, Response, Status, Streaming};

use super::check_stream::CheckAnswers;
use super::checks::LimiterApi;
use super::proto::weir::v1::limiter_server::Limiter;
use super::proto::weir::v1::{CheckRequest, CheckResponse, ReportRequest, ReportResponse};

const CHECK: &str = "/weir.v1.Limiter/Check";

#[tonic::async_trait]
impl Limiter for LimiterApi {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        let watched = self.server.watch(request.extensions().get().copied(), CHECK);
        self.begin(request.into_inner(), watched).await.map(Response::new)
    }

    async fn report(&self, request: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        self.server.report(&request.into_inner()).map(Response::new)
    }

    type CheckStreamStream = CheckAnswers;

    async fn check_stream(&self, requests: Request<Streaming<CheckRequest>>) -> Result<Response<CheckAnswers>, Status> {
        let peer = requests.extensions().get().copied();
        Ok(Response::new(CheckAnswers::new(self.clone(), peer, requests.into_inner())))
    }
}
