//! The generation of the keys of a node: a marker key that a restart without data, or a flush, takes away.
//!
//! A generation is the instant of its begin, by the clock of the server. While a generation is young, the replicas bring
//! what they know of the keys, and none lets the node decide: until all have brought theirs, or [`WARM_AFTER_US`] later.
//!
//! A restart with the data of an earlier time brings the marker back too. So each replica counts its looks on the node, and a
//! number that went back ends the generation. A look is counted after it is judged: what it shows is not lost with its answer.
//!
//! Not here: what replicas bring (`monitor`), and the comparison with each call (the script).

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::call::reply_of;
use crate::base::time::Clock;
use crate::engine::store::backend::Failure;
use crate::fleet::stores::driver::ConnectError;

/// The age from which a generation decides even if replicas are missing.
pub(super) const WARM_AFTER_US: u64 = 2_000_000;

/// The time for which a node keeps the list of the replicas that brought their keys.
const MET_MS: u64 = 60_000;

/// The time for which a node keeps the number of the last look of a replica.
const LOOK_MS: u64 = 86_400_000;

/// The calls of a look, one after another: the question, the deletion of a foreign value, and the count.
pub(super) const LOOK_CALLS: u32 = 3;

/// The code of an error about a key whose value has another type.
const WRONG_TYPE: &str = "WRONGTYPE";

/// The looks of one replica at one node.
#[derive(Debug)]
pub(super) struct Looks {
    /// The clock of this process.
    clock: Clock,
    /// The replica in names of keys.
    replica: Box<str>,
    /// The number of the last look that the node has confirmed.
    confirmed: AtomicU64,
    /// The time of that look, by the clock of the node.
    confirmed_us: AtomicU64,
    /// A generation that a server had again after a restart with the data of an earlier time; 0 if there was none.
    outdated: AtomicU64,
    /// Microseconds by which the clock of the node was ahead at the last look.
    ahead_us: AtomicI64,
}

impl Looks {
    /// No looks yet.
    pub(super) fn new(replica: &str, clock: Clock) -> Self {
        let (confirmed, confirmed_us) = (AtomicU64::new(0), AtomicU64::new(0));
        let (outdated, ahead_us) = (AtomicU64::new(0), AtomicI64::new(0));
        Self { clock, replica: replica.into(), confirmed, confirmed_us, outdated, ahead_us }
    }

    /// Nanoseconds by which the clock of the node was ahead of that of this process at the last look; 0 before it.
    pub(super) fn ahead_ns(&self) -> i64 {
        self.ahead_us.load(Ordering::Relaxed).saturating_mul(1000)
    }

    /// The node has answered that its time is `now_us`.
    pub(super) fn note_time(&self, now_us: u64) {
        let own_us = self.clock.now().as_ns() / 1000;
        self.ahead_us.store(now_us.cast_signed().saturating_sub(own_us.cast_signed()), Ordering::Relaxed);
    }

    /// The key with the number of the last look.
    fn key(&self, marker: &str) -> String {
        format!("{marker}:look:{}", self.replica)
    }

    /// The number and the time of the last look that the node has confirmed.
    fn confirmed(&self) -> (u64, u64) {
        (self.confirmed.load(Ordering::Relaxed), self.confirmed_us.load(Ordering::Relaxed))
    }

    /// The last confirmed number, if the node has it still at `now_us`.
    fn unexpired((confirmed, at_us): (u64, u64), now_us: u64) -> u64 {
        if now_us.saturating_sub(at_us) < LOOK_MS * 1000 { confirmed } else { 0 }
    }

    /// The generation that is in force. `confirmed` is the number of the last look that the node confirmed before it was
    /// asked. If `found` is smaller than `confirmed`, the node lost writes. Then the generation `last` is outdated, and an
    /// earlier one is if the node has a look of this replica from its time. Any other one was begun after the loss, perhaps
    /// by a clock that was set back. With a `last` of 0 every generation is in force.
    fn in_force(&self, number: Option<u64>, (found, confirmed): (u64, u64), last: u64) -> Option<u64> {
        let is_old = |number: u64| found < confirmed && (number == last || number < last && found > 0);
        if let Some(number) = number.filter(|number| is_old(*number)) {
            self.outdated.store(number, Ordering::Relaxed);
        }
        number.filter(|number| last == 0 || *number != self.outdated.load(Ordering::Relaxed))
    }

