//! What `config/deploy` says fits what Weir does, and what the systems that read it accept.
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use weir::base::time::instant_now;
use weir::config::{self, Config};
use weir::engine::policy::Strategy;
use weir::fleet::stores::driver::{Servers, Topology};
use weir::transport::net::ListenAddress;

use crate::support::installed;

const FOLDER: &str = "config/deploy";

fn read(name: &str) -> String {
    std::fs::read_to_string(Path::new(FOLDER).join(name)).unwrap()
}

/// All documents of a YAML file.
fn documents(name: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&read(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Compiles a configuration whose secret files are elsewhere.
fn compile(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef").unwrap();
    let text = text.replace("/etc/weir-admin/token", token.to_str().unwrap());
    let env = |name: &str| (name == "WEIR_FLEET_SECRET").then(|| "5c6f1e0b7a9d4283bd01f6e2c4a85790".to_owned());
    config::compile(&text, "weir.toml", folder.path(), &env).unwrap_or_else(|problems| panic!("{problems}"))
}

/// Sections of a unit, each with its lines by key; of a key with several lines the last counts, as there.
fn unit(name: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let mut sections: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    let mut section = String::new();
    for line in read(name).lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            title.clone_into(&mut section);
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("{name}: {line}"));
        sections.entry(section.clone()).or_default().insert(key.to_owned(), value.to_owned());
    }
    sections
}

fn seconds(text: &str) -> u64 {
    text.strip_suffix('s').unwrap().parse().unwrap()
}

/// The address of a socket that is none of a file.
fn tcp(place: &ListenAddress) -> SocketAddr {
    match place {
        ListenAddress::Tcp(address) => *address,
        ListenAddress::Unix(path) => panic!("{}", path.display()),
    }
}

/// Connections of clients where the configuration says nothing and the descriptors suffice.
const CONNECTIONS_USUAL: usize = 10_000;

#[test]
fn the_unit_runs_what_is_there() {
    let unit_file = unit("weir.service");
    // Starts that end at once, as without etcd, are no reason to give up.
    assert_eq!(unit_file["Unit"]["StartLimitIntervalSec"], "0");
    let service = &unit_file["Service"];
    let command = "/usr/local/bin/weir run --config /etc/weir/weir.toml";
    assert_eq!(service["ExecStart"], command);
    let config = compile(&read("weir.toml"));
    // The folder of the snapshot is the one that the unit makes.
    let state = Path::new("/var/lib").join(&service["StateDirectory"]);
    assert_eq!(config.snapshot.unwrap().path.parent(), Some(&*state));
    let runtime = Path::new("/run").join(&service["RuntimeDirectory"]);
    assert_eq!(config.fixed.takeover.as_deref().and_then(Path::parent), Some(&*runtime));
    assert_eq!((&*service["Type"], &*service["ExecReload"]), ("notify", "/bin/kill -USR2 $MAINPID"));
    assert!(seconds(&service["TimeoutStopSec"]) > config.fixed.shutdown_grace.as_secs() + 2);
    assert!(
        service["LimitNOFILE"].parse::<usize>().unwrap()
            > 2 * config.fixed.max_connections.unwrap_or(CONNECTIONS_USUAL)
    );
    assert!(tcp(config.admin.listen.as_ref().unwrap()).ip().is_loopback());
    for (key, value) in [("DynamicUser", "yes"), ("CapabilityBoundingSet", ""), ("ProtectSystem", "strict")] {
        assert_eq!(service[key], value);
    }
    // Without the times of the CPU, and with a check whose exit code systemd does not look at, options have no effect.
    assert!(["ProcSubset", "ExecStartPre"].iter().all(|key| !service.contains_key(*key)));
    let recipe = std::fs::read_to_string("docs/recipes/read-the-access-log.md").unwrap();
    assert!(recipe.contains(&format!("\"/var/log/{}/access.log\"", service["LogsDirectory"])));
    let socket = &unit("weir.socket")["Socket"];
    assert!(config.fixed.listen.iter().any(|address| address.to_string() == socket["ListenStream"]));
}

