//! A Redis server of a test, and calls of scripts on it.

use std::collections::BTreeMap;
use std::time::Duration;

use redis::{Cmd, Connection, FromRedisValue, Value};
use weir::base::time::Timestamp;
use weir::engine::limit::Key;
use weir::engine::store::backend::{Answers, RemoteCharge, RemoteOutcome, Unavailable};
use weir::fleet::stores::driver::Generation;
use weir::fleet::stores::redis::script::{self, Call, Caller, Names};

use crate::support::Redis;

/// A server, and a connection to it.
pub struct Server {
    _redis: Redis,
    connection: Connection,
    pub names: Names,
    pub caller: Caller,
}

/// The key of all tests.
pub const KEY: Key = Key { first: 1, second: 2 };

/// All keys and their values, in one call because tests make it very often.
const DUMP: &str = "
    local all = {}
    for index, key in ipairs(redis.call('KEYS', '*')) do
        all[2 * index - 1], all[2 * index] = key, redis.call('DUMP', key)
    end
    return all";

/// The longest time to live of keys of a pattern.
const LONGEST: &str = "
    local longest = -2
    for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
        longest = math.max(longest, redis.call('PTTL', key))
    end
    return longest";

impl Server {
    pub fn start() -> Self {
        let redis = Redis::start();
        let client = redis::Client::open(format!("unix:{}", redis.socket().display())).unwrap();
        let connection = client.get_connection().unwrap();
        let caller = Caller { replica: 7, flight: Duration::from_secs(10), server_us: None };
        Self { _redis: redis, connection, names: Names::new("weir"), caller }
    }

    /// Sends a command. Panics if it fails.
    #[track_caller]
    pub fn send<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query(&mut self.connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs a script. Panics if it fails.
    #[track_caller]
    pub fn run(&mut self, call: &Call) -> Value {
        let name = call.script.name;
        match call.by_hash().query(&mut self.connection) {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                let _: String = self.send(&["SCRIPT", "LOAD", call.script.text]);
                call.by_hash().query(&mut self.connection).unwrap_or_else(|error| panic!("{name}: {error}"))
            }
            reply => reply.unwrap_or_else(|error| panic!("{name}: {error}")),
        }
    }

    /// Decides charges at `now`, of which the server is told only as far as `caller` says. Returns whether they are admitted,
    /// and the outcome of each.
    #[track_caller]
    pub fn decide(&mut self, charges: &[RemoteCharge<'_>], now: Timestamp) -> (bool, Vec<RemoteOutcome>) {
        let Answers { is_admitted, outcomes } = self.try_decide(None, charges, now).unwrap();
        (is_admitted, outcomes.into_iter().map(Result::unwrap).collect())
    }

    pub fn try_decide(
        &mut self,
        generation: Option<u64>,
        charges: &[RemoteCharge<'_>],
        now: Timestamp,
    ) -> Result<Answers, Unavailable> {
        let marker = self.names.of_marker(0);
        let generation = generation.map(|begun_us| Generation { number: begun_us, marker });
        let call = script::decide(&self.names, &self.caller, generation.as_ref(), charges, now);
        let reply = self.run(&call);
        script::decided(&self.names, &self.caller, charges, &reply, now)
    }

    /// Sets a key to any bytes.
    pub fn set(&mut self, key: &str, value: &[u8]) {
        let mut command = redis::cmd("SET");
        command.arg(key).arg(value);
        command.exec(&mut self.connection).unwrap();
    }

    /// The longest time to live of a rate of a limit, in milliseconds.
    pub fn longest_ms(&mut self, limit: &str) -> u64 {
        let longest: i64 = self.send(&["EVAL", LONGEST, "0", &format!("{}*", self.names.of_key(limit, KEY))]);
        u64::try_from(longest).expect("the limit has a key that expires")
    }

    /// All keys, and their values as the server dumps them.
    pub fn dump(&mut self) -> BTreeMap<String, Vec<u8>> {
        self.send(&["EVAL", DUMP, "0"])
    }
}
