//! Calls that one message has: those of the requests of a worker in one turn of its event loop.

use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::grpc::{CallError, Caller};
use crate::engine::store::backend::Failure;

/// A call that goes into a message with others.
pub(in crate::fleet::stores) trait Together: Sized + Send + 'static {
    /// The answer to a call.
    type Answer: Send + 'static;

    /// The most calls of one message.
    const CALLS_MAX: usize;

    /// Sends a message with these calls, of which there is at least one. Returns the answers in their order; none for a call
    /// that is to be made again.
    fn send(caller: &Caller, calls: Vec<Self>) -> impl Answers<Self::Answer>;
}

/// The future of the answers to one message.
pub(in crate::fleet::stores) trait Answers<A>:
    Future<Output = Result<Vec<Option<A>>, CallError>> + Send
{
}

impl<A, F: Future<Output = Result<Vec<Option<A>>, CallError>> + Send> Answers<A> for F {}

/// The calls that wait for the end of the turn.
pub(in crate::fleet::stores) struct Turn<C: Together>(Arc<Mutex<Vec<Queued<C>>>>);

struct Queued<C: Together> {
    call: C,
    deadline: Instant,
    answer: oneshot::Sender<Result<C::Answer, CallError>>,
}

impl<C: Together> Default for Turn<C> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<C: Together> Turn<C> {
    /// Makes a call together with the others of this turn, and waits for its answer until `deadline`.
    pub(in crate::fleet::stores) async fn call(
        &self,
        caller: &Caller,
        call: C,
        deadline: Instant,
    ) -> Result<C::Answer, CallError> {
        let (answer, answered) = oneshot::channel();
        let waiting = {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(Queued { call, deadline, answer });
            waiting.len()
        };
        let (turn, caller) = (Self(Arc::clone(&self.0)), caller.clone());
        if waiting == C::CALLS_MAX {
            tokio::spawn(send(caller, turn.take()));
        } else if waiting == 1 {
            // The task runs after those that the event loop has woken.
            tokio::spawn(async move { send(caller, turn.take()).await });
        }
        let answer = timeout_at(deadline, answered).await.map_err(|_| CallError::late())?;
        answer.unwrap_or_else(|_| Err(Failure::Broken.into()))
    }

    fn take(&self) -> Vec<Queued<C>> {
        mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Sends calls whose requests still wait, and gives each its answer.
async fn send<C: Together>(caller: Caller, waiting: Vec<Queued<C>>) {
    let waiting = waiting.into_iter().filter(|waiting| !waiting.answer.is_closed());
    let (calls, waiting): (Vec<_>, Vec<_>) =
        waiting.map(|waiting| (waiting.call, (waiting.answer, waiting.deadline))).unzip();
    let Some(deadline) = waiting.iter().map(|(_, deadline)| *deadline).max() else { return };
    let answers = timeout_at(deadline, C::send(&caller, calls)).await;
    let (mut answers, error) = match answers.unwrap_or_else(|_| Err(CallError::late())) {
        Ok(answers) => (answers.into_iter(), Failure::Broken.into()),
        Err(error) => (Vec::new().into_iter(), error),
    };
    for (to, _) in waiting {
        let answer = answers.next().flatten().ok_or_else(|| error.clone());
        // A request that has left needs none.
        let _ = to.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use h2::server;
    use smallvec::SmallVec;

    use super::*;
    use crate::base::time::instant_now;
    use crate::engine::store::backend::{Part, each};
    use crate::fleet::stores::driver::grpc::begin;

    /// The numbers of the calls of each message.
    type Messages = Arc<Mutex<Vec<Vec<u64>>>>;

    /// A call with a number, which its answer doubles. One that can be divided by 100 has none.
    struct Numbered(u64, Messages);

    impl Together for Numbered {
        type Answer = u64;

        const CALLS_MAX: usize = 8;

        async fn send(_: &Caller, calls: Vec<Self>) -> Result<Vec<Option<u64>>, CallError> {
            let numbers: Vec<_> = calls.iter().map(|call| call.0).collect();
            calls[0].1.lock().unwrap().push(numbers.clone());
            tokio::task::yield_now().await;
            Ok(numbers.into_iter().map(|number| (!number.is_multiple_of(100)).then_some(2 * number)).collect())
        }
    }

    struct Worker {
        caller: Caller,
        turn: Turn<Numbered>,
        messages: Messages,
    }

    impl Worker {
        async fn start() -> Self {
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move { server::handshake(theirs).await.unwrap().accept().await.is_none() });
            let caller = begin(ours, "http://test".into()).await.unwrap().connection;
            Self { caller, turn: Turn::default(), messages: Messages::default() }
        }

        async fn ask(&self, number: u64) -> Result<u64, Failure> {
            let (call, deadline) =
                (Numbered(number, Arc::clone(&self.messages)), instant_now() + Duration::from_secs(5));
            self.turn.call(&self.caller, call, deadline).await.map_err(|error| error.failure)
        }

        /// Asks in one turn.
        async fn ask_all(&self, numbers: impl Iterator<Item = u64>) -> Vec<Result<u64, Failure>> {
            let asked: SmallVec<_> = numbers.map(|number| -> Part<'_, _> { Box::pin(self.ask(number)) }).collect();
            let mut answers = vec![Err(Failure::Other); asked.len()];
            each(asked, |index, answer| answers[index] = answer).await;
            answers
        }

        fn messages(&self) -> Vec<Vec<u64>> {
            self.messages.lock().unwrap().clone()
        }
    }

    #[tokio::test]
    async fn calls_of_one_turn_are_one_message() {
        let worker = Worker::start().await;
        assert_eq!(worker.ask_all(1..5).await, [2, 4, 6, 8].map(Ok));
        assert_eq!(worker.ask(5).await, Ok(10));
        assert_eq!(worker.messages(), [vec![1, 2, 3, 4], vec![5]]);
    }

    #[tokio::test]
    async fn messages_are_bounded() {
        let worker = Worker::start().await;
        assert_eq!(worker.ask_all(1..20).await, (1..20).map(|number| Ok(2 * number)).collect::<Vec<_>>());
        let mut messages = worker.messages();
        messages.sort();
        assert_eq!(messages, [(1..9).collect::<Vec<_>>(), (9..17).collect(), (17..20).collect()]);
    }

    #[tokio::test]
    async fn a_call_without_an_answer_is_made_again() {
        let worker = Worker::start().await;
        assert_eq!(worker.ask_all(99..102).await, [Ok(198), Err(Failure::Broken), Ok(202)]);
    }

    #[tokio::test]
    async fn a_request_that_has_left_is_not_asked_for() {
        let worker = Worker::start().await;
        {
            let mut left = Box::pin(worker.ask(1));
            assert!(left.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
        }
        assert_eq!(worker.ask(2).await, Ok(4));
        assert_eq!(worker.messages(), [[2]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_until_its_deadline() {
        let worker = Worker::start().await;
        let call = Numbered(1, Arc::clone(&worker.messages));
        let answer = worker.turn.call(&worker.caller, call, instant_now()).await;
        assert_eq!(answer.map_err(|error| error.failure), Err(Failure::Timeout));
    }
}