/// Where systemd is installed, it is asked itself.
#[test]
fn systemd_takes_the_units() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["weir.service", "weir.socket"] {
        let text = read(name).replace("/usr/local/bin/weir", env!("CARGO_BIN_EXE_weir"));
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    for arguments in [
        &["verify", "./weir.service", "./weir.socket"][..],
        // 2.0 of 10; what is left of it is the network.
        &["security", "--offline=true", "--threshold=20", "./weir.service"],
    ] {
        let analyze = installed("systemd-analyze");
        let output = Command::new(analyze).args(arguments).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert!(output.stderr.is_empty(), "{arguments:?}: {said}");
    }
}

#[test]
fn the_containers_have_what_they_need_and_no_more() {
    let compose = &documents("compose.yaml")[0];
    let weir = &compose["services"]["weir"];
    let config = compile(compose["configs"]["weir"]["content"].as_str().unwrap());
    let port = tcp(&config.fixed.listen[0]).port();
    assert_eq!(weir["ports"][0], format!("{port}:{port}"));
    assert_eq!(
        (&weir["read_only"], &weir["user"], &weir["cap_drop"][0]),
        (&true.into(), &"65532:65532".into(), &"ALL".into())
    );
    assert_eq!(weir["volumes"][0], format!("state:{}", config.snapshot.unwrap().path.parent().unwrap().display()));
    assert!(compose["volumes"].get("state").is_some() && compose["networks"]["back"]["internal"] == true);
    assert!(seconds(weir["stop_grace_period"].as_str().unwrap()) > config.fixed.shutdown_grace.as_secs() + 2);
    let descriptors: usize = weir["ulimits"]["nofile"].as_u64().unwrap().try_into().unwrap();
    assert!(descriptors > 2 * config.fixed.max_connections.unwrap_or(CONNECTIONS_USUAL));
    // The image's health check asks where operators are answered, its command reads where the file is.
    let image = std::fs::read_to_string("Dockerfile").unwrap();
    assert_eq!(config.admin.listen.unwrap().to_string(), "127.0.0.1:9901");
    assert!(image.contains("HEALTHCHECK") && image.contains("--chown=65532:65532 /state /var/lib/weir"));
    assert!(image.contains(weir["configs"][0]["target"].as_str().unwrap()));
}

#[test]
fn the_fleet_has_a_store_and_a_balancer() {
    let compose = &documents("fleet.yaml")[0];
    let (services, configs) = (&compose["services"], &compose["configs"]);
    let config = compile(configs["weir"]["content"].as_str().unwrap());
    // As many replicas as the limits are shared by, and as the balancer knows.
    let replicas = services["weir"]["deploy"]["replicas"].as_u64().unwrap();
    let strategies: Vec<Strategy> = config.policy.limits().iter().map(|limit| limit.strategy).collect();
    assert_eq!(strategies, [Strategy::Local, Strategy::Redis { store: 0, replicas }]);
    let balancer = configs["balancer"]["content"].as_str().unwrap();
    let port = tcp(&config.fixed.listen[0]).port();
    assert!(balancer.contains(&format!("server-template weir {replicas} weir:{port} ")));
    assert!(services["weir"]["environment"]["WEIR_FLEET_SECRET"].is_string());
    let Servers::Redis { topology: Topology::Ring(nodes), .. } = &config.stores[0].servers else {
        panic!("another kind of store")
    };
    assert!(services.get(nodes[0].host().unwrap()).is_some());
    // Weir believes the balancer, which has an address of their common network.
    let subnet = compose["networks"]["shared"]["ipam"]["config"][0]["subnet"].as_str().unwrap();
    assert!(configs["weir"]["content"].as_str().unwrap().contains(&format!("trusted_proxies = [\"{subnet}\"]")));
    check_redis(&services["redis"]["command"]);
    check_names(compose);
    let page = std::fs::read_to_string("docs/fleet/index.md").unwrap();
    assert!(page.contains(configs["weir"]["content"].as_str().unwrap()), "docs/fleet/index.md shows another one");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("haproxy.cfg"), balancer).unwrap();
    let haproxy = installed("haproxy");
    let checked = Command::new(haproxy).args(["-c", "-f", "haproxy.cfg"]).current_dir(folder.path()).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

