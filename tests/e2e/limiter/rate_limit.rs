//! `envoy.service.ratelimit.v3.RateLimitService`.

use weir::fleet::grpc::proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use weir::fleet::grpc::proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use weir::fleet::grpc::proto::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use weir::fleet::grpc::proto::envoy::service::ratelimit::v3::rate_limit_response::{Code, RateLimit};
use weir::fleet::grpc::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use weir::fleet::grpc::proto::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};

use super::{channel, runtime, start};
use crate::support::{Upstream, Weir};

const EDGE: &str = r#"
[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "generic_key", value = "login" }, { key = "remote_address" }]
limits = { logins = { ip = "{remote_address}" } }

[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "path" }]
limits = { paths = { path = "{path}" } }

[[limit]]
name = "logins"
key = ["ip"]
rate = "3/h"
match = { path = "/login" }

[[limit]]
name = "paths"
key = ["path"]
rate = ["20/h", "100/day"]
"#;

/// A descriptor of `KEY=VALUE` words, with its own units.
fn descriptor(words: &str, hits: Option<u64>) -> RateLimitDescriptor {
    let entry = |word: &str| {
        let (key, value) = word.split_once('=').unwrap();
        Entry { key: key.into(), value: value.into() }
    };
    let entries = words.split_whitespace().map(entry).collect();
    RateLimitDescriptor { entries, hits_addend: hits, ..RateLimitDescriptor::default() }
}

pub fn ask(
    weir: &Weir,
    hits_addend: u32,
    descriptors: &[(&str, Option<u64>)],
) -> Result<RateLimitResponse, tonic::Code> {
    let descriptors = descriptors.iter().map(|(words, hits)| descriptor(words, *hits)).collect();
    ask_about(weir, hits_addend, descriptors).map_err(|status| status.code())
}

fn ask_about(
    weir: &Weir,
    hits_addend: u32,
    descriptors: Vec<RateLimitDescriptor>,
) -> Result<RateLimitResponse, tonic::Status> {
    let runtime = runtime();
    let mut client = RateLimitServiceClient::new(runtime.block_on(channel(weir.grpc())));
    let request = RateLimitRequest { domain: "edge".into(), descriptors, hits_addend };
    let answer = runtime.block_on(client.should_rate_limit(request));
    answer.map(tonic::Response::into_inner)
}

/// The code of the answer, and code and remaining units of each descriptor.
pub fn told(answer: &RateLimitResponse) -> (Code, Vec<(Code, u32)>) {
    let statuses = answer.statuses.iter().map(|status| (status.code(), status.limit_remaining));
    (answer.overall_code(), statuses.collect())
}

fn headers(answer: &RateLimitResponse) -> Vec<String> {
    let headers = answer.response_headers_to_add.iter().filter(|header| header.key != "x-ratelimit-reset");
    headers.map(|header| format!("{}: {}", header.key, header.value)).collect()
}

#[test]
fn descriptors_are_charged_together() {
    const LOGIN: &str = "generic_key=login remote_address=192.0.2.7";
    let upstream = Upstream::start();
    let weir = start(&upstream, EDGE);
    let first = ask(&weir, 0, &[(LOGIN, None), ("path=/login", None), ("unknown=1", None)]).unwrap();
    assert_eq!(told(&first), (Code::Ok, vec![(Code::Ok, 2), (Code::Ok, 19), (Code::Ok, 0)]));
    let limits: Vec<_> = first.statuses.iter().map(|status| status.current_limit.clone()).collect();
    let limit = |name: &str, requests_per_unit, unit: Unit| {
        Some(RateLimit { requests_per_unit, unit: unit.into(), name: name.into() })
    };
    assert_eq!(limits, [limit("logins", 3, Unit::Hour), limit("paths", 20, Unit::Hour), None]);
    assert_eq!(first.statuses[0].duration_until_reset.unwrap().seconds, 1200);
    assert_eq!(headers(&first), ["x-ratelimit-limit: 3", "x-ratelimit-remaining: 2"]);
    // Units of the request, and of a descriptor. If one is over its limit, none is charged.
    let refused = ask(&weir, 3, &[(LOGIN, None), ("path=/login", Some(1))]).unwrap();
    assert_eq!(told(&refused), (Code::OverLimit, vec![(Code::OverLimit, 2), (Code::Ok, 19)]));
    let mut said = headers(&refused);
    let retry_after = said.pop().unwrap();
    let seconds = retry_after.strip_prefix("retry-after: ").and_then(|seconds| seconds.parse::<u64>().ok());
    assert!(seconds.is_some_and(|seconds| (1100..=1200).contains(&seconds)), "{retry_after}");
    assert_eq!(said, ["x-ratelimit-limit: 3", "x-ratelimit-remaining: 2"]);
    // 0 looks.
    let look = ask(&weir, 0, &[(LOGIN, Some(0)), ("path=/login", Some(0))]).unwrap();
    assert_eq!(told(&look), (Code::Ok, vec![(Code::Ok, 2), (Code::Ok, 19)]));
    let rest = ask(&weir, 2, &[(LOGIN, None)]).unwrap();
    assert_eq!(told(&rest), (Code::Ok, vec![(Code::Ok, 0)]));
    let look = ask(&weir, 0, &[(LOGIN, Some(0))]).unwrap();
    assert_eq!(told(&look), (Code::OverLimit, vec![(Code::OverLimit, 0)]));
    assert_eq!(ask(&weir, 0, &[]).unwrap_err(), tonic::Code::InvalidArgument);
    assert_eq!(ask(&weir, 0, &[("path=/many", None); 257]).unwrap_err(), tonic::Code::InvalidArgument);
    let address = "generic_key=login remote_address=here";
    assert_eq!(ask(&weir, 0, &[(address, None)]).unwrap_err(), tonic::Code::InvalidArgument);
    assert_eq!(weir.metric("weir_grpc_checks_total{result=\"unmatched\",service=\"rate_limit\"}"), 1.0);
    assert_eq!(weir.metric("weir_grpc_checks_total{result=\"refused\",service=\"rate_limit\"}"), 2.0);
}