    /// A judged look at `now_us` that found the number `found` was counted as `counted`, which is smaller only if the node
    /// lost writes in between: the next look shows that.
    fn confirm(&self, found: u64, counted: u64, now_us: u64) {
        self.confirmed.store(counted.max(found), Ordering::Relaxed);
        self.confirmed_us.store(now_us, Ordering::Relaxed);
    }
}

/// What a node says of its time, its marker, and the looks of this replica.
struct Look {
    now_us: u64,
    /// The generation that is in force.
    number: Option<u64>,
    /// Whether the marker has a value.
    is_marked: bool,
    /// The number of the last look; 0 if there is none.
    found: u64,
    /// Whether there is another value in its place.
    is_foreign: bool,
}

/// What a node says of its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) begun_us: u64,
    pub(super) now_us: u64,
    /// The replicas that brought their keys.
    pub(super) met: u64,
}

impl Seen {
    /// Whether the node decides, in a fleet of `replicas`.
    pub(super) fn is_warm(&self, replicas: u64) -> bool {
        self.met >= replicas || self.is_old()
    }

    /// Whether a replica that let the node decide under the generation `last` (0 for none) lets it decide at once.
    pub(super) fn is_known(&self, last: u64) -> bool {
        if last == 0 { self.is_old() } else { last == self.begun_us }
    }

    /// Whether the node decides whatever the number of replicas. A begin in the future is from before the clock of the
    /// server was set back: its age is unknown, and a wait for it may take hours.
    fn is_old(&self) -> bool {
        self.now_us.abs_diff(self.begun_us) >= WARM_AFTER_US
    }
}

/// Reads the generation of the node, if there is one.
pub(super) async fn look(
    connection: &mut MultiplexedConnection,
    marker: &str,
    (looks, last): (&Looks, u64),
) -> Result<Option<u64>, ConnectError> {
    look_and_count(connection, marker, (looks, last)).await.map(|look| look.number)
}

/// Looks, and counts the look on the node.
async fn look_and_count(
    connection: &mut MultiplexedConnection,
    marker: &str,
    (looks, last): (&Looks, u64),
) -> Result<Look, ConnectError> {
    let look = judge(connection, marker, (looks, last)).await?;
    let own = looks.key(marker);
    if look.is_foreign {
        let [_] = all(connection, Pipeline::new().cmd("DEL").arg(&own)).await?;
    }
    let mut count = Pipeline::new();
    count.cmd("INCR").arg(&own).cmd("PEXPIRE").arg(&own).arg(LOOK_MS);
    let [counted, _] = all(connection, &count).await?;
    looks.confirm(look.found, number(&counted).ok_or(Failure::Reply)?, look.now_us);
    Ok(look)
}

/// Looks, and writes nothing.
async fn judge(
    connection: &mut MultiplexedConnection,
    marker: &str,
    (looks, last): (&Looks, u64),
) -> Result<Look, ConnectError> {
    let confirmed = looks.confirmed();
    let mut ask = Pipeline::new();
    ask.cmd("TIME").cmd("GET").arg(marker).cmd("GET").arg(looks.key(marker));
    let [time, mark, counted] = all(connection, &ask).await?;
    let now_us = microseconds(&time).ok_or(Failure::Reply)?;
    looks.note_time(now_us);
    let found = exact(&counted).filter(|found| *found < i64::MAX.cast_unsigned());
    let is_foreign = found.is_none() && counted != Value::Nil;
    let found = found.unwrap_or(0);
    let number = looks.in_force(exact(&mark), (found, Looks::unexpired(confirmed, now_us)), last);
    Ok(Look { now_us, number, is_marked: mark != Value::Nil, found, is_foreign })
}

/// Reads the generation, and begins one if there is none. The replica is noted as one that brought its keys if `has_met` is
/// the generation. A look may end generations up to `last`.
pub(super) async fn begin(
    connection: &mut MultiplexedConnection,
    marker: &str,
    (looks, last): (&Looks, u64),
    has_met: Option<u64>,
) -> Result<Seen, ConnectError> {
    let Look { now_us, number: found, is_marked, .. } = look_and_count(connection, marker, (looks, last)).await?;
    let begun_us = if let Some(begun_us) = found {
        begun_us
    } else {
        let mut set = Pipeline::new();
        // A value that is no generation, or an outdated one, is replaced. Of two replicas that do so, the later one counts.
        set.cmd("SET").arg(marker).arg(now_us).arg((!is_marked).then_some("NX")).cmd("GET").arg(marker);
        let [_, found] = all(connection, &set).await?;
        exact(&found).ok_or(Failure::Reply)?
    };
    let met = format!("{marker}:{begun_us}");
    let mut count = Pipeline::new();
    if has_met == Some(begun_us) {
        count.cmd("SADD").arg(&met).arg(&*looks.replica).cmd("PEXPIRE").arg(&met).arg(MET_MS);
    } else {
        count.cmd("PING").cmd("PING");
    }
    count.cmd("SCARD").arg(&met);
    let [_, _, met] = all(connection, &count).await?;
    Ok(Seen { begun_us, now_us, met: number(&met).ok_or(Failure::Reply)? })
}

