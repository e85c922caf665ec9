//! Limiter services as stores, and the strategy that needs one.

use super::stores::first_problem;
use super::*;
use crate::engine::policy::Strategy;
use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::driver::{RemoteSettings, Servers};
use crate::transport::net::tls::StoreTls;

/// A fleet of two. Its strategy is missing.
const FLEET: &str = "[fleet]\nsecret.env = 'WEIR_FLEET_SECRET'\nreplicas = 2\n";

const LIMIT: &str = "[[limit]]\nname = 'a'\nkey = []\nrate = '60/min'\n";

fn compiled(text: &str) -> Config {
    compile(&format!("{text}\n{UPSTREAM}")).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn limiter(name: &str, host: &str, port: u16) -> RemoteSettings {
    RemoteSettings {
        name: name.into(),
        servers: Servers::Service { host: host.into(), port },
        tls: None,
        timeout: Duration::from_millis(10),
        on_failure: OnFailure::Split,
    }
}

#[test]
fn a_limiter_is_a_store_or_an_address() {
    let text = format!(
        "{FLEET}strategy = 'service'\n[store.main]\nservice = 'http://[::1]:8081'\non_failure = 'local'\n\
         [store.other]\nredis = 'redis://a'\n{LIMIT}{}{}{}",
        "[[limit]]\nname = 'b'\nkey = []\nrate = '9/s'\nstrategy = { use = 'service', url = 'https://B.test:1' }\n",
        "[[limit]]\nname = 'c'\nkey = []\nrate = '8/s'\nstrategy = { use = 'service', url = 'https://b.test:1' }\n",
        "[[limit]]\nname = 'd'\nkey = []\nrate = '7/s'\nstrategy = 'redis'\n",
    );
    let config = compiled(&text);
    let of_table = RemoteSettings { on_failure: OnFailure::Local, ..limiter("main", "::1", 8081) };
    let of_url = RemoteSettings { tls: Some(StoreTls::new(None, None)), ..limiter("b.test:1", "b.test", 1) };
    assert_eq!(config.stores.len(), 3);
    assert_eq!(config.stores[0], of_table);
    assert_eq!(config.stores[2], of_url);
    let strategies: Vec<_> = config.policy.limits().iter().map(|limit| limit.strategy).collect();
    let service = |store| Strategy::Service { store, replicas: 2 };
    assert_eq!(strategies, [service(0), service(2), service(2), Strategy::Redis { store: 1, replicas: 2 }]);
}

#[test]
fn a_limiter_that_cannot_be_is_an_error() {
    for (text, expected) in [
        ("service = 'limiter:8081'", "2:11: `store.NAME.service`: must begin with `http://` or `https://`"),
        ("service = 'https://limiter'", "2:11: `store.NAME.service`: must have a port"),
        ("service = 'https://limiter:8081/'", "2:11: `store.NAME.service`: must end after the host or port"),
        ("service = 'http://u:p@limiter:1'", "2:11: `store.NAME.service`: must not contain a user or a password"),
        ("service = 'http://a:1'\nprefix = 'x'", "3:10: `store.NAME.prefix`: has no effect with `service`"),
        ("service = 'http://a:1'\nredis = 'redis://a'", "2:11: store `main` has both `redis` and `service`"),
        ("service = 'http://a:1'\ntls.ca = 'ca.pem'", "3:1: `store.NAME.tls` has no effect without `https://`"),
    ] {
        assert_eq!(first_problem(&format!("[store.main]\n{text}")), expected, "{text}");
    }
}

#[test]
fn a_strategy_needs_a_limiter() {
    let redis = "[store.main]\nredis = 'redis://a'\n";
    let service = "[store.main]\nservice = 'http://a:1'\n";
    let of = |strategy: &str, stores: &str| format!("{FLEET}strategy = {strategy}\n{stores}");
    for (text, expected) in [
        (of("'service'", ""), "4:12: `fleet.strategy`: `service` needs a limiter"),
        (of("'service'", redis), "4:12: `fleet.strategy`: `service` needs a limiter"),
        (of("'redis'", service), "4:12: `fleet.strategy`: `redis` needs a store"),
        (
            of("{ use = 'service', store = 'main' }", redis),
            "4:39: `fleet.strategy.store`: `main` is no limiter service",
        ),
        (of("{ use = 'lease', store = 'main' }", service), "4:37: `fleet.strategy.store`: `main` is a limiter service"),
        (
            of("{ use = 'service', url = 'a' }", ""),
            "4:37: `fleet.strategy.url`: must begin with `http://` or `https://`",
        ),
        (
            of("{ use = 'service', url = 'http://a:1', store = 'main' }", service),
            "4:59: `fleet.strategy.store`: excludes `url`, which names the limiter",
        ),
        (of("{ use = 'redis', url = 'http://a:1' }", redis), "4:35: `fleet.strategy.url`: belongs to `service`"),
        (
            "[fleet]\nreplicas = 2\nstrategy = { use = 'service', url = 'http://a:1' }".to_owned(),
            "3:20: `fleet.strategy.use`: `service` needs `fleet.secret`: all replicas must hash keys alike",
        ),
        (
            format!("{}[[limit]]\nname = 'a'\nkey = []\nalgorithm = 'concurrency'\nmax = 9", of("'service'", service)),
            "10:13: `limit.algorithm`: `concurrency` cannot be used with a limiter service: it would not hear of \
             replicas that end",
        ),
        (
            format!(
                "{}[[limit]]\nname = 'a'\nkey = []\nalgorithm = 'sub_window'\nsub_windows = 7\nrate = '9/s'",
                of("'service'", service)
            ),
            "12:8: `limit.rate`: a limiter service cannot decide this limit: its sub-windows are no whole microseconds",
        ),
    ] {
        assert_eq!(first_problem(&text), expected, "{text}");
    }
}
