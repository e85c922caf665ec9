//! One call of a node: the command, the wait for its reply, and what follows if nobody waits for the reply any more.
//!
//! Not here: what a reply of a script means (`script`).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::script;
use crate::engine::store::backend::Failure;
use crate::fleet::stores::driver::ConnectError;

/// The future of a reply. It lives on if the request that waits for it ends.
type Reply = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send>>;

/// The receiver of a reply that nobody waits for any more.
pub(super) type Late = Box<dyn FnOnce(Value) + Send>;

/// A call whose reply has not come yet. A reply that comes after the drop goes to `late`.
pub(super) struct Awaited<'c> {
    reply: Option<Reply>,
    /// Makes the receiver; `None` if nobody needs the reply.
    late: &'c dyn Fn() -> Option<Late>,
}

/// The result of a call.
#[derive(Debug)]
pub(super) enum Answer {
    /// The reply.
    Value(Value),
    /// The node does not know the script.
    UnknownScript,
    /// Another node has the key: for good, or for this call only.
    Moved {
        /// `None` for the host that was asked.
        host: Option<Box<str>>,
        port: u16,
        only_now: bool,
    },
    /// An error, with its text.
    Failed(Failure, String),
    /// No reply in time.
    Late,
}

/// Commands that go before a call of a script on its connection, in the same write.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Preamble {
    /// Whether to load the script.
    pub(super) loads_script: bool,
    /// Whether the node should serve a slot that it is importing.
    pub(super) is_asking: bool,
}

/// Sends a call of a script. The bytes of all calls of one turn of the event loop are written at once.
pub(super) fn send(mut connection: MultiplexedConnection, call: &script::Call, preamble: Preamble) -> Reply {
    let command = call.by_hash();
    let Preamble { loads_script, is_asking } = preamble;
    if !loads_script && !is_asking {
        return Box::pin(async move { connection.send_packed_command(&command).await });
    }
    let mut all = Pipeline::new();
    if loads_script {
        all.cmd("SCRIPT").arg("LOAD").arg(call.script.text);
    }
    if is_asking {
        all.cmd("ASKING");
    }
    all.add_command(command);
    Box::pin(async move {
        let replies = connection.send_packed_commands(&all, 0, all.len()).await?;
        Ok(replies.into_iter().next_back().unwrap_or(Value::Nil))
    })
}

impl<'c> Awaited<'c> {
    /// A call that was sent. `late` makes the receiver of a reply that comes when nobody waits for it any more.
    pub(super) fn new(reply: Reply, late: &'c dyn Fn() -> Option<Late>) -> Self {
        Self { reply: Some(reply), late }
    }

    /// Waits for the reply until `deadline`.
    pub(super) async fn finish(mut self, deadline: Instant) -> Answer {
        match timeout_at(deadline, &mut self).await {
            Ok(result) => Answer::of(result),
            Err(_) => Answer::Late,
        }
    }
}

impl Future for Awaited<'_> {
    type Output = RedisResult<Value>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(reply) = &mut self.reply else { return Poll::Pending };
        let result = reply.as_mut().poll(cx);
        if result.is_ready() {
            self.reply = None;
        }
        result
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let (Some(reply), Ok(runtime)) = (self.reply.take(), Handle::try_current()) else { return };
        if let Some(late) = (self.late)() {
            // A node that stopped answers when it goes on. The wait ends with the connection.
            runtime.spawn(async move {
                if let Ok(value) = reply.await {
                    late(value);
                }
            });
        }
    }
}

/// The value of a reply that is no error.
pub(super) fn reply_of(value: Value) -> Result<Value, ConnectError> {
    match value {
        Value::ServerError(error) => Err(ConnectError::redis(&RedisError::from(error))),
        value => Ok(value),
    }
}

impl Answer {
    /// The answer that a reply, or an error of the connection, is.
    pub(super) fn of(result: RedisResult<Value>) -> Self {
        let error = match result {
            Ok(Value::ServerError(error)) => RedisError::from(error),
            Ok(value) => return Self::Value(value),
            Err(error) => error,
        };
        let redis::ErrorKind::Server(kind) = error.kind() else { return Self::failed(&error) };
        match (kind, target(&error)) {
            (ServerErrorKind::NoScript, _) => Self::UnknownScript,
            (ServerErrorKind::Moved, Some((host, port))) => Self::Moved { host, port, only_now: false },
            (ServerErrorKind::Ask, Some((host, port))) => Self::Moved { host, port, only_now: true },
            _ => Self::failed(&error),
        }
    }

    fn failed(error: &RedisError) -> Self {
        Self::Failed(Failure::of(error), error.to_string())
    }
}

/// The node that `MOVED` and `ASK` name.
fn target(error: &RedisError) -> Option<(Option<Box<str>>, u16)> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(((!host.is_empty()).then(|| host.into()), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_have_kinds() {
        let moved = |host: Option<&str>, only_now| Answer::Moved { host: host.map(Into::into), port: 6381, only_now };
        for (reply, expected) in [
            (":1\r\n", Answer::Value(Value::Int(1))),
            ("-NOSCRIPT No matching script.\r\n", Answer::UnknownScript),
            ("-MOVED 3999 10.0.0.2:6381\r\n", moved(Some("10.0.0.2"), false)),
            ("-MOVED 3999 ::1:6381\r\n", moved(Some("::1"), false)),
            ("-ASK 3999 :6381\r\n", moved(None, true)),
        ] {
            let parsed = redis::parse_redis_value(reply.as_bytes());
            assert_eq!(format!("{:?}", Answer::of(parsed)), format!("{expected:?}"), "{reply}");
        }
        let parsed = redis::parse_redis_value(b"-LOADING Redis is loading\r\n");
        assert!(matches!(Answer::of(parsed), Answer::Failed(Failure::Loading, _)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_reply_is_heard() {
        for (after_ms, is_answer, is_late) in [(5, true, false), (15, false, true), (40_000, false, true)] {
            let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
            let reply: Reply = Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(after_ms)).await;
                Ok(Value::Int(7))
            });
            let late = || {
                let heard = heard.clone();
                let late: Late = Box::new(move |value| heard.send(value).unwrap());
                Some(late)
            };
            let call = Awaited::new(reply, &late);
            let answer = call.finish(crate::base::time::instant_now() + Duration::from_millis(10)).await;
            assert_eq!(matches!(answer, Answer::Value(Value::Int(7))), is_answer, "{after_ms}");
            drop(heard);
            assert_eq!(hears.recv().await.is_some(), is_late, "{after_ms}");
        }
    }
}
