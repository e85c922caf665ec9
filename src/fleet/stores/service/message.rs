//! The message with the charges of several requests.

use super::CHARGE;
use super::proto::{ChargeCall, ChargeRequest, ChargeResponse, KeyCharge, Verdict};
use crate::engine::store::backend::{CallId, Failure};
use crate::fleet::stores::driver::grpc::{CallError, Caller};
use crate::fleet::stores::driver::turn::Together;

/// The charges of one request.
pub(super) struct CallOfCharges {
    pub(super) of: CallId,
    pub(super) charges: Vec<KeyCharge>,
}

impl Together for CallOfCharges {
    /// None if the process of the limiter does not decide.
    type Answer = Option<Verdict>;

    const CALLS_MAX: usize = 128;

    async fn send(caller: &Caller, calls: Vec<Self>) -> Result<Vec<Option<Self::Answer>>, CallError> {
        let (question, is_asked) = message_of(calls);
        let answer: ChargeResponse = caller.call(CHARGE, &question).await?;
        if answer.is_decided && answer.verdicts.len() != question.calls.len() {
            return Err(Failure::Reply.into());
        }
        let mut verdicts = answer.verdicts.into_iter();
        Ok(is_asked.into_iter().map(|is_asked| is_asked.then(|| verdicts.next())).collect())
    }
}

/// The message to the process of the first call, and which calls it has. Those of another process are made again.
fn message_of(calls: Vec<CallOfCharges>) -> (ChargeRequest, Vec<bool>) {
    let (process, session) = calls.first().map_or((0, 0), |call| (call.of.process, call.of.session));
    let is_asked = calls.iter().map(|call| call.of.process == process).collect();
    let asked = calls.into_iter().filter(|call| call.of.process == process);
    let asked = asked.map(|CallOfCharges { of, charges }| ChargeCall { number: of.number, charges });
    (ChargeRequest { process, session, calls: asked.collect() }, is_asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Timestamp;

    #[test]
    fn a_message_is_for_one_process() {
        let call = |(process, number)| {
            let of = CallId { process, session: 1, number, at: Timestamp::ZERO };
            CallOfCharges { of, charges: Vec::new() }
        };
        let (question, is_asked) = message_of([(7, 1), (8, 2), (7, 3)].map(call).into());
        let numbers: Vec<_> = question.calls.iter().map(|call| call.number).collect();
        assert_eq!((question.process, question.session, numbers), (7, 1, vec![1, 3]));
        assert_eq!(is_asked, [true, false, true]);
    }
}
