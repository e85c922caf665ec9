//! A Redis Cluster of three masters, with or without replicas.

use std::time::{Duration, Instant};

use super::{Redis, Reply};
use crate::support::poll;

/// Slots of a cluster.
const SLOTS: u16 = 16_384;

/// Milliseconds without a reply after which a master is down, while the cluster starts and once a master is killed.
const DOWN_AFTER_MS: &str = "500";

/// Milliseconds that are no reason for a promotion, because the machine may pause for so long.
const PATIENT_MS: &str = "60000";

/// Masters, and the replica of each if there are replicas.
pub struct Cluster {
    pub masters: Vec<Redis>,
    pub replicas: Vec<Redis>,
}

impl Cluster {
    /// Starts three masters, each with `replicas` replicas (0 or 1). Waits until they serve all slots.
    pub fn start(replicas: usize) -> Self {
        let node = |_| {
            Redis::with(&format!(
                "cluster-enabled yes\ncluster-node-timeout {DOWN_AFTER_MS}\ncluster-replica-validity-factor 0\n\
                 cluster-require-full-coverage no\nrepl-diskless-sync-delay 0\n"
            ))
        };
        let cluster = Self { masters: (0..3).map(node).collect(), replicas: (0..3 * replicas).map(node).collect() };
        for (index, master) in (0..).zip(&cluster.masters) {
            let (first, end) = (SLOTS / 3 * index, if index == 2 { SLOTS } else { SLOTS / 3 * (index + 1) });
            let slots: Vec<String> = (first..end).map(|slot| slot.to_string()).collect();
            let words: Vec<&str> =
                ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect();
            master.call(&words);
            master.call(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
        }
        let first = cluster.masters[0].address().port().to_string();
        let known = cluster.nodes().count().to_string();
        for node in cluster.nodes().skip(1) {
            node.call(&["CLUSTER", "MEET", "127.0.0.1", &first]);
        }
        // A handshake that a busy machine does not finish within a second is given up.
        let mut met = Instant::now();
        poll(|| {
            let lonely = |node: &&Redis| node.info_of_cluster("cluster_known_nodes") != known;
            let has_time = met.elapsed() < Duration::from_secs(3);
            for node in cluster.nodes().skip(1).filter(lonely).filter(|_| !has_time) {
                node.call(&["CLUSTER", "MEET", "127.0.0.1", &first]);
                met = Instant::now();
            }
            (!cluster.nodes().any(|node| lonely(&node))).then_some(())
        });
        // Nobody fails over before a test begins.
        cluster.set_timeout(PATIENT_MS);
        for (master, replica) in cluster.masters.iter().zip(&cluster.replicas) {
            let id = master.id();
            // The replica may know the id later than the number of nodes.
            poll(|| matches!(replica.try_call(&["CLUSTER", "REPLICATE", &id]), Ok(Reply::Text(_))).then_some(()));
        }
        cluster.wait_until(|node| node.info_of_cluster("cluster_state") == "ok");
        cluster.wait_until(|node| node.info_of_cluster("cluster_size") == "3");
        for replica in &cluster.replicas {
            poll(|| (replica.info("replication", "master_link_status")? == "up").then_some(()));
        }
        cluster
    }

    fn set_timeout(&self, timeout_ms: &str) {
        for node in self.nodes() {
            node.call(&["CONFIG", "SET", "cluster-node-timeout", timeout_ms]);
        }
    }

    /// Kills a master, which its replica replaces.
    pub fn kill_master(&mut self, master: usize) {
        self.set_timeout(DOWN_AFTER_MS);
        self.masters[master].kill_after_copying(&self.replicas[master]);
    }

    fn nodes(&self) -> impl Iterator<Item = &Redis> {
        self.masters.iter().chain(&self.replicas)
    }

    fn wait_until(&self, is_so: impl Fn(&Redis) -> bool) {
        for node in self.nodes() {
            poll(|| is_so(node).then_some(()));
        }
    }

    /// The addresses of all masters, as a TOML list.
    pub fn urls(&self) -> String {
        format!("{:?}", self.masters.iter().map(Redis::url).collect::<Vec<_>>())
    }

    /// The index of the master with the slot of this key.
    pub fn owner(&self, key: &str) -> usize {
        let slot = self.masters[0].call(&["CLUSTER", "KEYSLOT", key]).number();
        (usize::try_from(slot).unwrap() / usize::from(SLOTS / 3)).min(2)
    }

    /// Moves the slot of `key` with all keys in it to another master, as `redis-cli --cluster reshard` does. Calls
    /// `halfway` while the slot is on its way, after its keys are moved.
    pub fn move_slot(&self, key: &str, to: usize, halfway: impl FnOnce()) {
        let (from, to) = (&self.masters[self.owner(key)], &self.masters[to]);
        let slot = from.call(&["CLUSTER", "KEYSLOT", key]).number().to_string();
        let (source, target) = (from.id(), to.id());
        to.call(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        from.call(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
        let port = to.address().port().to_string();
        loop {
            let keys = from.call(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"]);
            if keys.texts().is_empty() {
                break;
            }
            for key in keys.texts() {
                from.call(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
            }
        }
        halfway();
        for master in [to, from] {
            master.call(&["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }

    /// Waits until a replica has taken the place of the killed master with this index.
    pub fn wait_for_promotion(&self, master: usize) {
        let replica = &self.replicas[master];
        poll(|| (replica.info("replication", "role")? == "master").then_some(()));
        poll(|| (replica.info_of_cluster("cluster_state") == "ok").then_some(()));
    }
}

impl Redis {
    /// Its id in the cluster.
    fn id(&self) -> String {
        self.call(&["CLUSTER", "MYID"]).text().to_owned()
    }

    /// The value of a field of `CLUSTER INFO`.
    fn info_of_cluster(&self, field: &str) -> String {
        let reply = self.call(&["CLUSTER", "INFO"]);
        let line = reply.text().lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_owned()
    }
}
