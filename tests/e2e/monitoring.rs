//! The files of config/monitoring: alerts that fire on their faults, and a dashboard that a real Prometheus fills.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::{Client, Fleet, Redis, Upstream, Weir, free_port, installed, poll, poll_for};

/// The time between two scrapes, and the bound on the time of one.
const SCRAPES: Duration = Duration::from_millis(500);

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/monitoring");

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(FOLDER).join(name)).unwrap()
}

/// A Prometheus with a data folder of its own, which scrapes these addresses; killed on drop.
struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Takes another port if the first one is in use.
    fn start(targets: &[SocketAddr]) -> Self {
        let targets: Vec<_> = targets.iter().map(|target| format!("\"{target}\"")).collect();
        let config = read("prometheus.yml")
            .replace("15s", &format!("{}ms", SCRAPES.as_millis()))
            .replace("\"127.0.0.1:9901\"", &targets.join(", "))
            .replace("alerts.yml", &format!("{FOLDER}/alerts.yml"));
        for _ in 0..10 {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("prometheus.yml"), &config).unwrap();
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            let mut command = Command::new(installed("prometheus"));
            command.current_dir(folder.path()).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
            command.arg(format!("--web.listen-address={address}")).stdout(Stdio::null()).stderr(Stdio::null());
            let mut one = Self { child: command.spawn().unwrap(), address, _folder: folder };
            let is_up = poll(|| match one.child.try_wait().unwrap() {
                Some(_) => Some(false),
                None => std::net::TcpStream::connect(address).is_ok().then_some(true),
            });
            if is_up {
                return one;
            }
        }
        panic!("Prometheus does not start");
    }

    /// The values of an instant query; none while Prometheus begins.
    fn query(&self, query: &str) -> Vec<f64> {
        let query: String = form_urlencoded::byte_serialize(query.as_bytes()).collect();
        let head = format!("GET /api/v1/query?query={query} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        let answer = Client::connect(self.address).send(head).answer();
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        assert!(answer.status == 503 || body["status"] == "success", "{query}: {}", answer.text());
        let series = body["data"]["result"].as_array().into_iter().flatten();
        series.map(|one| one["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn promtool(arguments: &[&str]) {
    let output = Command::new(installed("promtool")).args(arguments).current_dir(FOLDER).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

/// The names of the alerts, and the sections that they name.
fn alerts() -> (Vec<String>, Vec<String>) {
    let text = read("alerts.yml");
    let names = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let sections = text.lines().filter_map(|line| line.split_once("runbook: \"")?.1.split('"').next());
    (names.map(str::to_owned).collect(), sections.map(str::to_owned).collect())
}

#[test]
fn each_alert_fires_on_its_fault() {
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "alerts.test.yml"]);
    let (names, tests) = (alerts().0, read("alerts.test.yml"));
    for name in &names {
        assert!(tests.contains(&format!("  - name: {name}\n")), "{name} has no test");
        assert!(tests.contains(&format!("alertname: {name}, exp_alerts: []")), "{name} may fire without a fault");
    }
    assert!(names.len() >= 15);
}

#[test]
fn each_alert_names_a_section() {
    let (names, sections) = alerts();
    assert_eq!(names.len(), sections.len());
    for section in sections {
        let (page, anchor) = section.split_once('#').unwrap();
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs").join(page)).unwrap();
        let anchors: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("## "))
            .map(|title| title.to_lowercase().replace(' ', "-").replace(|c: char| !c.is_alphanumeric() && c != '-', ""))
            .collect();
        assert!(anchors.iter().any(|known| known == anchor), "{section}: {anchors:?}");
    }
}

/// The queries of all panels, as Grafana sends them.
fn queries() -> BTreeSet<String> {
    let dashboard: Value = serde_json::from_str(&read("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let query =
        |target: &Value| target["expr"].as_str().unwrap().replace("$__rate_interval", "1m").replace("$instance", ".*");
    targets.map(query).collect()
}

#[test]
fn each_query_of_the_dashboard_has_data() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let limits = format!(
        "[fleet]\nstrategy = \"redis\"\nreplicas = 2\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\n\
         [store.main]\nredis = [\"{}\"]\ntimeout = \"5s\"\n\
         [[limit]]\nname = \"shared\"\nkey = []\nrate = \"1000/s\"\n\
         [[limit]]\nname = \"strict\"\nstrategy = \"local\"\nmatch = {{ path = \"/strict\" }}\nkey = [\"ip\"]\nrate = \"1/h\"\n\
         [[limit]]\nname = \"held\"\nstrategy = \"local\"\nmatch = {{ path = \"/held\" }}\nkey = []\nrate = \"50/s\"\n\
         burst = 1\non_limit = \"hold\"\n",
        redis.url()
    );
    let fleet = Fleet::start(2, &upstream, &limits);
    let addresses: Vec<_> = fleet.weirs.iter().map(Weir::admin).collect();
    let prometheus = Prometheus::start(&addresses);
    let mut waiting = queries();
    assert!(waiting.len() >= 25, "{waiting:?}");
    // A rate needs two scrapes with traffic between them.
    poll(|| {
        for weir in &fleet.weirs {
            let mut client = Client::connect(weir.address());
            for path in ["/", "/strict", "/held", "/held"] {
                assert!([200, 429].contains(&client.get(path).status), "{path}");
            }
        }
        waiting.retain(|query| {
            let values = prometheus.query(query);
            values.is_empty() || values.iter().all(|value| value.is_nan())
        });
        if !waiting.is_empty() {
            // Nothing is there before the next scrape.
            std::thread::park_timeout(SCRAPES / 2);
            return None;
        }
        Some(())
    });
    // The rules see the same series, and find no fault. A scrape may be late.
    let alerts = "ALERTS{alertname=~\"WeirDown|WeirReloadRefused|WeirStoreDown\"}";
    for (query, values) in [("count(up == 1)", &[2.0][..]), (alerts, &[])] {
        poll_for(query, || (prometheus.query(query) == values).then_some(()));
    }
}
