//! Clusters of Envoy.

use crate::import::draft::{Draft, quoted};
use crate::import::services::Service;
use crate::import::yaml::Node;

/// The service of a cluster; `None` if Weir has no such service.
pub(super) fn cluster(cluster: &Node, draft: &mut Draft) -> Option<Service> {
    let name = cluster.word("name").to_owned();
    let kind = cluster.word("type");
    if !["", "STATIC", "STRICT_DNS", "LOGICAL_DNS"].contains(&kind) {
        cluster.left_out("Weir needs a service with addresses in the file", draft);
        return None;
    }
    if cluster.has("transport_socket") {
        cluster.left_out("set an endpoint with `https` by hand", draft);
        return None;
    }
    let mut service = Service { name, places: vec![cluster.place], ..Service::default() };
    let groups = cluster.at(&["load_assignment", "endpoints"]).map_or(&[][..], Node::items);
    if let Some(assignment) = cluster.get("load_assignment") {
        assignment.word("cluster_name");
    }
    for endpoint in groups.iter().flat_map(|group| group.list("lb_endpoints")) {
        let address = endpoint.at(&["endpoint", "address", "socket_address"]);
        let pipe = endpoint.at(&["endpoint", "address", "pipe"]);
        if let Some(address) = address {
            let (host, port) = (address.word("address"), address.word("port_value"));
            let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
            service.endpoints.push(format!("http://{host}:{port}"));
            service.places.push(address.place);
        } else if let Some(pipe) = pipe {
            service.endpoints.push(format!("unix:{}", pipe.word("path")));
            service.places.push(pipe.place);
        } else {
            endpoint.left_out("Weir has no such address", draft);
        }
    }
    if let Some(policy) = cluster.get("lb_policy") {
        match policy.text() {
            "ROUND_ROBIN" => {}
            "LEAST_REQUEST" | "RANDOM" => service.balance = vec![("balance", quoted("p2c"))],
            _ => policy.left_out("set `balance` and `hash_by` by hand", draft),
        }
    }
    if service.endpoints.is_empty() {
        cluster.left_out("it has no address", draft);
        return None;
    }
    Some(service)
}
