//! What it costs to know who is shut out: a look-up among many networks, and loading them.
//!
//! `cargo bench --bench access`. Absolute times depend on the machine; compare within one run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(clippy::disallowed_methods)] // it measures

#[path = "support/row.rs"]
mod row;

use std::fmt::Write as _;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use row::row;
use weir::config;
use weir::engine::policy::PathPattern;
use weir::engine::policy::access::{Access, AccessRule, AccessSpec};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A multiplicative sequence: each number is as good as random, and no two are the same (Knuth, volume 3, 6.4).
fn scattered(n: u32) -> u32 {
    n.wrapping_mul(2_654_435_769)
}

/// The `n`-th network: prefixes of 16 to 32 bits, most of them 24, as in lists of offenders.
fn v4(n: u32) -> IpNet {
    let prefix = [24, 24, 24, 32, 20, 24, 28, 16][n as usize % 8];
    IpNet::V4(Ipv4Net::new(Ipv4Addr::from_bits(scattered(n)), prefix).unwrap().trunc())
}

/// The same with prefixes of 32 to 64 bits below `2000::/3`.
fn v6(n: u32) -> IpNet {
    let bits = 1 << 125 | u128::from(scattered(n)) << 93 | u128::from(scattered(n ^ 0xFFFF)) << 61;
    let prefix = [48, 64, 56, 48, 32, 64, 48, 64][n as usize % 8];
    IpNet::V6(Ipv6Net::new(Ipv6Addr::from_bits(bits), prefix).unwrap().trunc())
}

fn access(networks: impl Iterator<Item = IpNet>) -> Access {
    let networks =
        networks.enumerate().map(|(at, net)| (net, if at % 10 == 0 { AccessRule::Allow } else { AccessRule::Deny }));
    let paths = ["/internal/{*rest}", "/api/{version}/admin", "/health"];
    let paths = paths.map(|path| (PathPattern::parse(path).unwrap(), AccessRule::Deny)).to_vec();
    Access::new(AccessSpec { networks: networks.collect(), paths, ..AccessSpec::default() })
}

fn look_ups() {
    for count in [10_u32, 10_000, 100_000] {
        let both = access((0..count).map(v4).chain((0..count).map(v6)));
        let listed = |n: u32| v4(scattered(n) % count).addr();
        let unlisted = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(scattered(n).rotate_left(16) ^ 0x5555_5555));
        let listed_v6 = |n: u32| v6(scattered(n) % count).addr();
        let rows: [(&str, &dyn Fn(u32) -> IpAddr); 3] =
            [("listed", &listed), ("any", &unlisted), ("listed, IPv6", &listed_v6)];
        for (name, client) in rows {
            // Made beforehand, so that only the look-up is measured; 64 Ki of them, in no order a cache could guess.
            let clients: Vec<IpAddr> = (0..1 << 16).map(client).collect();
            let mut at = 0;
            row("look-up", format_args!("{name}/{count}"), || {
                at = (at + 1) % clients.len();
                both.by_address(black_box(clients[at]))
            });
        }
        let client = IpAddr::from([192, 0, 2, 1]);
        row("look-up", format_args!("address and path/{count}"), || {
            both.on_arrival(black_box(client), black_box("/api/v1/reports")).is_ok()
        });
    }
}

fn loading() {
    let mut text = String::from("[upstream]\nurl = \"http://127.0.0.1:1\"\n[access]\ndeny = { ip = [\n");
    let mut networks: Vec<IpNet> = (0..10_000).map(v4).collect();
    networks.sort();
    networks.dedup();
    for network in networks {
        writeln!(text, "\"{network}\",").unwrap();
    }
    text += "] }\n";
    row("load", "a configuration with 10000 networks", || {
        config::compile(black_box(&text), "bench", Path::new(""), &|_| None).unwrap()
    });
}

fn main() {
    look_ups();
    loading();
}
