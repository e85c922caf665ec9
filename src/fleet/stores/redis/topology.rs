//! The nodes of a store at one moment, and how they are found: named by the configuration, told by sentinels, or told by
//! any node of a cluster.
//!
//! Not here: when they are looked for again (`background`).

use std::sync::Arc;

use redis::{Cmd, Value, cmd};
use tokio::select;
use tokio::time::timeout;

use super::call::reply_of;
use super::connection::Connector;
use super::node::{Common, Node};
use super::routes::{Routes, SLOTS, slot};
use super::script::key_of;
use crate::engine::store::backend::Failure;
use crate::fleet::stores::driver::{self, CONNECT_MAX, ConnectError, NodeAddress, Opened, Server as _, Topology};

/// The nodes of a store of Redis.
pub(in crate::fleet::stores) type Nodes = driver::Nodes<Node, Map>;

/// Which node has a key.
pub(in crate::fleet::stores) struct Map {
    pub(super) routes: Routes,
    /// The slots of a cluster, as they were told; empty for other stores.
    ranges: Vec<SlotRange>,
}

/// Successive slots and their master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SlotRange {
    first: u16,
    last: u16,
    master: NodeAddress,
}

impl Nodes {
    /// The nodes before anything is asked.
    pub(super) fn first(topology: &Topology, common: &Arc<Common>) -> Self {
        match topology {
            Topology::Ring(addresses) => {
                let node =
                    |address: &NodeAddress| Node::new(Arc::clone(common), &address.to_string(), Some(address.clone()));
                let nodes = addresses.iter().map(node).collect();
                Self { all: nodes, map: Map { routes: Routes::ring(addresses), ranges: Vec::new() } }
            }
            Topology::Sentinel { master, .. } => {
                let node = Node::new(Arc::clone(common), master, None);
                Self { all: vec![node], map: Map { routes: Routes::One, ranges: Vec::new() } }
            }
            Topology::Cluster(_) => {
                let nobody = vec![Routes::NOBODY; SLOTS.into()];
                Self { all: Vec::new(), map: Map { routes: Routes::Slots(nobody.into()), ranges: Vec::new() } }
            }
        }
    }

    /// The nodes of a cluster with these slots. Nodes that are known already stay. `None` if nothing has changed.
    pub(super) fn with_slots(&self, ranges: Vec<SlotRange>, common: &Arc<Common>) -> Option<Self> {
        if ranges == self.map.ranges {
            return None;
        }
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        let mut of_slots = vec![Routes::NOBODY; SLOTS.into()];
        for SlotRange { first, last, master } in &ranges {
            let known = |node: &&Arc<Node>| node.address().as_ref() == Some(master);
            let index = nodes.iter().position(|node| known(&node)).unwrap_or_else(|| {
                let node = self.all.iter().find(known).map(Arc::clone);
                nodes.push(
                    node.unwrap_or_else(|| Node::new(Arc::clone(common), &master.to_string(), Some(master.clone()))),
                );
                nodes.len() - 1
            });
            let index = u16::try_from(index).unwrap_or(Routes::NOBODY);
            of_slots[usize::from(*first)..=usize::from(*last)].fill(index);
        }
        Some(Self { all: nodes, map: Map { routes: Routes::Slots(of_slots.into()), ranges } })
    }

    /// The index of the node with a key of a limit, by its name in Redis. `None` if no node serves it.
    pub(super) fn node_of(&self, store_key: &str) -> Option<usize> {
        let slot = if self.is_cluster() { slot(store_key.as_bytes()) } else { 0 };
        self.map.routes.node(key_of(store_key)?, slot)
    }

    /// Whether the keys of one call must be in one slot.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.map.routes, Routes::Slots(_))
    }

    /// Whether `node` serves `slot`; always if the store is no cluster.
    pub(super) fn serves(&self, node: &Arc<Node>, slot: u16) -> bool {
        let Routes::Slots(nodes) = &self.map.routes else { return true };
        let owner = nodes.get(usize::from(slot)).and_then(|index| self.all.get(usize::from(*index)));
        owner.is_some_and(|owner| Arc::ptr_eq(owner, node))
    }
}

