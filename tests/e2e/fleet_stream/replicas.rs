//! Replicas that stream to each other through relays, one for each direction of each pair.

mod bans;
mod count;
mod members;

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::ops::{self, fleet_view};
use crate::support::{Client, Fleet, Link, Relay, Upstream, Weir};

/// Replicas that know each other.
pub struct Replicas {
    pub fleet: Fleet,
    relays: Vec<Way>,
    text: String,
}

/// The relay through which one replica connects to another.
struct Way {
    from: usize,
    to: usize,
    relay: Relay,
}

/// A configuration with a fleet of these members, and a limit.
fn config(text: &str, members: &[String]) -> String {
    text.replace("@members@", &format!("{members:?}"))
}

impl Replicas {
    /// Starts so many replicas with `options` of `[fleet]` and the options of a limit without a key.
    pub fn start(count: usize, upstream: &Upstream, options: &str, limit: &str) -> Self {
        let rest = format!(
            "[fleet]\nstrategy = \"stream\"\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\nlisten = \"127.0.0.1:0\"\n\
             leave_after = \"100ms\"\nmembers = {{ static = @members@ }}\n{options}\n\
             [[limit]]\nname = \"all\"\nkey = []\n{limit}\n"
        );
        let text = Weir::config(upstream, "", &rest);
        let fleet = Fleet::of(count, &config(&text, &["localhost:1".to_owned()]));
        let mut replicas = Self { fleet, relays: Vec::new(), text };
        replicas.meet();
        replicas
    }

    /// Tells all replicas the addresses of all, and waits until they are connected.
    fn meet(&mut self) {
        let addresses: Vec<_> = self.fleet.weirs.iter().map(fleet_address).collect();
        self.relays.clear();
        for (from, weir) in self.fleet.weirs.iter().enumerate() {
            let mut members = Vec::new();
            for (to, address) in addresses.iter().enumerate() {
                if from == to {
                    members.push(address.to_string()); // each has itself in its list
                    continue;
                }
                let relay = Relay::to(*address);
                members.push(relay.address().to_string());
                self.relays.push(Way { from, to, relay });
            }
            ops::replace(&weir.config_file(), &config(&self.text, &members));
        }
        self.wait_until_met();
    }

    /// Waits until all replicas are connected, and know how many they are.
    #[track_caller]
    pub fn wait_until_met(&self) {
        let count = self.fleet.weirs.len();
        for weir in &self.fleet.weirs {
            weir.wait_until("all replicas are connected", || {
                let view = view(weir);
                connected(&view) == count - 1 && view["replicas"] == count && view["isolated"] == false
            });
        }
    }

    /// Sets the links between `replica` and all others.
    pub fn set_links(&self, replica: usize, link: Link) {
        for way in self.relays.iter().filter(|way| way.from == replica || way.to == replica) {
            way.relay.set(link);
        }
    }

    /// Sets the links between two replicas.
    pub fn set_link(&self, pair: [usize; 2], link: Link) {
        for way in self.relays.iter().filter(|way| pair.contains(&way.from) && pair.contains(&way.to)) {
            way.relay.set(link);
        }
    }

    /// Kills a replica, and starts it anew.
    pub fn restart(&mut self, replica: usize) {
        let old = self.fleet.weirs.remove(replica);
        old.signal("KILL");
        drop(old);
        self.fleet.add(&config(&self.text, &["localhost:1".to_owned()]));
        self.meet();
    }
}

/// The address for other replicas.
pub fn fleet_address(weir: &Weir) -> SocketAddr {
    let line: Value = serde_json::from_str(&weir.wait_for_line("serving other replicas")).unwrap();
    line["address"].as_str().unwrap().parse().unwrap()
}

/// The answer of `/v1/fleet`.
pub fn view(weir: &Weir) -> Value {
    fleet_view(weir.admin())
}

/// The members to which a replica is connected.
pub fn connected(view: &Value) -> usize {
    view["members"].as_array().unwrap().iter().filter(|member| member["connected"] == true).count()
}

/// The units that a replica has left.
pub fn left(weir: &Weir) -> u64 {
    let answer = Client::connect(weir.address()).get("/");
    answer.header("x-ratelimit-remaining").unwrap().parse().unwrap()
}

/// The units that a replica has left of the limit `all`, less its debt. Charges nothing.
pub fn balance(weir: &Weir) -> i64 {
    balance_at(weir, "/")
}

/// The units that a replica has left of the limit of a path, less its debt. Charges nothing.
pub fn balance_at(weir: &Weir, path: &str) -> i64 {
    let body = json!({ "method": "GET", "path": path, "host": "weir.test", "ip": "127.0.0.1" }).to_string();
    let head = "POST /v1/explain HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut client = Client::connect(weir.admin());
    let answer = client.send(format!("{head}content-length: {}\r\n\r\n{body}", body.len())).answer();
    let explanation: Value = serde_json::from_str(&answer.text()).unwrap();
    let mut budgets = explanation["limits"].as_array().unwrap().iter().map(|limit| &limit["budget"]);
    let budget = budgets.find(|budget| budget.is_object()).unwrap();
    // An admitted request is taken off.
    let cost = i64::from(budget["admits"] == true);
    budget["remaining"].as_i64().unwrap() + cost - budget["debt"].as_i64().unwrap()
}
