//! `weir.v1.Limiter`: what it decides, and what it says.

use prost_types::Duration;
use tokio_stream::StreamExt;
use tonic::Code;
use weir::fleet::grpc::proto::weir::v1::check_stream_response::Result as Answer;
use weir::fleet::grpc::proto::weir::v1::{CheckRequest, CheckResponse, Refusal, ReportRequest};

use super::{Caller, of, start};
use crate::support::{Client, Upstream};

/// Sellers have a limit of each method, and one of all methods; reports share a basket.
const SELLERS: &str = r#"
[[grpc.check]]
scope = "api"
method = ["report.csv", "report.xls"]
limits = { basket = { "name:seller" = "{actor}" }, total = { "name:seller" = "{actor}" } }

[[grpc.check]]
scope = "api"
limits = { methods = { "name:seller" = "{actor}", "name:method" = "{method}" }, total = { "name:seller" = "{actor}" } }

[[limit]]
name = "methods"
key = ["name:seller", "name:method"]
rate = "5/h"
plans = { gold = { rate = "50/h" } }

[[limit]]
name = "basket"
key = ["name:seller"]
rate = "3/h"

[[limit]]
name = "total"
key = ["name:seller"]
rate = "20/h"
"#;

fn seconds(of: Option<Duration>) -> Option<i64> {
    of.map(|of| of.seconds + i64::from(of.nanos > 0))
}

#[test]
fn checks_are_answered() {
    let upstream = Upstream::start();
    let weir = start(&upstream, SELLERS);
    let mut caller = Caller::of(&weir);
    let first = caller.check(of("7", "orders", 2)).unwrap();
    assert_eq!((first.allowed, first.remaining, first.limit, &*first.limit_name), (true, 3, 5, "methods"));
    assert_eq!((first.retry_after, seconds(first.reset_after), first.refusal), (None, Some(1440), 0));
    let refused = caller.check(of("7", "orders", 4)).unwrap();
    assert_eq!((refused.allowed, refused.remaining, &*refused.limit_name), (false, 3, "methods"));
    assert!((660..=720).contains(&seconds(refused.retry_after).unwrap()), "{refused:?}");
    assert_eq!(refused.refusal(), Refusal::Limit);
    let never = caller.check(of("7", "orders", 6)).unwrap();
    assert_eq!((never.allowed, never.retry_after, never.refusal()), (false, None, Refusal::Cost));
    // A cost of 0 looks; no cost is 1.
    assert_eq!(caller.ask("7", "orders", 0), (true, 3));
    let usual = caller.check(CheckRequest { cost: None, ..of("7", "orders", 0) }).unwrap();
    assert_eq!((usual.allowed, usual.remaining), (true, 2));
    // Another method has a budget of its own, and so has another seller.
    assert_eq!(caller.ask("7", "stocks", 5), (true, 0));
    assert_eq!(caller.ask("7", "stocks", 0), (false, 0));
    assert_eq!(caller.ask("8", "orders", 1), (true, 4));
    // Two methods share a basket. All limits are charged or none.
    assert_eq!(caller.ask("7", "report.csv", 2), (true, 1));
    assert_eq!(caller.ask("7", "report.xls", 2), (false, 1));
    assert_eq!(caller.ask("7", "report.xls", 1), (true, 0));
    let gold = CheckRequest { plan: "gold".into(), ..of("9", "orders", 10) };
    let gold = caller.check(gold).unwrap();
    assert_eq!((gold.allowed, &*gold.limit_name, gold.remaining), (true, "total", 10));
    for (request, code) in [
        (of("", "orders", 1), Code::InvalidArgument),
        (of("7", "orders", 1 << 53), Code::InvalidArgument),
        (CheckRequest { scope: "web".into(), ..of("7", "orders", 1) }, Code::NotFound),
    ] {
        assert_eq!(caller.code(request.clone()), code, "{request:?}");
    }
    // A status is short, whatever the caller sends.
    for long in ["w".repeat(100_000), "é\u{1}".repeat(30_000)] {
        let status = caller.check(CheckRequest { scope: long, ..of("7", "orders", 1) }).unwrap_err();
        assert_eq!((status.code(), status.message().len() < 1000), (Code::NotFound, true), "{status:?}");
    }
    assert_eq!(weir.metric("weir_limit_decisions_total{decision=\"refused\",limit=\"basket\"}"), 1.0);
    assert_eq!(weir.metric("weir_grpc_checks_total{result=\"unmatched\",service=\"limiter\"}"), 3.0);
    assert_eq!(weir.metric("weir_grpc_invalid_total"), 2.0);
    // Requests through Weir do not meet limits of callers.
    assert!((0..30).all(|_| Client::connect(weir.address()).get("/").status == 200));
    let top = "GET /v1/top?limit=basket HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let top = Client::connect(weir.admin()).send(top).answer().text();
    assert!(top.contains("\"7\""), "{top}");
}

