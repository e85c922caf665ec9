//! The generation of the keys of a node: a marker key that a restart without data, or a flush, takes away.
//!
//! A generation is the instant of its begin, by the clock of the server. While a generation is young, the replicas bring
//! what they know of the keys, and none lets the node decide: until all have brought theirs, or [`WARM_AFTER_US`] later.
//!
//! Not here: what replicas bring (`monitor`), and the comparison with each call (the script).

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, Value};

use super::call::reply_of;
use crate::engine::store::backend::Failure;
use crate::fleet::stores::driver::ConnectError;

/// The age from which a generation decides even if replicas are missing.
pub(super) const WARM_AFTER_US: u64 = 2_000_000;

/// The time for which a node keeps the list of the replicas that brought their keys.
const MET_MS: u64 = 60_000;

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

/// Reads the generation, and begins one if there is none. `replica` is noted as one that brought its keys if `has_met` is
/// the generation.
pub(super) async fn begin(
    connection: &mut MultiplexedConnection,
    marker: &str,
    replica: &str,
    has_met: Option<u64>,
) -> Result<Seen, ConnectError> {
    let mut first = Pipeline::new();
    first.cmd("TIME").cmd("GET").arg(marker);
    let [time, found] = all(connection, &first).await?;
    let now_us = microseconds(&time).ok_or(Failure::Reply)?;
    let begun_us = if let Some(begun_us) = number(&found) {
        begun_us
    } else {
        let mut set = Pipeline::new();
        set.cmd("SET").arg(marker).arg(now_us).arg("NX").cmd("GET").arg(marker);
        let [_, found] = all(connection, &set).await?;
        number(&found).ok_or(Failure::Reply)?
    };
    let met = format!("{marker}:{begun_us}");
    let mut count = Pipeline::new();
    if has_met == Some(begun_us) {
        count.cmd("SADD").arg(&met).arg(replica).cmd("PEXPIRE").arg(&met).arg(MET_MS);
    } else {
        count.cmd("PING").cmd("PING");
    }
    count.cmd("SCARD").arg(&met);
    let [_, _, met] = all(connection, &count).await?;
    Ok(Seen { begun_us, now_us, met: number(&met).ok_or(Failure::Reply)? })
}

/// The replies to all commands, none of which is an error.
async fn all<const N: usize>(
    connection: &mut MultiplexedConnection,
    commands: &Pipeline,
) -> Result<[Value; N], ConnectError> {
    let replies = connection.send_packed_commands(commands, 0, N).await;
    let replies = replies.map_err(|error| ConnectError::redis(&error))?;
    let replies = replies.into_iter().map(reply_of).collect::<Result<Vec<_>, _>>()?;
    replies.try_into().map_err(|_| Failure::Reply.into())
}

pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// The reply to `TIME`.
fn microseconds(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else { return None };
    let [seconds, rest] = parts.as_slice() else { return None };
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(rest)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
