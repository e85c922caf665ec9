//! The bodies of the fuzz targets run over their seeds, so that neither rots between runs of the fuzzer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub, missing_docs)]

use std::path::Path;

#[path = "fuzz/bodies/config.rs"]
mod config;
#[path = "fuzz/bodies/forwarded.rs"]
mod forwarded;
#[path = "fuzz/bodies/head.rs"]
mod head;
#[path = "fuzz/bodies/path.rs"]
mod path;
#[path = "fuzz/bodies/proxy.rs"]
mod proxy;
#[path = "fuzz/bodies/state.rs"]
mod state;
#[path = "fuzz/bodies/token.rs"]
mod token;
#[path = "fuzz/bodies/units.rs"]
mod units;

#[test]
fn every_seed_passes() {
    type Body = fn(&[u8]);
    let targets: [(&str, Body); 8] = [
        ("config", config::run),
        ("forwarded", forwarded::run),
        ("head", head::run),
        ("path", path::run),
        ("proxy", proxy::run),
        ("state", state::run),
        ("token", token::run),
        ("units", units::run),
    ];
    for (name, run) in targets {
        assert!(Path::new(&format!("tests/fuzz/fuzz_targets/{name}.rs")).exists());
        let seeds = std::fs::read_dir(format!("tests/fuzz/seeds/{name}")).unwrap();
        let seeds: Vec<_> = seeds.map(|seed| std::fs::read(seed.unwrap().path()).unwrap()).collect();
        assert!(seeds.len() >= 3, "{name}");
        for seed in seeds {
            run(&seed);
            // Cut off anywhere, it is as good an input.
            for length in (0..seed.len()).step_by(seed.len() / 16 + 1) {
                run(&seed[..length]);
            }
        }
    }
}

#[test]
fn the_seeds_get_beyond_the_first_check() {
    let seed = std::fs::read("tests/fuzz/seeds/state/snapshot").unwrap();
    let now = weir::base::time::Timestamp::from_ns(1_800_000_000_000_000_000);
    let restored = weir::engine::store::snapshot::restore(&seed[..], now, |_| None).unwrap();
    assert_eq!(restored.limits.iter().map(|limit| limit.table.len()).collect::<Vec<_>>(), [1, 1]);
}
