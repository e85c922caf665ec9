//! The answers of `CheckStream`, in the order of the requests.
//!
//! A stream reads ahead of its answers, so that questions to stores overlap. Checks of local limits are decided as they
//! are read.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio_stream::Stream;
use tonic::{Status, Streaming};

use super::checks::{LimiterApi, PendingCheck};
use super::proto::weir::v1::check_stream_response::Result as Answer;
use super::proto::weir::v1::{CheckError, CheckRequest, CheckStreamResponse};
use super::watched::{CHECK_STREAM, Peer};

/// Checks of a stream that have no answer yet.
const PENDING_MAX: usize = 64;

/// The answers of a stream.
pub(super) struct CheckAnswers {
    api: LimiterApi,
    peer: Option<Peer>,
    /// The requests; none after the last.
    requests: Option<Streaming<CheckRequest>>,
    pending: VecDeque<PendingCheck>,
}

impl CheckAnswers {
    pub(super) fn new(api: LimiterApi, peer: Option<Peer>, requests: Streaming<CheckRequest>) -> Self {
        Self { api, peer, requests: Some(requests), pending: VecDeque::new() }
    }

    /// Begins the checks that have arrived, as many as may be pending.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<(), Status> {
        while let Some(requests) = self.requests.as_mut().filter(|_| self.pending.len() < PENDING_MAX) {
            match Pin::new(requests).poll_next(cx) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(request))) => {
                    let watched = self.api.server.watch(self.peer, CHECK_STREAM);
                    self.pending.push_back(self.api.begin(request, watched));
                }
                Poll::Ready(Some(Err(status))) => return Err(self.api.server.error(status)),
                Poll::Ready(None) => self.requests = None,
            }
        }
        Ok(())
    }
}

impl Stream for CheckAnswers {
    type Item = Result<CheckStreamResponse, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Err(status) = self.read(cx) {
            self.requests = None;
            self.pending.clear();
            return Poll::Ready(Some(Err(status)));
        }
        let Some(first) = self.pending.front_mut() else {
            return if self.requests.is_none() { Poll::Ready(None) } else { Poll::Pending };
        };
        let decided = ready!(Pin::new(first).poll(cx));
        self.pending.pop_front();
        let answer = match decided {
            Ok(response) => Answer::Response(response),
            Err(status) => {
                Answer::Error(CheckError { code: status.code() as i32, message: status.message().to_owned() })
            }
        };
        Poll::Ready(Some(Ok(CheckStreamResponse { result: Some(answer) })))
    }
}