#[test]
fn a_descriptor_may_have_a_limit_of_its_own() {
    let tables = r#"
[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "seller" }]
limits = { sellers = { "name:seller" = "{seller}" } }
accept_limit = true

[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "shop" }]
limits = { sellers = { "name:seller" = "{shop}" } }

[[limit]]
name = "sellers"
key = ["name:seller"]
rate = "2/day"
algorithm = "fixed_window"
align = "first"
on_full = "reject"
"#;
    let upstream = Upstream::start();
    let weir = start(&upstream, tables);
    let ask = |words: &str, hits: u32, limit: Option<(u32, i32)>| {
        let limit = limit.map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
        ask_about(&weir, hits, vec![RateLimitDescriptor { limit, ..descriptor(words, None) }])
    };
    let [minute, day, year] = [Unit::Minute, Unit::Day, Unit::Year].map(i32::from);
    for (words, hits, limit, expected) in [
        ("seller=a", 1, Some((3, day)), (Code::Ok, 2, (3, day))),
        ("seller=a", 3, Some((3, day)), (Code::OverLimit, 2, (3, day))),
        // The budget of the configured rate is untouched, as is that of another unit.
        ("seller=a", 1, None, (Code::Ok, 1, (2, day))),
        ("seller=a", 1, Some((5, year)), (Code::Ok, 4, (5, year))),
        ("seller=a", 2, Some((3, day)), (Code::Ok, 0, (3, day))),
        ("seller=a", 1, Some((0, minute)), (Code::OverLimit, 0, (0, minute))),
        ("seller=a", 1, None, (Code::Ok, 0, (2, day))),
        // This table accepts none.
        ("shop=b", 1, Some((100, day)), (Code::Ok, 1, (2, day))),
    ] {
        let status = ask(words, hits, limit).unwrap().statuses.remove(0);
        let current = status.current_limit.clone().unwrap();
        let found = (status.code(), status.limit_remaining, (current.requests_per_unit, current.unit));
        assert_eq!((found, &*current.name), (expected, "sellers"), "{words} {hits} {limit:?}");
    }
    // Unknown units.
    for limit in [(5, 0), (5, 8)] {
        assert_eq!(ask("seller=a", 1, Some(limit)).unwrap_err().code(), tonic::Code::InvalidArgument, "{limit:?}");
    }
    // One budget has one rate in a request. If there are two, nothing is charged.
    let both = |[one, other]: [u32; 2]| {
        let limit = |requests_per_unit| RateLimitOverride { requests_per_unit, unit: i32::from(Unit::Month) };
        let asked = [one, other].map(|n| RateLimitDescriptor { limit: Some(limit(n)), ..descriptor("seller=c", None) });
        ask_about(&weir, 1, asked.into())
    };
    for numbers in [[9, 8], [8, 9], [9, 0]] {
        let error = both(numbers).unwrap_err();
        assert_eq!(error.code(), tonic::Code::InvalidArgument);
        assert_eq!(
            error.message(),
            "descriptors[1].limit: descriptors[0] has the same key and unit, and another `requests_per_unit`"
        );
    }
    assert_eq!(told(&both([9, 9]).unwrap()), (Code::Ok, vec![(Code::Ok, 7), (Code::Ok, 7)]));
}

/// Envoy copies bytes of its clients. A client must not choose that nothing is charged.
#[test]
fn any_text_of_a_client_is_decided() {
    let tables = r#"
[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "api_key" }]
limits = { keys = { "header:x-api-key" = "{api_key}" } }

[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "path" }]
limits = { paths = { path = "{path}" } }

[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "path" }, { key = "method", value = "GET" }]
limits = { paths = { path = "{path}" } }

[[limit]]
name = "keys"
key = ["header:x-api-key"]
rate = "2/h"

