//! What flows between a client and the upstream once they speak another protocol than HTTP.
//!
//! Each way reads only after what it read before has been written, so that whoever is slow slows the other side
//! down. Each ends on its own. Not here: what the bytes mean.

mod direction;

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use self::direction::{Broke, Way};
use crate::gate::Bill;
use crate::net::Timeouts;
use crate::net::buffer::{Buffer, Buffers, Out};
use crate::net::deadline::Deadline;
use crate::net::end::End;
use crate::telemetry::Gauge;
use crate::time;
use crate::upstream::UpgradedConnection;

/// What is left of a request that became something else.
#[derive(Debug)]
pub(super) struct Switched {
    pub(super) upstream: UpgradedConnection,
    /// What the upstream has said already.
    pub(super) said: Buffer,
    /// What is settled at the end.
    pub(super) bill: Option<Bill>,
    pub(super) counted: Counted,
}

/// A connection that is counted as upgraded.
#[derive(Debug)]
pub(super) struct Counted(Gauge);

impl Counted {
    pub(super) fn new(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// A client, what it has said already, and what it has not been told yet.
#[derive(Debug)]
pub(super) struct Client<C> {
    pub(super) end: C,
    pub(super) said: Buffer,
    pub(super) owed: Out,
}

/// How a tunnel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Both have said all they had to say, or the upstream takes no more; the client may still be sending.
    Whole,
    /// A side broke off, or nothing has moved for too long.
    Broken,
}

/// How long nothing may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    idle: Duration,
    /// Once a side has ended: nobody is told any more if it goes away for good.
    half_closed: Duration,
}

impl Patience {
    pub(super) fn of(timeouts: &Timeouts) -> Self {
        let idle = timeouts.upgraded_idle;
        Self { idle, half_closed: idle.min(timeouts.body_idle) }
    }
}

/// Moves bytes until both sides have ended, one breaks off, or nothing has moved for too long. Then settles.
pub(super) async fn run<C: End>(
    client: &mut Client<C>,
    switched: Switched,
    buffers: &Buffers,
    patience: Patience,
) -> Ended {
    let Switched { mut upstream, said, mut bill, counted } = switched;
    let up = Way::new(std::mem::take(&mut client.said), Out::default());
    let down = Way::new(said, std::mem::take(&mut client.owed));
    let (ended, taken) = flow(&mut client.end, &mut upstream, up, down, buffers, patience).await;
    if let Some(bill) = &mut bill {
        bill.sent(taken);
    }
    // Counted until its endpoint has it no more.
    drop((upstream, bill, counted));
    ended
}

/// Gives how it ended, and how many bytes the upstream has said.
async fn flow(
    client: &mut impl End,
    upstream: &mut impl End,
    mut up: Way,
    mut down: Way,
    buffers: &Buffers,
    patience: Patience,
) -> (Ended, u64) {
    let (mut deadline, mut moved_at, mut moved) = (Deadline::default(), time::instant_now(), 0);
    let ended = poll_fn(|cx| {
        let polled = poll_both(cx, &mut up, &mut down, client, upstream, buffers);
        if let Poll::Ready(ended) = polled {
            return Poll::Ready(ended);
        }
        if up.moved + down.moved != moved {
            (moved, moved_at) = (up.moved + down.moved, time::instant_now());
        }
        let is_half_closed = up.is_over() || down.is_over();
        let at = moved_at + if is_half_closed { patience.half_closed } else { patience.idle };
        deadline.poll(cx, at).map(|()| Ended::Broken)
    });
    let ended = ended.await;
    (ended, down.taken)
}