/// Starts Redis with the command of its container. It stores nothing on disk, and evicts nothing.
fn check_redis(command: &Value) {
    let words: Vec<&str> = command.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let mut server = Command::new(installed(words[0]))
        .args(&words[1..])
        .args(["--port", "0", "--unixsocket"])
        .arg(&socket)
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let client = redis::Client::open(format!("unix:{}", socket.display())).unwrap();
    let deadline = instant_now() + Duration::from_secs(20);
    let mut connection = loop {
        if let Ok(connection) = client.get_connection() {
            break connection;
        }
        assert!(server.try_wait().unwrap().is_none() && instant_now() < deadline, "{words:?} does not start");
        std::thread::sleep(Duration::from_millis(5));
    };
    for (name, value) in
        [("save", ""), ("appendonly", "no"), ("maxmemory", "268435456"), ("maxmemory-policy", "noeviction")]
    {
        let found: Vec<String> = redis::cmd("CONFIG").arg("GET").arg(name).query(&mut connection).unwrap();
        assert_eq!(found, [name, value]);
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// Each network, volume and configuration that a service names is one of the file.
fn check_names(compose: &Value) {
    for (name, service) in compose["services"].as_object().unwrap() {
        let networks = service["networks"].as_array().into_iter().flatten().map(|network| ("networks", network));
        let configs = service["configs"].as_array().into_iter().flatten().map(|config| ("configs", &config["source"]));
        for (kind, of) in networks.chain(configs) {
            assert!(compose[kind].get(of.as_str().unwrap()).is_some(), "{name}: {kind} {of}");
        }
    }
}

#[test]
fn kubernetes_finds_every_port_and_every_file() {
    let all = documents("kubernetes.yaml");
    let kind = |kind: &str| all.iter().find(|one| one["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    let config = compile(kind("ConfigMap")["data"]["weir.toml"].as_str().unwrap());
    let pod = &kind("StatefulSet")["spec"]["template"]["spec"];
    let weir = &pod["containers"][0];
    let ports: BTreeMap<_, _> = weir["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| (port["name"].as_str().unwrap(), port["containerPort"].as_u64().unwrap()))
        .collect();
    let expected =
        [("admin", tcp(config.admin.listen.as_ref().unwrap()).port()), ("http", tcp(&config.fixed.listen[0]).port())];
    assert_eq!(ports, expected.map(|(name, port)| (name, u64::from(port))).into());
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!((&weir[probe]["httpGet"]["path"], &weir[probe]["httpGet"]["port"]), (&path.into(), &"admin".into()));
    }
    let security = &weir["securityContext"];
    assert_eq!(
        (&security["readOnlyRootFilesystem"], &security["allowPrivilegeEscalation"]),
        (&true.into(), &false.into())
    );
    assert_eq!(
        (&security["capabilities"]["drop"][0], &pod["securityContext"]["runAsNonRoot"]),
        (&"ALL".into(), &true.into())
    );
    let pause = weir["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    let grace = config.fixed.shutdown_grace.as_secs();
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > pause + grace + 2);
    // What is mounted where the configuration looks, and each volume is one.
    let mounts: BTreeMap<_, _> = weir["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| (mount["name"].as_str().unwrap(), mount["mountPath"].as_str().unwrap()))
        .collect();
    assert_eq!(Some(mounts["state"]), config.snapshot.unwrap().path.parent().and_then(Path::to_str));
    assert_eq!((mounts["admin"], mounts["config"]), ("/etc/weir-admin", "/etc/weir"));
    let claims = kind("StatefulSet")["spec"]["volumeClaimTemplates"].as_array().unwrap();
    let volumes = pod["volumes"].as_array().unwrap().iter().map(|volume| &volume["name"]);
    let volumes: Vec<_> = volumes.chain(claims.iter().map(|claim| &claim["metadata"]["name"])).collect();
    assert!(mounts.keys().all(|name| volumes.iter().any(|volume| **volume == **name)));
    // Counts are not shared.
    assert_eq!(kind("StatefulSet")["spec"]["replicas"], 1);
    let labels = &kind("StatefulSet")["spec"]["template"]["metadata"]["labels"];
    for (kind_of, selector) in [
        ("Service", &kind("Service")["spec"]["selector"]),
        ("NetworkPolicy", &kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]),
    ] {
        assert_eq!(selector, labels, "{kind_of}");
    }
}
