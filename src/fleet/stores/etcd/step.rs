//! A step of a transaction on an account. Those of several accounts are one call of etcd.

use super::TXN;
use super::proto::etcdserverpb::{RequestOp, TxnRequest, TxnResponse, response_op};
use crate::fleet::stores::driver::grpc::{CallError, Caller};
use crate::fleet::stores::driver::turn::Together;

/// It reads the account, or writes it if it has not changed.
pub(in crate::fleet::stores) struct Step(pub(super) RequestOp);

impl Together for Step {
    type Answer = response_op::Response;

    /// etcd makes 128 operations in a transaction, unless it is told otherwise. A nested one has two at most.
    const CALLS_MAX: usize = 64;

    /// All steps are one transaction without a condition. Those with conditions are nested in it.
    async fn send(caller: &Caller, steps: Vec<Self>) -> Result<Vec<Option<Self::Answer>>, CallError> {
        let success = steps.into_iter().map(|Step(step)| step).collect();
        let question = TxnRequest { success, ..TxnRequest::default() };
        let answer: TxnResponse = caller.call(TXN, &question).await?;
        Ok(answer.responses.into_iter().map(|op| op.response).collect())
    }
}
