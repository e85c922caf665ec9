//! Requests and their costs.

use super::*;
use crate::base::fields::FieldBuf;

fn units(cost: &Cost, method: &Method, path: &str, query: Option<&str>, value: Option<&str>) -> u64 {
    let headers: FieldBuf = value.map(|value| ("x-cost", value)).into_iter().collect();
    cost.units(&Facts {
        method,
        host: "h",
        path,
        query,
        headers: headers.fields(),
        client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
        is_free_preflight: false,
        is_proxied: false,
        certificate: None,
        cost: None,
        body: None,
    })
}

#[test]
fn the_first_line_that_fits_counts() {
    let line = |paths: &[&str], methods: &[Method], units| CostLine {
        paths: paths.iter().map(|path| PathPattern::parse(path).unwrap()).collect(),
        methods: methods.to_vec(),
        units,
    };
    let lines = vec![
        line(&["/a", "/b/{*rest}"], &[Method::PUT, Method::POST], 7),
        line(&["/a"], &[], 5),
        line(&[], &[Method::DELETE], 9),
    ];
    let table = Cost::Table { lines, default: 2 };
    assert_eq!((table.max(), Cost::Units(3).max()), (9, 3));
    for (method, path, expected) in [
        (Method::PUT, "/a", 7),
        (Method::POST, "/b/c", 7),
        (Method::GET, "/a", 5),
        (Method::DELETE, "/a", 5),
        (Method::DELETE, "/c", 9),
        (Method::PUT, "/c", 2),
        (Method::GET, "/b/c", 2),
    ] {
        assert_eq!(units(&table, &method, path, None, None), expected, "{method} {path}");
        assert_eq!(units(&Cost::Units(3), &method, path, None, None), 3);
    }
}

#[test]
fn a_request_sets_its_cost_within_bounds() {
    let by_header =
        Cost::FromRequest { by: CostSource::Header(HeaderName::from_static("x-cost")), max: 500, default: 4 };
    let by_query = Cost::FromRequest { by: CostSource::Query("cost".into()), max: 500, default: 4 };
    assert_eq!(
        (by_header.max(), Cost::FromRequest { by: CostSource::Query("c".into()), max: 3, default: 4 }.max()),
        (500, 4)
    );
    for (value, expected) in [
        ("1", 1),
        ("42", 42),
        ("042", 42),
        ("0", 1),
        ("500", 500),
        ("501", 500),
        ("99999999999999999999999", 500),
        ("-5", 1),
        ("", 4),
        (" ", 4),
        (" 42", 42),
        // A service may read a number here, so the request takes `max`.
        ("-", 500),
        ("--5", 500),
        ("1.5", 500),
        ("1x", 500),
        ("x", 500),
        ("1_000", 500),
        ("1e3", 500),
        ("0x10", 500),
        ("\u{661}\u{662}", 500),
        ("1, 1000", 500),
    ] {
        assert_eq!(units(&by_header, &Method::GET, "/", None, Some(value)), expected, "{value}");
        assert_eq!(units(&by_query, &Method::GET, "/", Some(&format!("a=1&cost={value}")), None), expected, "{value}");
    }
    // A form decoder reads `+` as a space.
    assert_eq!(units(&by_header, &Method::GET, "/", None, Some("+7")), 500);
    assert_eq!(units(&by_query, &Method::GET, "/", Some("cost=+7"), None), 7);
    assert_eq!(units(&by_query, &Method::GET, "/", Some("cost=%2B7"), None), 500);
    // Some services take these names for `cost`, or end a parameter at `;`.
    for query in ["COST=9", "cost[]=9", "c%6Fst=9", "a=1;cost=9", "cost=1&Cost=9", "cost=9;a"] {
        assert_eq!(units(&by_query, &Method::GET, "/", Some(query), None), 9, "{query}");
    }
    assert_eq!(units(&by_header, &Method::GET, "/", Some("cost=9"), None), 4);
    let by_long = Cost::FromRequest { by: CostSource::Query("max_cost".into()), max: 500, default: 4 };
    for query in ["max[cost=9", "max_cost=1&max%5Bcost=9", "[max_cost]=9"] {
        assert_eq!(units(&by_long, &Method::GET, "/", Some(query), None), 9, "{query}");
    }
    assert_eq!(units(&by_query, &Method::GET, "/", None, Some("9")), 4);
}

#[test]
fn head_costs_what_get_does_unless_a_line_names_it() {
    let line = |path: &str, methods: &[Method], units| CostLine {
        paths: vec![PathPattern::parse(path).unwrap()],
        methods: methods.to_vec(),
        units,
    };
    let lines = vec![
        line("/a", &[Method::GET], 5),
        line("/b", &[Method::GET], 6),
        line("/b", &[Method::HEAD], 2),
        line("/a", &[], 3),
    ];
    let cost = Cost::Table { lines, default: 1 };
    for (path, of_get, of_head, of_put) in [("/a", 5, 5, 3), ("/b", 6, 2, 1), ("/c", 1, 1, 1)] {
        let found = [Method::GET, Method::HEAD, Method::PUT].map(|method| units(&cost, &method, path, None, None));
        assert_eq!(found, [of_get, of_head, of_put], "{path}");
    }
}

#[test]
fn of_several_values_the_highest_counts() {
    let header = Cost::FromRequest { by: CostSource::Header(HeaderName::from_static("x-cost")), max: 100, default: 5 };
    let query = Cost::FromRequest { by: CostSource::Query("cost".into()), max: 100, default: 5 };
    for (values, expected) in
        [(["7", "1"], 7), (["1", "7"], 7), (["1", "1000"], 100), (["1", "x"], 100), (["", "6"], 6), (["0", "-1"], 1)]
    {
        let headers: FieldBuf = values.iter().map(|value| ("x-cost", value)).collect();
        let parameters = values.map(|value| format!("cost={value}")).join("&");
        let facts = Facts {
            is_free_preflight: false,
            is_proxied: false,
            method: &Method::GET,
            host: "h",
            path: "/",
            query: Some(&parameters),
            headers: headers.fields(),
            client_ip: std::net::Ipv4Addr::LOCALHOST.into(),
            certificate: None,
            cost: None,
            body: None,
        };
        assert_eq!((header.units(&facts), query.units(&facts)), (expected, expected), "{values:?}");
    }
}