[[limit]]
name = "paths"
key = ["path"]
rate = "4/h"
"#;
    let upstream = Upstream::start();
    let weir = start(&upstream, tables);
    let texts = |texts: &[(&str, &[u8])]| {
        let entries = texts.iter().map(|(key, value)| Entry { key: (*key).into(), value: (*value).into() }).collect();
        RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
    };
    let long = format!("/{}", "a".repeat(35_000));
    let long = long.as_bytes();
    for (descriptors, expected) in [
        (vec![texts(&[("api_key", b"k\xff")])], (Code::Ok, vec![(Code::Ok, 1)])),
        (vec![texts(&[("api_key", b"k\xff")])], (Code::Ok, vec![(Code::Ok, 0)])),
        (vec![texts(&[("api_key", b"k\xff")])], (Code::OverLimit, vec![(Code::OverLimit, 0)])),
        // Another client.
        (vec![texts(&[("api_key", b"l\xff")])], (Code::Ok, vec![(Code::Ok, 1)])),
        (
            vec![texts(&[("path", b"/\xff")]), texts(&[("k\u{e9}", b"\xe9")])],
            (Code::Ok, vec![(Code::Ok, 3), (Code::Ok, 0)]),
        ),
        // As long as a head that Envoy accepts, twice.
        (
            vec![texts(&[("path", long)]), texts(&[("path", long), ("method", b"GET")])],
            (Code::Ok, vec![(Code::Ok, 2), (Code::Ok, 2)]),
        ),
    ] {
        assert_eq!(told(&ask_about(&weir, 1, descriptors).unwrap()), expected);
    }
    assert_eq!(weir.metric("weir_grpc_invalid_total"), 0.0);
}

/// Units that are spent already are charged whether they fit or not, so that the next request that looks is refused; units
/// that are given back are no part of the decision.
#[test]
fn spent_units_are_charged_and_units_can_be_given_back() {
    let tables = r#"
[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "tokens" }]
limits = { tokens = { "name:tenant" = "{tokens}" } }
apply_on_stream_done = true

[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "tenant" }]
limits = { tokens = { "name:tenant" = "{tenant}" } }

[[grpc.descriptor]]
domain = "edge"
entries = [{ key = "requested" }]
limits = { windows = { "name:tenant" = "{requested}" } }
accept_limit = true
apply_on_stream_done = true

[[limit]]
name = "tokens"
key = ["name:tenant"]
rate = "10/day"

[[limit]]
name = "windows"
key = ["name:tenant"]
rate = "1/day"
algorithm = "fixed_window"
align = "first"
on_full = "reject"
"#;
    let upstream = Upstream::start();
    let weir = start(&upstream, tables);
    let (admitted, refused) = (|remaining| (Code::Ok, vec![(Code::Ok, remaining)]), (Code::OverLimit, 0));
    let refused = || (Code::OverLimit, vec![refused]);
    let look = |words: &str| told(&ask(&weir, 0, &[(words, Some(0))]).unwrap());
    let give_back = |words: &str, hits, limit| {
        let back = RateLimitDescriptor { is_negative_hits: true, limit, ..descriptor(words, hits) };
        told(&ask_about(&weir, 2, vec![back]).unwrap())
    };
    // The third charge is beyond what remains. The debt is 2 units.
    for remaining in [10, 6, 2] {
        assert_eq!(look("tokens=a"), admitted(remaining));
        assert_eq!(told(&ask(&weir, 0, &[("tokens=a", Some(4))]).unwrap()), admitted(remaining));
    }
    assert_eq!(look("tokens=a"), refused());
    assert_eq!(give_back("tokens=a", None, None), admitted(0));
    assert_eq!(look("tokens=a"), refused());
    assert_eq!(give_back("tenant=a", Some(3), None), admitted(0));
    assert_eq!(look("tenant=a"), admitted(3));
    // A charge beyond the capacity.
    assert_eq!(told(&ask(&weir, 25, &[("tokens=b", None)]).unwrap()), admitted(10));
    assert_eq!(told(&ask(&weir, 1, &[("tokens=b", None)]).unwrap()), refused());
    // No more comes back than the limit has.
    assert_eq!(give_back("tenant=b", Some(u64::MAX), None), admitted(0));
    assert_eq!(look("tenant=b"), refused());
    assert_eq!(give_back("tenant=b", Some(10), None), admitted(0));
    assert_eq!(look("tenant=b"), admitted(4));
    // By a rate of the descriptor.
    let limit = Some(RateLimitOverride { requests_per_unit: 5, unit: Unit::Day.into() });
    let asked = |hits| RateLimitDescriptor { limit, ..descriptor("requested=c", Some(hits)) };
    for (hits, remaining) in [(0, 5), (4, 5), (0, 1)] {
        assert_eq!(told(&ask_about(&weir, 0, vec![asked(hits)]).unwrap()), admitted(remaining), "{hits}");
    }
    assert_eq!(give_back("requested=c", Some(2), limit), admitted(0));
    assert_eq!(told(&ask_about(&weir, 0, vec![asked(0)]).unwrap()), admitted(3));
}

#[test]
fn headers_can_be_left_out() {
    let upstream = Upstream::start();
    let weir = start(&upstream, &format!("headers = false\n{EDGE}"));
    let answer = ask(&weir, 0, &[("path=/", None)]).unwrap();
    assert_eq!((told(&answer).0, headers(&answer).len()), (Code::Ok, 0));
}
