//! Members that come and go by the DNS, and certificates that change.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::time::{Duration, Instant};

use super::{connected, fleet_address, view};
use crate::ops::replace;
use crate::support::{A, Cert, Dns, DnsAnswer, PATIENCE, Record, SERVFAIL, Upstream, Weir, free_port, poll};

const SECRET: &str = "0123456789abcdef0123456789ABCDEF";

/// Starts a replica with more tables and `options` of `[fleet]`, in a folder with `files`.
fn replica(upstream: &Upstream, tables: &str, options: &str, files: &[(&str, &Cert)]) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    for (name, cert) in files {
        cert.write(folder.path(), name);
    }
    let rest = format!(
        "[fleet]\nstrategy = \"stream\"\nsecret = {{ env = \"WEIR_FLEET_SECRET\" }}\nleave_after = \"100ms\"\n{options}\n\
         [[limit]]\nname = \"all\"\nkey = []\nrate = \"600/day\"\n{tables}"
    );
    fs::write(folder.path().join("weir.toml"), Weir::config(upstream, "", &rest)).unwrap();
    Weir::start_in_env(folder, &[("WEIR_FLEET_SECRET", SECRET)])
}

fn until_members(weirs: &[Weir]) {
    for weir in weirs {
        weir.wait_until("the members and their addresses are known", || {
            let view = view(weir);
            let members = view["members"].as_array().unwrap().len();
            [connected(&view), members].iter().all(|others| others + 1 == weirs.len())
                && view["replicas"] == weirs.len()
        });
    }
}

#[test]
fn members_follow_the_dns() {
    const NAME: &str = "fleet.test";
    let (upstream, dns, port) = (Upstream::start(), Dns::start(), free_port());
    let addresses = [1, 2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let start = |address: &Ipv4Addr| {
        let tables = format!("[dns]\nservers = [\"{}\"]\n", dns.address());
        let members = format!("members = {{ dns = \"{NAME}:{port}\" }}\ninsecure = true");
        replica(&upstream, &tables, &format!("listen = \"{address}:{port}\"\n{members}"), &[])
    };
    dns.addresses(NAME, 1, &addresses[..2]);
    let mut weirs: Vec<Weir> = addresses[..2].iter().map(start).collect();
    until_members(&weirs);
    dns.addresses(NAME, 1, &addresses);
    weirs.push(start(&addresses[2]));
    until_members(&weirs);
    for answer in [DnsAnswer::Records(Vec::new()), DnsAnswer::Silent] {
        dns.tell(NAME, answer);
        let asked = dns.asked(NAME).len();
        // Each replica has got an answer, or waited for one in vain.
        poll(|| (dns.asked(NAME).len() > asked + 2 * weirs.len()).then_some(()));
        until_members(&weirs);
    }
    for weir in &weirs {
        weir.wait_for_line("the last known ones stay");
    }
    // Members of a family without an answer stay, too, beside those of the other one.
    let other = Record::Aaaa { ttl_s: 1, address: Ipv6Addr::LOCALHOST };
    dns.tell(NAME, DnsAnswer::Failing(A, SERVFAIL, vec![other]));
    let has_both = |weir: &Weir| connected(&view(weir)) == 2 && view(weir)["members"].as_array().unwrap().len() == 3;
    for weir in &weirs {
        weir.wait_until("the other member is known", || has_both(weir));
    }
    let asked = dns.asked(NAME).len();
    poll(|| (dns.asked(NAME).len() > asked + 6 * weirs.len()).then_some(()));
    assert!(weirs.iter().all(has_both));
    weirs.pop();
    dns.addresses(NAME, 1, &addresses[..2]);
    until_members(&weirs);
}

/// The host of a killed replica refuses connections. So the others know that it is gone, and keep the whole limit.
#[test]
fn a_killed_replica_is_no_partition() {
    let (upstream, ports) = (Upstream::start(), [(); 3].map(|()| free_port()));
    let members: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let start = |member: &String| {
        let options = format!("listen = \"{member}\"\nmembers = {{ static = {members:?} }}\nisolate_after = \"500ms\"");
        replica(&upstream, "", &options, &[])
    };
    let mut weirs: Vec<Weir> = members.iter().map(start).collect();
    until_members(&weirs);
    let killed = weirs.pop().unwrap();
    killed.signal("KILL");
    drop(killed);
    let since = Instant::now();
    for weir in &weirs {
        // Three times as long as it takes to become isolated.
        weir.wait_until("it is known to be gone", || {
            let view = view(weir);
            since.elapsed() > Duration::from_millis(1500) && connected(&view) == 1 && view["isolated"] == false
        });
    }
}

/// The fleet moves to another authority without a restart: both are trusted for a while.
#[test]
fn certificates_change_by_a_reload() {
    let upstream = Upstream::start();
    let (old, new) = (Cert::authority(), Cert::authority());
    let tls = "listen = \"127.0.0.1:0\"\ntls = { cert = \"own.pem\", key = \"own.key\", ca = \"ca.pem\" }";
    let start = |members: &str, authority: &Cert| {
        let own = authority.client("replica", &["replica"], &[]);
        replica(&upstream, "", &format!("{tls}\n{members}"), &[("own", &own), ("ca", authority)])
    };
    let first = start("members = { static = [\"localhost:1\"] }", &old);
    let second = start(&format!("members = {{ static = [\"{}\"] }}", fleet_address(&first)), &new);
    second.wait_for_line("a replica cannot be reached");
    assert_eq!(connected(&view(&first)), 0);
    new.client("replica", &["replica"], &[]).write(first.folder(), "own");
    new.write(first.folder(), "ca");
    for weir in [&first, &second] {
        weir.wait_until("both have certificates of one authority", || connected(&view(weir)) == 1);
    }
}

/// A configuration with another address needs no TLS for it. The listener has its first address until a restart.
#[test]
fn another_address_opens_nothing_before_a_restart() {
    const TLS: &str = "listen = \"127.0.0.1:0\"\ntls = { cert = \"own.pem\", key = \"own.key\", ca = \"ca.pem\" }";
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let (upstream, authority) = (Upstream::start(), Cert::authority());
    let start = |member: &str| {
        let own = authority.client("replica", &["replica"], &[]);
        let members = format!("members = {{ static = [\"{member}\"] }}");
        replica(&upstream, "", &format!("{TLS}\n{members}"), &[("own", &own), ("ca", &authority)])
    };
    let weir = start("localhost:1");
    let address = fleet_address(&weir);
    let text = fs::read_to_string(weir.config_file()).unwrap();
    replace(&weir.config_file(), &text.replace(TLS, "listen = \"127.0.0.2:0\""));
    weir.wait_for_line("\"reloaded\"");
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.set_read_timeout(Some(PATIENCE)).unwrap();
    stranger.write_all(PREFACE).unwrap();
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    // A frame of HTTP/2 would begin with a length of less than 64 KiB.
    assert!(!answer.starts_with(&[0]), "{answer:?}");
    let member = start(&address.to_string());
    member.wait_until("it is connected over TLS", || connected(&view(&member)) == 1);
}
