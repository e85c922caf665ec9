//! A master, a replica, and three sentinels that promote the replica.

use super::Redis;
use crate::support::poll;

/// The name under which sentinels know the master.
const NAME: &str = "limits";

/// Milliseconds without a reply after which a server is down. Sentinels know it only once the master is killed: before
/// that, a pause of the machine is no reason for a promotion.
const DOWN_AFTER_MS: &str = "300";

/// A master with a replica, under three sentinels.
pub struct Sentinels {
    pub master: Redis,
    pub replica: Redis,
    pub watchers: Vec<Redis>,
}

impl Sentinels {
    /// Starts all servers. Waits until all sentinels know each other and the replica.
    pub fn start() -> Self {
        let master = Redis::with("repl-diskless-sync-delay 0\n");
        let replica = Redis::with(&format!("replicaof 127.0.0.1 {}\n", master.address().port()));
        poll(|| (replica.info("replication", "master_link_status")? == "up").then_some(()));
        let sentinels: Vec<Redis> = (0..3).map(|_| Self::naming(&master)).collect();
        for sentinel in &sentinels {
            let known = |field: &str| -> Option<i64> {
                let reply = sentinel.call(&["SENTINEL", "MASTER", NAME]);
                let texts = reply.texts();
                texts.chunks(2).find(|pair| pair[0] == field)?[1].parse().ok()
            };
            poll(|| (known("num-other-sentinels")? == 2 && known("num-slaves")? == 1).then_some(()));
        }
        Self { master, replica, watchers: sentinels }
    }

    /// Starts a sentinel that takes `server` for the master.
    pub fn naming(server: &Redis) -> Redis {
        let port = server.address().port();
        let lines = format!(
            "sentinel monitor {NAME} 127.0.0.1 {port} 2\nsentinel down-after-milliseconds {NAME} 60000\n\
             sentinel failover-timeout {NAME} 2000\n"
        );
        Redis::run(&lines, None, &["--sentinel"])
    }

    /// The value of `sentinel` in a configuration.
    pub fn toml(&self) -> String {
        let nodes: Vec<String> = self.watchers.iter().map(Redis::url).collect();
        format!("{{ master = \"{NAME}\", nodes = {nodes:?} }}")
    }

    /// Kills the master, which the replica replaces.
    pub fn kill_master(&mut self) {
        for sentinel in &self.watchers {
            sentinel.call(&["SENTINEL", "SET", NAME, "down-after-milliseconds", DOWN_AFTER_MS]);
        }
        self.master.kill_after_copying(&self.replica);
    }

    /// Waits until the replica is the master, and all sentinels say so.
    pub fn wait_for_promotion(&self) {
        poll(|| (self.replica.info("replication", "role")? == "master").then_some(()));
        let port = self.replica.address().port().to_string();
        for sentinel in &self.watchers {
            poll(|| {
                let address = sentinel.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
                (address.texts()[1] == port).then_some(())
            });
        }
    }
}