/// The replies to all commands, none of which is an error. A value of another type is text of no meaning.
async fn all<const N: usize>(
    connection: &mut MultiplexedConnection,
    commands: &Pipeline,
) -> Result<[Value; N], ConnectError> {
    let replies = connection.send_packed_commands(commands, 0, N).await;
    let replies = replies.map_err(|error| ConnectError::redis(&error))?;
    let reply_of = |reply| match reply {
        Value::ServerError(error) if error.code() == WRONG_TYPE => Ok(Value::BulkString(Vec::new())),
        reply => reply_of(reply),
    };
    let replies = replies.into_iter().map(reply_of).collect::<Result<Vec<_>, _>>()?;
    replies.try_into().map_err(|_| Failure::Reply.into())
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// The generation that a marker shows, in the form in which scripts compare it, or a number of looks.
fn exact(mark: &Value) -> Option<u64> {
    let found = number(mark).filter(|number| *number > 0)?;
    matches!(mark, Value::BulkString(text) if **text == *found.to_string().as_bytes()).then_some(found)
}

/// The reply to `TIME`.
fn microseconds(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let [seconds, rest] = parts.as_slice() else { return None };
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(rest)?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use redis::{AsyncConnectionConfig, RedisConnectionInfo};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
    use tokio::time::sleep;

    use super::*;
    use crate::base::time::Timestamp;

    /// The looks of a replica at a server whose time is 9 s, which begin at 8 s.
    fn looks() -> Looks {
        Looks::new("r", Clock::start_at(Timestamp::from_ns(8_000_000_000)))
    }

    /// The keys of a server that has numbers only.
    type Keys = Arc<Mutex<BTreeMap<String, u64>>>;

    /// Does all commands of a connection, and breaks it instead of the answer to the first `lost`.
    async fn serve(stream: DuplexStream, keys: Keys, lost: &'static str) {
        let (mut stream, mut answers) = (BufReader::new(stream), true);
        while answers || !stream.buffer().is_empty() {
            let Some(words) = command(&mut stream).await else { return };
            answers &= words[0] != lost;
            if words[0] == "INCR" {
                sleep(Duration::from_millis(200)).await;
            }
            let answer = {
                let mut keys = keys.lock().unwrap();
                match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                    ["TIME"] => "*2\r\n$1\r\n9\r\n$1\r\n0\r\n".into(),
                    ["GET", key] => keys.get(key).map_or("$-1\r\n".into(), |number| {
                        let number = number.to_string();
                        format!("${}\r\n{number}\r\n", number.len())
                    }),
                    ["INCR", key] => {
                        let number = keys.entry(key.into()).or_default();
                        *number += 1;
                        format!(":{number}\r\n")
                    }
                    ["SET", key, number, ..] => {
                        keys.insert(key.into(), number.parse().unwrap());
                        "+OK\r\n".into()
                    }
                    _ => "+OK\r\n".to_owned(),
                }
            };
            if answers {
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        }
    }

    async fn command(stream: &mut BufReader<DuplexStream>) -> Option<Vec<String>> {
        let mut lines = stream.lines();
        let count = lines.next_line().await.ok()??[1..].parse().unwrap();
        let mut words = Vec::new();
        for _ in 0..count {
            let _length = lines.next_line().await.ok()??;
            words.push(lines.next_line().await.ok()??);
        }
        Some(words)
    }

    /// A look over a new connection, under the last generation 5.
    async fn look_once(keys: &Keys, looks: &Looks, lost: &'static str) -> Result<Option<u64>, ConnectError> {
        let (near, far) = tokio::io::duplex(4096);
        tokio::spawn(serve(far, Arc::clone(keys), lost));
        let (login, config) = (RedisConnectionInfo::default(), AsyncConnectionConfig::new());
        let (mut connection, driver) = MultiplexedConnection::new_with_config(&login, near, config).await.unwrap();
        tokio::spawn(driver);
        look(&mut connection, "m", (looks, 5)).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_is_compared_when_the_time_comes() {
        let (keys, looks) = (Keys::default(), looks());
        for ahead_ms in [1000, 800, 600, 400] {
            look_once(&keys, &looks, "").await.unwrap();
            assert_eq!(looks.ahead_ns(), ahead_ms * 1_000_000);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_hides_no_old_data() {
        let (keys, looks) = (Keys::default(), looks());
        let restore = |look: u64| *keys.lock().unwrap() = [("m".into(), 5), ("m:look:r".into(), look)].into();
        restore(0);
        for lost in ["", "", "TIME", "INCR", ""] {
            assert_eq!(look_once(&keys, &looks, lost).await.ok(), lost.is_empty().then_some(Some(5)), "{lost}");
        }
        // The first two looks, the one whose count had no answer, and the last one.
        assert_eq!(looks.confirmed().0, 4);
        for (look, lost) in [(3, "TIME"), (3, "GET"), (2, "INCR")] {
            let looks = self::looks();
            looks.confirm(0, 4, 9_000_000);
            restore(look);
            assert!(look_once(&keys, &looks, lost).await.is_err());
            assert_eq!(look_once(&keys, &looks, "").await.unwrap(), None, "{look} {lost}");
        }
    }

    #[test]
    fn a_node_keeps_a_look_for_a_day() {
        let day_us = LOOK_MS * 1000;
        for (now_us, number) in [(50, 7), (49, 7), (49 + day_us, 7), (50 + day_us, 0)] {
            assert_eq!(Looks::unexpired((7, 50), now_us), number, "{now_us}");
        }
    }

    #[test]
    fn a_generation_decides_when_all_are_there_or_later() {
        let begun_us = 1_700_000_000_000_000;
        for (age_us, met, replicas, is_warm) in [
            (0, 0, 3, false),
            (0, 2, 3, false),
            (0, 3, 3, true),
            (1_999_999, 2, 3, false),
            (2_000_000, 0, 3, true),
            (0, 0, 1, false),
            (0, 1, 1, true),
            // The clock of the server was set back since.
            (-1_999_999, 2, 3, false),
            (-2_000_000, 1, 3, true),
            (-7_200_000_000, 1, 3, true),
        ] {
            let seen = Seen { begun_us, now_us: begun_us.saturating_add_signed(age_us), met };
            assert_eq!(seen.is_warm(replicas), is_warm, "{seen:?} {replicas}");
            // A replica that starts.
            assert_eq!(seen.is_known(0), age_us.abs() >= 2_000_000, "{seen:?}");
        }
    }

    #[test]
    fn a_look_that_went_back_ends_the_generation() {
        let looks = looks();
        // marker, look of this replica on the node, last confirmed look, last generation, generation in force
        for (number, found, confirmed, last, expected) in [
            (Some(5), 0, 0, 0, Some(5)),
            (Some(5), 3, 3, 5, Some(5)),
            // The answer to a look, or to its count, was lost.
            (Some(5), 4, 3, 5, Some(5)),
            (Some(5), 2, 3, 5, None),
            // Until another generation begins.
            (Some(5), 4, 4, 5, None),
            (None, 4, 4, 5, None),
            // Another replica has begun it after the restart.
            (Some(7), 3, 4, 5, Some(7)),
            (Some(7), 5, 5, 7, Some(7)),
            (Some(6), 1, 5, 7, None),
            // A replaced store ends nothing, whatever it found before.
            (Some(6), 1, 5, 0, Some(6)),
            // The clock of the server was set back, and another replica has begun the generation since.
            (Some(4), 0, 5, 7, Some(4)),
        ] {
            assert_eq!(looks.in_force(number, (found, confirmed), last), expected, "{number:?} {found} {confirmed}");
        }
    }

    #[test]
    fn a_marker_with_another_value_shows_no_generation() {
        for (text, expected) in
            [("17", Some(17)), ("0", None), ("+17", None), ("017", None), ("", None), ("hello", None)]
        {
            assert_eq!(exact(&Value::BulkString(text.into())), expected, "{text}");
        }
        assert_eq!(exact(&Value::Nil), None);
    }

    #[test]
    fn times_are_parsed() {
        for (reply, expected) in [
            ("*2\r\n$10\r\n1700000000\r\n$6\r\n000123\r\n", Some(1_700_000_000_000_123)),
            ("*1\r\n$1\r\n1\r\n", None),
            ("+OK\r\n", None),
            ("*2\r\n$20\r\n18446744073709551615\r\n$1\r\n1\r\n", None),
        ] {
            assert_eq!(microseconds(&redis::parse_redis_value(reply.as_bytes()).unwrap()), expected);
        }
    }
}