/// Asks the nodes one after the other for the slots of their cluster.
pub(super) async fn slots(connector: &Connector, nodes: &[NodeAddress]) -> Result<Vec<SlotRange>, ConnectError> {
    let mut failed = ConnectError::no_address();
    for node in nodes {
        let mut command = cmd("CLUSTER");
        command.arg("SLOTS");
        let (reply, asked) = (ask(connector, node, &command).await, node.host().unwrap_or_default());
        let none = || ConnectError { failure: Failure::Reply, text: format!("{node} tells no slots") };
        let parsed = |reply| parse_slots(&reply, asked).filter(|all| !all.is_empty()).ok_or_else(none);
        match reply.and_then(parsed) {
            Ok(ranges) => return Ok(ranges),
            Err(error) => failed = telling(failed, error),
        }
    }
    Err(failed)
}

/// Asks the sentinels one after the other for the address of `master`, until one names a server that says that it is one.
/// Else the first server that does not say otherwise.
pub(super) async fn master(
    sentinels: &Connector,
    nodes: &[NodeAddress],
    master: &str,
    connector: &Connector,
) -> Result<NodeAddress, ConnectError> {
    let (mut silent, mut failed) = (None, ConnectError::no_address());
    for node in nodes {
        let mut command = cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let unknown = || ConnectError { failure: Failure::Other, text: format!("{node} knows no master `{master}`") };
        let reply = ask(sentinels, node, &command).await;
        let address = match reply.and_then(|reply| parse_address(&reply).ok_or_else(unknown)) {
            Ok(address) => address,
            Err(error) => {
                failed = telling(failed, error);
                continue;
            }
        };
        // A sentinel that was cut off may name the old master. Every user may call `HELLO`, not so `ROLE`.
        match ask(connector, &address, cmd("HELLO").arg(3)).await.ok().as_ref().and_then(role) {
            Some("master") => return Ok(address),
            Some(_) => {
                let text = format!("{address}, which {node} names, is a replica");
                failed = telling(failed, ConnectError { failure: Failure::ReadOnly, text });
            }
            None => silent = silent.or(Some(address)),
        }
    }
    silent.ok_or(failed)
}

/// The error to tell of two servers: that of a server that answered, if there is one.
fn telling(before: ConnectError, error: ConnectError) -> ConnectError {
    if before.is_of_connection() || before.failure == Failure::Timeout { error } else { before }
}

/// Opens a connection for one question.
async fn ask(connector: &Connector, node: &NodeAddress, command: &Cmd) -> Result<Value, ConnectError> {
    let asked = async {
        let Opened { mut connection, mut driver } = connector.open(node).await?;
        select! {
            reply = connection.send_packed_command(command) => {
                reply.map_err(|error| ConnectError::redis(&error)).and_then(reply_of)
            }
            () = &mut driver => Err(Failure::Broken.into()),
        }
    };
    let answered = timeout(CONNECT_MAX, asked).await.map_err(ConnectError::from).flatten();
    answered.map_err(|error| ConnectError { text: format!("{node}: {}", error.text), ..error })
}

