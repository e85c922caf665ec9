//! The kinds of failures that errors of Redis are.
//!
//! Not here: replies that are no failure of the node (`NOSCRIPT`, `MOVED`, `ASK`).

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::engine::store::backend::Failure;

/// Texts in an error of a script about a command that it called. Redis 6.2 and 7 prefix them with different words.
const CAUSES: [(&str, Failure); 7] = [
    ("OOM command not allowed", Failure::OutOfMemory),
    ("READONLY ", Failure::ReadOnly),
    ("MISCONF ", Failure::Persistence),
    ("NOREPLICAS ", Failure::Persistence),
    ("can't run this command", Failure::Permission),
    ("can't access", Failure::Permission),
    ("CLUSTERDOWN ", Failure::ClusterDown),
];

impl Failure {
    /// The kind of an error: the server's, or of the connection.
    pub(super) fn of(error: &RedisError) -> Self {
        match error.kind() {
            ErrorKind::Server(kind) => Self::of_server(kind, error.detail().unwrap_or_default()),
            ErrorKind::AuthenticationFailed => Self::Login,
            ErrorKind::Io if error.is_timeout() => Self::Timeout,
            ErrorKind::Io => Self::Broken,
            ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Self::Reply,
            _ => Self::of_code(error.code().unwrap_or_default()),
        }
    }

    fn of_server(kind: ServerErrorKind, detail: &str) -> Self {
        match kind {
            ServerErrorKind::BusyLoading => Self::Loading,
            ServerErrorKind::ReadOnly => Self::ReadOnly,
            ServerErrorKind::MasterDown => Self::MasterDown,
            ServerErrorKind::ClusterDown => Self::ClusterDown,
            ServerErrorKind::TryAgain | ServerErrorKind::CrossSlot | ServerErrorKind::Moved | ServerErrorKind::Ask => {
                Self::Moving
            }
            ServerErrorKind::NoPerm => Self::Permission,
            _ => CAUSES.iter().find(|(text, _)| detail.contains(text)).map_or(Self::Other, |(_, failure)| *failure),
        }
    }

    /// The kind of an error whose code the crate does not know.
    fn of_code(code: &str) -> Self {
        match code {
            "OOM" => Self::OutOfMemory,
            "NOAUTH" | "WRONGPASS" => Self::Login,
            "MISCONF" | "NOREPLICAS" => Self::Persistence,
            "BUSY" => Self::Busy,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_kinds() {
        for (reply, expected) in [
            ("LOADING Redis is loading the dataset in memory", Failure::Loading),
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:1.",
                Failure::OutOfMemory,
            ),
            (
                "ERR Error running script (call to f_1): @user_script:3: @user_script: 3: -OOM command not allowed when \
                 used memory > 'maxmemory'.",
                Failure::OutOfMemory,
            ),
            ("READONLY You can't write against a read only replica.", Failure::ReadOnly),
            ("ERR Error running script: @user_script:1: -READONLY You can't write", Failure::ReadOnly),
            ("MASTERDOWN Link with MASTER is down", Failure::MasterDown),
            ("CLUSTERDOWN Hash slot not served", Failure::ClusterDown),
            ("CLUSTERDOWN The cluster is down", Failure::ClusterDown),
            ("TRYAGAIN Multiple keys request during rehashing of slot", Failure::Moving),
            ("NOAUTH Authentication required.", Failure::Login),
            ("WRONGPASS invalid username-password pair or user is disabled.", Failure::Login),
            ("NOPERM this user has no permissions to run the 'evalsha' command", Failure::Permission),
            ("ERR The user executing the script can't run this command or subcommand script: 1", Failure::Permission),
            ("ERR The user executing the script can't access at least one of the keys", Failure::Permission),
            ("MISCONF Redis is configured to save RDB snapshots", Failure::Persistence),
            ("NOREPLICAS Not enough good replicas to write.", Failure::Persistence),
            ("BUSY Redis is busy running a script.", Failure::Busy),
            ("ERR Error running script: attempt to index a nil value", Failure::Other),
            ("WHATEVER it is", Failure::Other),
        ] {
            let parsed = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes());
            let Ok(redis::Value::ServerError(error)) = parsed else { panic!("{parsed:?}") };
            assert_eq!(Failure::of(&RedisError::from(error)), expected, "{reply}");
        }
        for (kind, expected) in [
            (std::io::ErrorKind::ConnectionReset, Failure::Broken),
            (std::io::ErrorKind::UnexpectedEof, Failure::Broken),
            (std::io::ErrorKind::TimedOut, Failure::Timeout),
        ] {
            assert_eq!(Failure::of(&RedisError::from(std::io::Error::from(kind))), expected, "{kind}");
        }
    }
}
