//! The chart: what Helm renders is valid, and its ports and files are those of the configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};
use weir::config::{self, Config};

use super::tool;

const CHART: &str = "config/helm/weir";

fn helm(values: &Value) -> Output {
    tool("python").args(["tests/e2e/package/chart.py", CHART, &values.to_string()]).output().unwrap()
}

/// What the release `edge` with these values has, by kind and name.
fn render(values: &Value) -> BTreeMap<String, Value> {
    let output = helm(values);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let documents: Vec<Value> = serde_saphyr::from_multiple(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let key = |one: &Value| format!("{} {}", one["kind"].as_str().unwrap(), one["metadata"]["name"].as_str().unwrap());
    documents.into_iter().map(|one| (key(&one), one)).collect()
}

fn compile(rendered: &BTreeMap<String, Value>) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "0123456789abcdef").unwrap();
    let text = rendered["ConfigMap edge"]["data"]["weir.toml"].as_str().unwrap();
    let text = text.replace("/etc/weir-admin/token", token.to_str().unwrap());
    let env = |name: &str| (name == "WEIR_FLEET_SECRET").then(|| "5c6f1e0b7a9d4283bd01f6e2c4a85790".to_owned());
    config::compile(&text, "weir.toml", Path::new(""), &env).unwrap_or_else(|problems| panic!("{problems}"))
}

/// The ports of the container by name.
fn ports(rendered: &BTreeMap<String, Value>) -> BTreeMap<&str, u64> {
    let container = &rendered["StatefulSet edge"]["spec"]["template"]["spec"]["containers"][0];
    let ports = container["ports"].as_array().unwrap().iter();
    ports.map(|port| (port["name"].as_str().unwrap(), port["containerPort"].as_u64().unwrap())).collect()
}

#[test]
fn the_chart_has_one_replica_with_a_volume() {
    let rendered = render(&json!({}));
    let kinds: Vec<&str> = rendered.keys().map(String::as_str).collect();
    assert_eq!(
        kinds,
        ["ConfigMap edge", "PodDisruptionBudget edge", "Service edge", "Service edge-members", "StatefulSet edge"]
    );
    let config = compile(&rendered);
    let port = |address: String| address.rsplit(':').next().unwrap().parse::<u64>().unwrap();
    let (admin, http) = (port(config.admin.listen.unwrap().to_string()), port(config.fixed.listen[0].to_string()));
    assert_eq!(ports(&rendered), [("admin", admin), ("http", http)].into());
    let set = &rendered["StatefulSet edge"]["spec"];
    let pod = &set["template"]["spec"];
    assert_eq!((&set["replicas"], &set["volumeClaimTemplates"][0]["metadata"]["name"]), (&1.into(), &"state".into()));
    assert_eq!(pod["containers"][0]["image"], format!("weir:{}", env!("CARGO_PKG_VERSION")));
    let pause = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64().unwrap();
    let grace = config.fixed.shutdown_grace.as_secs();
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > pause + grace + 2);
    assert_eq!(
        (&pod["securityContext"]["runAsNonRoot"], &pod["securityContext"]["runAsUser"]),
        (&true.into(), &65532.into())
    );
}

#[test]
fn replicas_of_the_chart_are_members_of_a_fleet() {
    let rendered = render(&json!({
        "replicas": 3,
        "fleet": { "enabled": true },
        "networkPolicy": { "enabled": true },
        "persistence": { "enabled": false },
        "scheduling": { "nodeSelector": { "zone": "a" } },
        "serviceMonitor": { "enabled": true, "labels": { "release": "prometheus" } },
    }));
    compile(&rendered);
    let text = rendered["ConfigMap edge"]["data"]["weir.toml"].as_str().unwrap();
    assert!(text.contains("members = { dns = \"edge-members:8082\" }"), "{text}");
    assert_eq!(ports(&rendered)["fleet"], 8082);
    let members = &rendered["Service edge-members"];
    assert_eq!((&members["spec"]["clusterIP"], &members["spec"]["ports"][1]["port"]), (&"None".into(), &8082.into()));
    let pods = &rendered["StatefulSet edge"]["spec"]["template"];
    assert_eq!(pods["spec"]["volumes"][2]["name"], "state");
    for selector in [
        &members["spec"]["selector"],
        &rendered["Service edge"]["spec"]["selector"],
        &rendered["NetworkPolicy edge"]["spec"]["podSelector"]["matchLabels"],
        &rendered["NetworkPolicy edge"]["spec"]["ingress"][2]["from"][0]["podSelector"]["matchLabels"],
        &rendered["PodDisruptionBudget edge"]["spec"]["selector"]["matchLabels"],
    ] {
        assert_eq!(selector, &pods["metadata"]["labels"]);
    }
    let labels = members["metadata"]["labels"].as_object().unwrap();
    let selected = rendered["ServiceMonitor edge"]["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(selected.iter().all(|(name, value)| labels.get(name) == Some(value)), "{selected:?}");
    // The alerts select this job.
    let job = &labels[rendered["ServiceMonitor edge"]["spec"]["jobLabel"].as_str().unwrap()];
    let alerts = std::fs::read_to_string("config/monitoring/alerts.yml").unwrap();
    assert!(alerts.contains(&format!("up{{job={job}}}")), "{job}");
}

/// In Kubernetes, an empty list of sources admits all.
#[test]
fn nobody_reaches_the_admin_listener_if_the_chart_names_nobody() {
    for nobody in [json!([]), json!(null)] {
        let rendered = render(&json!({ "networkPolicy": { "enabled": true, "adminFrom": nobody } }));
        let ingress = rendered["NetworkPolicy edge"]["spec"]["ingress"].as_array().unwrap();
        assert!(ingress.len() == 1 && ingress[0]["ports"] == json!([{ "port": "http" }]), "{ingress:?}");
    }
}

#[test]
fn misspelt_values_of_the_chart_are_errors() {
    let output = helm(&json!({ "replica": 3 }));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("additional properties 'replica' not allowed"), "{said}");
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let chart: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(Path::new(CHART).join("Chart.yaml")).unwrap()).unwrap();
    assert_eq!(
        (chart["version"].as_str(), chart["appVersion"].as_str()),
        (Some(env!("CARGO_PKG_VERSION")), Some(env!("CARGO_PKG_VERSION")))
    );
}