/// The role in a reply to `HELLO`.
fn role(reply: &Value) -> Option<&str> {
    let Value::Map(fields) = reply else { return None };
    fields.iter().find(|(name, _)| text(name) == Some("role")).and_then(|(_, role)| text(role))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// A host and a port.
fn parse_address(reply: &Value) -> Option<NodeAddress> {
    let Value::Array(parts) = reply else { return None };
    let [host, port] = parts.as_slice() else { return None };
    Some(NodeAddress::tcp(text(host)?, text(port)?.parse().ok()?))
}

/// The reply to `CLUSTER SLOTS`. A master without a host has that of the node that was asked.
fn parse_slots(reply: &Value, asked: &str) -> Option<Vec<SlotRange>> {
    let Value::Array(ranges) = reply else { return None };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else { return None };
        let [host, Value::Int(port), ..] = master.as_slice() else { return None };
        let host = text(host).filter(|host| !host.is_empty() && *host != "?").unwrap_or(asked);
        let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
        let master = NodeAddress::tcp(host, u16::try_from(*port).ok()?);
        (first <= last && last < SLOTS).then_some(SlotRange { first, last, master })
    };
    let mut ranges = ranges.iter().map(range).collect::<Option<Vec<_>>>()?;
    ranges.sort_by_key(|range| range.first);
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::time::Clock;
    use crate::engine::store::backend::OnFailure;
    use crate::fleet::stores::redis::Store;

    fn node(port: u16) -> NodeAddress {
        NodeAddress::tcp("10.0.0.1", port)
    }

    #[test]
    fn slots_are_parsed() {
        let reply = "*3\r\n\
            *4\r\n:5461\r\n:16383\r\n*3\r\n$8\r\n10.0.0.1\r\n:7001\r\n$2\r\nid\r\n*3\r\n$8\r\n10.0.0.1\r\n:7101\r\n$2\r\nid\r\n\
            *3\r\n:0\r\n:100\r\n*4\r\n$-1\r\n:7000\r\n$2\r\nid\r\n*0\r\n\
            *3\r\n:101\r\n:5460\r\n*3\r\n$1\r\n?\r\n:7000\r\n$2\r\nid\r\n";
        let parsed = redis::parse_redis_value(reply.as_bytes()).unwrap();
        let range = |first, last, port| SlotRange { first, last, master: node(port) };
        let expected = [range(0, 100, 7000), range(101, 5460, 7000), range(5461, 16_383, 7001)];
        assert_eq!(parse_slots(&parsed, "10.0.0.1").as_deref(), Some(expected.as_slice()));
    }

    /// A server that was promoted has units of calls whose answers were lost with the master: they end.
    #[test]
    fn the_first_renewal_at_a_promoted_server_is_exact() {
        let store = Store::unreachable(OnFailure::Split, Clock::start());
        let slots = |port| vec![SlotRange { first: 0, last: SLOTS - 1, master: node(port) }];
        let before = Nodes::first(&Topology::Cluster(vec![node(7000)]), &store.common);
        let before = before.with_slots(slots(7000), &store.common).unwrap();
        let after = before.with_slots(slots(7001), &store.common).unwrap();
        assert!(after.all[0].take_lost() && !after.all[0].take_lost());
    }

    #[test]
    fn other_replies_are_no_slots() {
        for reply in [
            "+OK\r\n",
            "*1\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:9\r\n:8\r\n*2\r\n$1\r\na\r\n:1\r\n",
            "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$1\r\na\r\n:65536\r\n",
        ] {
            let parsed = redis::parse_redis_value(reply.as_bytes()).unwrap();
            assert_eq!(parse_slots(&parsed, "a"), None, "{reply}");
        }
    }

    #[test]
    fn the_role_is_parsed() {
        for (reply, expected) in [
            ("%2\r\n$5\r\nproto\r\n:3\r\n$4\r\nrole\r\n$6\r\nmaster\r\n", Some("master")),
            ("%1\r\n$4\r\nrole\r\n$7\r\nreplica\r\n", Some("replica")),
            ("%1\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n", None),
            ("+OK\r\n", None),
        ] {
            let parsed = redis::parse_redis_value(reply.as_bytes()).unwrap();
            assert_eq!(role(&parsed), expected, "{reply}");
        }
    }

    /// Servers that cannot be reached do not hide the error of one that answers.
    #[test]
    fn the_error_of_a_server_that_answers_is_told() {
        let of = |failure: &Failure| ConnectError::from(*failure);
        for (failures, expected) in [
            ([Failure::Timeout, Failure::Login, Failure::Broken], Failure::Login),
            ([Failure::Connection, Failure::Broken, Failure::Connection], Failure::Connection),
            ([Failure::Permission, Failure::Connection, Failure::Login], Failure::Permission),
        ] {
            let told = failures.iter().map(of).fold(ConnectError::no_address(), telling);
            assert_eq!(told.failure, expected, "{failures:?}");
        }
    }

    #[test]
    fn addresses_are_parsed() {
        for (reply, expected) in [
            ("*2\r\n$8\r\n10.0.0.1\r\n$4\r\n6379\r\n", Some(node(6379))),
            ("*-1\r\n", None),
            ("_\r\n", None),
            ("*2\r\n$1\r\na\r\n$5\r\n65536\r\n", None),
        ] {
            let parsed = redis::parse_redis_value(reply.as_bytes()).unwrap();
            assert_eq!(parse_address(&parsed), expected, "{reply}");
        }
    }
}
