//! `weir.v1.Limiter`: its calls.

use tonic::{Request, Response, Status, Streaming};

use super::check_stream::CheckAnswers;
use super::checks::LimiterApi;
use super::proto::weir::v1::limiter_server::Limiter;
use super::proto::weir::v1::{CheckRequest, CheckResponse, ReportRequest, ReportResponse};

#[tonic::async_trait]
impl Limiter for LimiterApi {
    async fn check(&self, request: Request<CheckRequest>) -> Result<Response<CheckResponse>, Status> {
        self.begin(request.into_inner()).await.map(Response::new)
    }

    async fn report(&self, request: Request<ReportRequest>) -> Result<Response<ReportResponse>, Status> {
        self.server.report(&request.into_inner()).map(Response::new)
    }

    type CheckStreamStream = CheckAnswers;

    async fn check_stream(&self, requests: Request<Streaming<CheckRequest>>) -> Result<Response<CheckAnswers>, Status> {
        Ok(Response::new(CheckAnswers::new(self.clone(), requests.into_inner())))
    }
}