#[test]
fn a_check_and_a_request_share_a_budget() {
    let upstream = Upstream::start();
    let weir = start(
        &upstream,
        r#"
        [[grpc.check]]
        limits = { paths = { path = "/v1/{method}" } }
        [[limit]]
        name = "paths"
        key = ["path"]
        rate = "3/h"
        "#,
    );
    let mut caller = Caller::of(&weir);
    assert_eq!(caller.ask("7", "orders", 2), (true, 1));
    let statuses: Vec<u16> = (0..2).map(|_| Client::connect(weir.address()).get("/v1/orders").status).collect();
    assert_eq!(statuses, [200, 429]);
    assert_eq!(caller.ask("7", "orders", 1), (false, 0));
}

#[test]
fn reports_settle() {
    let upstream = Upstream::start();
    let weir = start(
        &upstream,
        r#"
        [[grpc.check]]
        limits = { cpu = { "name:client" = "{actor}" } }
        [[limit]]
        name = "cpu"
        key = ["name:client"]
        rate = "100/day"
        settle = { by = "elapsed_ms" }
        max_debt = 500
        "#,
    );
    let mut caller = Caller::of(&weir);
    let mut report = |charged, cost| {
        let (actor, scope, method) = ("7".into(), "api".into(), "run".into());
        let request = ReportRequest { actor, scope, method, plan: String::new(), charged, cost };
        let answer = caller.runtime.block_on(caller.client.report(request)).unwrap().into_inner();
        (answer.remaining, answer.debt)
    };
    assert_eq!(report(Some(0), 30), (70, 0));
    assert_eq!(report(Some(30), 10), (90, 0));
    assert_eq!(report(None, 1), (90, 0));
    assert_eq!(report(None, 141), (0, 50));
    assert_eq!(report(None, 10_000), (0, 500));
    // No check has charged more than 100 units.
    assert_eq!(report(Some(1 << 60), 0), (0, 400));
    assert_eq!(report(Some(1 << 60), 50), (0, 300));
    assert_eq!(report(Some(150), 150), (0, 300));
    assert_eq!(caller.ask("7", "run", 1), (false, 0));
}

#[test]
fn a_stream_is_answered_in_order() {
    let upstream = Upstream::start();
    let weir = start(&upstream, SELLERS);
    let mut caller = Caller::of(&weir);
    let mut requests: Vec<_> = (0..200).map(|index| of(&format!("s{}", index % 50), "orders", 2)).collect();
    requests[100].scope = "web".into();
    let answers = caller.runtime.block_on(async {
        let stream = caller.client.check_stream(tokio_stream::iter(requests)).await.unwrap().into_inner();
        stream.collect::<Vec<_>>().await
    });
    assert_eq!(answers.len(), 200);
    for (index, answer) in answers.into_iter().enumerate() {
        match answer.unwrap().result.unwrap() {
            Answer::Response(CheckResponse { allowed, remaining, .. }) => {
                let expected = [(true, 3), (true, 1), (false, 1), (false, 1)];
                // The first seller has missed a turn.
                let turn = if index == 150 { 2 } else { index / 50 };
                assert_eq!((allowed, remaining), expected[turn], "{index}");
            }
            Answer::Error(error) => assert_eq!((index, error.code), (100, Code::NotFound as i32), "{error:?}"),
        }
    }
}
