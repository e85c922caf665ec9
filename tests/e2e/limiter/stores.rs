//! Limits of callers whose state is in Redis.

use weir::fleet::grpc::proto::envoy::service::ratelimit::v3::rate_limit_response::Code;

use super::rate_limit::ask;
use super::{Caller, of};
use crate::ops::until;
use crate::support::{Fleet, Redis, Upstream, Weir};

fn start(redis: &Redis, upstream: &Upstream, strategy: &str) -> Fleet {
    let fleet = Fleet::start(
        2,
        upstream,
        &format!(
            r#"
            [grpc]
            listen = "127.0.0.1:0"
            [[grpc.check]]
            method = "local"
            limits = {{ local = {{ "name:client" = "{{actor}}" }}, shared = {{ "name:client" = "{{actor}}" }} }}
            [[grpc.check]]
            limits = {{ shared = {{ "name:client" = "{{actor}}" }} }}
            [[grpc.descriptor]]
            domain = "edge"
            entries = [{{ key = "client" }}]
            limits = {{ shared = {{ "name:client" = "{{client}}" }} }}
            apply_on_stream_done = true
            [fleet]
            strategy = "local"
            replicas = 2
            secret = {{ env = "WEIR_FLEET_SECRET" }}
            [store.main]
            redis = ["{}"]
            timeout = "5s"
            [[limit]]
            name = "shared"
            key = ["name:client"]
            rate = "10/day"
            strategy = {strategy}
            [[limit]]
            name = "local"
            key = ["name:client"]
            rate = "3/day"
            "#,
            redis.url()
        ),
    );
    fleet.wait_for_stores(true);
    fleet
}

#[test]
fn replicas_share_a_limit() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = start(&redis, &upstream, "\"redis\"");
    let [mut one, mut other] = [0, 1].map(|index| Caller::of(&fleet.weirs[index]));
    assert_eq!(one.ask("7", "x", 4), (true, 6));
    assert_eq!(other.ask("7", "x", 4), (true, 2));
    assert_eq!(one.ask("7", "x", 4), (false, 2));
    // A look asks the store, too.
    assert_eq!(other.ask("7", "x", 1), (true, 1));
    assert_eq!(one.ask("7", "x", 0), (true, 1));
    assert_eq!(other.ask("7", "x", 1), (true, 0));
    assert_eq!(one.ask("7", "x", 0), (false, 0));
    // A store that refuses charges no local limit.
    assert_eq!(one.ask("8", "x", 9), (true, 1));
    assert_eq!(one.ask("8", "local", 2), (false, 1));
    assert_eq!(one.ask("8", "local", 1), (true, 0));
    assert_eq!(other.ask("9", "local", 2), (true, 1));
    assert_eq!(fleet.fallbacks(), 0.0);
}

#[test]
fn leases_serve_callers() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = start(&redis, &upstream, "{ use = \"lease\", units = 2 }");
    let mut callers = [0, 1].map(|index| Caller::of(&fleet.weirs[index]));
    let mut passed = |turns: usize| (0..turns).filter(|turn| callers[turn % 2].ask("7", "x", 1).0).count();
    let mut all = 0;
    until("all units are spent", || {
        all += passed(2);
        all >= 10
    });
    assert_eq!((all, passed(10)), (10, 0));
    assert_eq!(fleet.fallbacks(), 0.0);
}

/// Units that Envoy reports after the responses of one replica make a debt, by which each replica refuses.
#[test]
fn a_debt_refuses_at_each_replica() {
    for strategy in ["\"redis\"", "\"lease\""] {
        let (redis, upstream) = (Redis::start(), Upstream::start());
        let fleet = start(&redis, &upstream, strategy);
        let code = |weir: &Weir, hits: u64| ask(weir, 0, &[("client=x", Some(hits))]).unwrap().overall_code();
        assert!(fleet.weirs.iter().all(|weir| code(weir, 0) == Code::Ok), "{strategy}");
        for _ in 0..4 {
            code(&fleet.weirs[0], 4);
        }
        until(&format!("each look is refused: {strategy}"), || {
            fleet.weirs.iter().all(|weir| code(weir, 0) == Code::OverLimit)
        });
        assert_eq!(fleet.fallbacks(), 0.0, "{strategy}");
    }
}

#[test]
fn without_the_store_a_share_is_left() {
    let (mut redis, upstream) = (Redis::start(), Upstream::start());
    let fleet = start(&redis, &upstream, "\"redis\"");
    redis.kill();
    let mut caller = Caller::of(&fleet.weirs[0]);
    let passed = (0..20).filter(|_| caller.check(of("7", "x", 1)).unwrap().allowed).count();
    assert_eq!(passed, 5);
    assert!(fleet.weirs[0].fallbacks() > 0.0);
}