fn poll_both(
    cx: &mut Context<'_>,
    up: &mut Way,
    down: &mut Way,
    client: &mut impl End,
    upstream: &mut impl End,
    buffers: &Buffers,
) -> Poll<Ended> {
    let upward = up.poll(cx, client, upstream, buffers);
    let downward = down.poll(cx, upstream, client, buffers);
    match (upward, downward) {
        (Poll::Ready(Err(Broke::Source)), _) | (_, Poll::Ready(Err(_))) => Poll::Ready(Ended::Broken),
        // An upstream that takes no more may still have said something.
        (Poll::Ready(_), Poll::Ready(Ok(()))) => Poll::Ready(Ended::Whole),
        _ => Poll::Pending,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::ready;

    use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::net::buffer::PENDING_MAX;

    impl End for DuplexStream {
        fn poll_read(
            &mut self,
            cx: &mut Context<'_>,
            input: &mut Buffer,
            buffers: &Buffers,
        ) -> Poll<io::Result<usize>> {
            input.poll_fill(cx, self, buffers)
        }

        fn poll_write(&mut self, cx: &mut Context<'_>, out: &mut Out, _: &Buffers) -> Poll<io::Result<()>> {
            while out.pending() > 0 {
                let len = ready!(Pin::new(&mut *self).poll_write(cx, out.unsent()))?;
                out.advance(len);
            }
            Poll::Ready(Ok(()))
        }

        fn poll_finish(&mut self, cx: &mut Context<'_>, _: &Buffers) -> Poll<io::Result<()>> {
            Pin::new(self).poll_shutdown(cx)
        }
    }

    const IDLE: Duration = Duration::from_mins(1);

    const HALF_CLOSED: Duration = Duration::from_secs(5);
    const PATIENCE: Patience = Patience { idle: IDLE, half_closed: HALF_CLOSED };
    /// Just soon enough.
    const PAUSE: Duration = Duration::from_secs(59);
    const HALF_PAUSE: Duration = Duration::from_secs(4);

    /// Runs `test` with the far ends of a client and of an upstream, and says how the tunnel ended.
    async fn between(size: usize, test: impl AsyncFnOnce(DuplexStream, DuplexStream)) -> (Ended, u64) {
        let (client, mut near) = duplex(size);
        let (upstream, mut far) = duplex(size);
        // Drops its ends when it is over.
        let tunnel = async move {
            flow(&mut near, &mut far, Way::default(), Way::default(), &Buffers::default(), PATIENCE).await
        };
        tokio::join!(tunnel, test(client, upstream)).0
    }

    #[tokio::test(start_paused = true)]
    async fn each_way_ends_on_its_own() {
        let ended = between(64, async |mut client, mut upstream| {
            client.write_all(b"ping").await.unwrap();
            client.shutdown().await.unwrap();
            let mut said = String::new();
            upstream.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "ping");
            upstream.write_all(b"pong!").await.unwrap();
            drop(upstream);
            said.clear();
            client.read_to_string(&mut said).await.unwrap();
            assert_eq!(said, "pong!");
        });
        assert_eq!(ended.await, (Ended::Whole, 5));
    }

    /// An hour of an exchange every 59 seconds, then silence.
    #[tokio::test(start_paused = true)]
    async fn silence_ends_it_and_nothing_else() {
        let began = time::instant_now();
        let ended = between(64, async |mut client, mut upstream| {
            for turn in 0..60 {
                tokio::time::sleep(PAUSE).await;
                let (from, to) =
                    if turn % 2 == 0 { (&mut client, &mut upstream) } else { (&mut upstream, &mut client) };
                from.write_all(b"x").await.unwrap();
                to.read_u8().await.unwrap();
            }
            let _ = client.read_u8().await;
            drop(upstream);
        });
        assert_eq!(ended.await, (Ended::Broken, 30));
        assert_eq!(began.elapsed(), PAUSE * 60 + IDLE);
    }

    /// Nobody would notice that the client is gone for good.
    #[tokio::test(start_paused = true)]
    async fn a_side_that_has_ended_is_not_waited_for_as_long() {
        let began = time::instant_now();
        let ended = between(64, async |mut client, mut upstream| {
            tokio::time::sleep(PAUSE).await;
            client.shutdown().await.unwrap();
            for _ in 0..3 {
                tokio::time::sleep(HALF_PAUSE).await;
                upstream.write_all(b"x").await.unwrap();
            }
            let mut rest = Vec::new();
            client.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"xxx");
            drop(upstream);
        });
        assert_eq!(ended.await, (Ended::Broken, 3));
        assert_eq!(began.elapsed(), PAUSE + HALF_PAUSE * 3 + HALF_CLOSED);
    }

    /// A side that takes nothing stops the other one; what was said before is not lost.
    #[tokio::test(start_paused = true)]
    async fn who_is_slow_slows_the_other_down() {
        const LEN: usize = 4 * 1024 * 1024;
        let ended = between(1024, async |mut client, mut upstream| {
            let mut sent = 0;
            let stalled = async {
                loop {
                    sent += client.write(&[7; 1000]).await.unwrap();
                }
            };
            assert!(tokio::time::timeout(IDLE / 2, stalled).await.is_err());
            assert!(sent < 4 * PENDING_MAX, "{sent}");
            let rest = vec![7; LEN - sent];
            let send = async {
                client.write_all(&rest).await.unwrap();
                client.shutdown().await.unwrap();
            };
            let mut got = Vec::new();
            let take = async { upstream.read_to_end(&mut got).await.unwrap() };
            tokio::join!(send, take);
            assert!(got.len() == LEN && got.iter().all(|byte| *byte == 7));
            drop(upstream);
        });
        assert_eq!(ended.await, (Ended::Whole, 0));
    }

    /// What an upstream says last reaches the client, although it takes nothing any more.
    #[tokio::test(start_paused = true)]
    async fn an_upstream_that_takes_no_more_is_heard() {
        let ended = between(64, async |mut client, mut upstream| {
            upstream.write_all(b"bye").await.unwrap();
            drop(upstream);
            let _ = client.write_all(&[0; 1000]).await;
            let mut said = Vec::new();
            client.read_to_end(&mut said).await.unwrap();
            assert_eq!(said, b"bye");
        });
        assert_eq!(ended.await, (Ended::Whole, 3));
    }
}
