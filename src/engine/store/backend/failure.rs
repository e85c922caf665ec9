//! The kinds of failures of a node, as the metrics and the log tell them apart.
//!
//! Not here: which error of a protocol is of which kind.

/// Why a call of a node failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No reply in time.
    Timeout,
    /// No connection.
    Connection,
    /// The connection broke during the call.
    Broken,
    /// The node reads its data from disk.
    Loading,
    /// `maxmemory` is reached.
    OutOfMemory,
    /// The node is a replica.
    ReadOnly,
    /// The node is a replica whose master is unreachable.
    MasterDown,
    /// The cluster does not serve the slot.
    ClusterDown,
    /// The slot moves to another master now.
    Moving,
    /// The user or the password is wrong or missing.
    Login,
    /// The user may not call the command, or not with this key.
    Permission,
    /// The node cannot persist, and so refuses writes.
    Persistence,
    /// A script of somebody keeps the node busy.
    Busy,
    /// The reply is none to this question.
    Reply,
    /// A limiter does not have the limit.
    Limit,
    /// A limiter has another rule for the key.
    Rule,
    /// A key has a value that no replica has written.
    Value,
    /// Another error.
    Other,
}

impl Failure {
    /// All kinds in the order of their discriminants, with their labels of `weir_store_errors_total`.
    pub const ALL: [(Self, &'static str); 18] = [
        (Self::Timeout, "timeout"),
        (Self::Connection, "connection"),
        (Self::Broken, "broken"),
        (Self::Loading, "loading"),
        (Self::OutOfMemory, "oom"),
        (Self::ReadOnly, "readonly"),
        (Self::MasterDown, "masterdown"),
        (Self::ClusterDown, "clusterdown"),
        (Self::Moving, "moving"),
        (Self::Login, "login"),
        (Self::Permission, "permission"),
        (Self::Persistence, "persistence"),
        (Self::Busy, "busy"),
        (Self::Reply, "reply"),
        (Self::Limit, "limit"),
        (Self::Rule, "rule"),
        (Self::Value, "value"),
        (Self::Other, "other"),
    ];

    /// The label of `weir_store_errors_total`.
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_differ() {
        for (index, (failure, _)) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(failure as usize, index);
        }
        let labels: std::collections::HashSet<_> = Failure::ALL.map(|(failure, _)| failure.label()).into();
        assert_eq!(labels.len(), Failure::ALL.len());
    }
}
