//! Requests that need an identity, whatever limits and access lists decide; and identities that services get.

use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::json;

use crate::routes::{route, upstream};
use crate::support::{Call, Client, H2Service, NEVER, Upstream, Weir, over_h2};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// The secret of another issuer.
const PARTNER: &str = "fedcba9876543210fedcba9876543210";

/// `[identity.seller]` by a token. `x-device` is stated by clients.
fn identities(on_missing: &str) -> String {
    format!(
        "[identity.seller]\non_missing = \"{on_missing}\"\n[identity.seller.jwt]\nclaim = \"sellerId\"\n\
         algorithms = [\"HS256\"]\nkeys = [{{ secret = {{ env = \"JWT_SECRET\" }} }}]\n\
         [identity.device]\nheader = \"x-device\"\non_missing = \"anonymous\"\n[plans]\nfrom = \"seller.plan\"\n"
    )
}

/// A limit by seller that no request exceeds.
fn limit(more: &str) -> String {
    format!("[[limit]]\nname = \"per-seller\"\nkey = [\"seller\"]\nrate = \"1000/s\"\n{more}\n")
}

fn start(config: &str) -> Weir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    Weir::start_in_env(folder, &[("JWT_SECRET", SECRET), ("PARTNER_SECRET", PARTNER)])
}

/// The fields of a request with a token of these claims.
fn bearer(claims: &serde_json::Value) -> String {
    bearer_by(SECRET, claims)
}

fn bearer_by(secret: &str, claims: &serde_json::Value) -> String {
    let mut claims = claims.clone();
    claims["exp"] = json!(32_503_680_000_u64); // the year 3000
    let key = EncodingKey::from_secret(secret.as_bytes()).unwrap();
    let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap();
    format!("Authorization: Bearer {token}\r\n")
}

fn status(weir: &Weir, line: &str, fields: &str) -> u16 {
    let head = format!("{line} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{fields}\r\n");
    // An answer to HEAD has no body.
    Client::connect(weir.address()).send(head).head().unwrap().status
}

/// What changes a limit, or exempts a client or a path from limits, is one line of a pair; the other line asks for the
/// identity.
#[test]
fn no_limit_and_no_exemption_opens_a_request() {
    let key = limit("");
    let require = format!("{NEVER}[access]\nrequire = [{{ identity = \"seller\" }}]\n");
    let allow = |what: &str| format!("[access]\nallow = {{ {what} }}\n");
    let both = |what: &str| format!("{NEVER}[access]\nallow = {{ {what} }}\nrequire = [{{ identity = \"seller\" }}]\n");
    let by_plan =
        "[[limit]]\nname = \"by-plan\"\nkey = [\"ip\"]\nrate = \"1000/s\"\nplans = { gold = \"unlimited\" }\n";
    for (pair, on_missing, rest) in [
        ("key", "reject", key.clone()),
        ("key, off", "reject", limit("mode = \"off\"")),
        ("key, shadow", "reject", limit("mode = \"shadow\"")),
        ("key, match.ip", "reject", limit("match = { ip = \"192.0.2.1\" }")),
        ("key, except.ip", "reject", limit("except = { ip = \"127.0.0.1\" }")),
        ("key, off, except.ip", "reject", limit("mode = \"off\"\nexcept = { ip = \"127.0.0.1\" }")),
        ("key, allow.ip", "reject", format!("{key}{}", allow("ip = \"127.0.0.1\""))),
        ("key, allow.path", "reject", format!("{key}{}", allow("path = \"/a\""))),
        ("key, off, allow.ip", "reject", format!("{}{}", limit("mode = \"off\""), allow("ip = \"127.0.0.1\""))),
        ("key, allow of another identity", "reject", format!("{key}{}", allow("identity = { device = \"d\" }"))),
        ("key, unlimited plan", "reject", limit("plans = { gold = \"unlimited\" }")),
        ("plans, off", "reject", format!("{by_plan}mode = \"off\"\n")),
        ("plans, allow.ip", "reject", format!("{by_plan}{}", allow("ip = \"127.0.0.1\""))),
        ("require, no limit", "reject", require.clone()),
        ("require, on_missing", "anonymous", require.clone()),
        ("require, on_missing", "ip", require),
        ("require, allow.ip", "ip", both("ip = \"127.0.0.1\"")),
        ("require, allow.path", "ip", both("path = \"/a\"")),
        (
            "require, off",
            "anonymous",
            format!("{}{}", limit("mode = \"off\""), both("path = \"/a\"").replace(NEVER, "")),
        ),
    ] {
        let service = Upstream::start();
        let weir = start(&Weir::config(&service, "", &format!("{}{rest}", identities(on_missing))));
        let gold = bearer(&json!({ "sellerId": 7, "plan": "gold" }));
        for (fields, expected) in [
            (String::new(), 401),
            ("X-Device: d\r\n".to_owned(), 401),
            ("Authorization: Bearer x\r\n".to_owned(), 401),
            (gold.clone(), 200),
            (format!("{gold}X-Device: d\r\n"), 200),
        ] {
            for line in ["GET /a", "POST /a"] {
                assert_eq!(status(&weir, line, &fields), expected, "{pair} ({on_missing}): {line} {fields}");
            }
        }
        assert_eq!(service.received_count(), 4, "{pair}");
    }
}

#[test]
fn a_requirement_names_paths_and_methods() {
    let require = "[access]\nrequire = [\n\
        { path = \"/api/{*rest}\", identity = \"seller\", except = { path = \"/api/login\" } },\n\
        { path = \"/orders\", method = [\"POST\", \"GET\"], identity = [\"seller\", \"device\"] },\n\
        { path = \"/pro\", identity = \"device\", plan = \"gold\" },\n]\n";
    let service = Upstream::start();
    let weir = start(&Weir::config(&service, "", &format!("{}{NEVER}{require}", identities("anonymous"))));
    let (seller, gold) = (bearer(&json!({ "sellerId": 7 })), bearer(&json!({ "sellerId": 7, "plan": "gold" })));
    let device = "X-Device: d\r\n";
    for (line, fields, expected) in [
        ("GET /", "", 200),
        ("GET /api/a", "", 401),
        ("GET /api/a", device, 401),
        ("GET /api/a", &seller, 200),
        ("GET //api/%61", "", 401),
        ("POST /api/login", "", 200),
        ("POST /api/login", "Authorization: Bearer x\r\n", 200),
        ("POST /api/Login", "", 401),
        ("POST /api/login/", "", 401),
        ("POST /orders", "", 401),
        ("HEAD /orders", "", 401),
        ("PUT /orders", "", 200),
        ("POST /orders", device, 200),
        ("POST /orders", &seller, 200),
        ("GET /pro", &gold, 401),
        ("GET /pro", &format!("{device}{seller}"), 403),
        ("GET /pro", &format!("{device}{gold}"), 200),
    ] {
        assert_eq!(status(&weir, line, fields), expected, "{line} {fields}");
    }
    // A browser sends no credentials with a preflight.
    let asks = "Origin: http://b\r\nAccess-Control-Request-Method: PUT\r\n";
    assert_eq!(status(&weir, "OPTIONS /api/a", asks), 200);
}

/// A token that one issuer did not sign may be of another issuer, whose tokens are in the same header.
#[test]
fn one_of_two_identities_in_a_header_is_enough() {
    let partner = "[identity.partner]\non_missing = \"ip\"\n[identity.partner.jwt]\nclaim = \"id\"\n\
        algorithms = [\"HS256\"]\nkeys = [{ secret = { env = \"PARTNER_SECRET\" } }]\n";
    let rest = "[client_api]\npath = \"/limits\"\nrate = \"1000/min\"\n\
        [access]\nrequire = [{ path = \"/any\", identity = [\"seller\", \"partner\"] }]\n\
        [[limit]]\nname = \"partners\"\nkey = [\"partner\"]\nmatch = { path = \"/partner\" }\nrate = \"1000/s\"\n";
    let service = Upstream::start();
    let weir = start(&Weir::config(&service, "", &format!("{}{partner}{rest}", identities("reject"))));
    let seller = bearer(&json!({ "sellerId": 7 }));
    let partner = bearer_by(PARTNER, &json!({ "id": 7 }));
    let stranger = bearer_by("stranger".repeat(4).as_str(), &json!({ "id": 7, "sellerId": 7 }));
    for (line, by_seller, by_partner, by_none, by_stranger) in [
        ("GET /any", 200, 200, 401, 401),
        ("GET /limits", 200, 200, 401, 401),
        // A key has one of them: without it the address counts, but no token of another issuer.
        ("GET /partner", 401, 200, 200, 401),
    ] {
        let found = [&seller, &partner, "", &stranger].map(|fields| status(&weir, line, fields));
        assert_eq!(found, [by_seller, by_partner, by_none, by_stranger], "{line}");
    }
}

#[test]
fn every_byte_of_a_claim_counts() {
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"seller\"]\nrate = \"1/h\"\nplans = { gold = \"2/h\" }\n\
        overrides = { alice = { plan = \"gold\" } }\n";
    let require = "[access]\nrequire = [{ path = \"/pro\", plan = \"gold\" }]\n";
    let service = Upstream::start();
    let weir = start(&Weir::config(&service, "", &format!("{}{limit}{require}", identities("reject"))));
    for (seller, expected) in [
        ("alice", [200, 200, 429]),
        ("alice,", [403, 200, 429]),
        (" alice", [403, 200, 429]),
        ("alice\u{85}", [403, 200, 429]),
    ] {
        let fields = bearer(&json!({ "sellerId": seller }));
        let found = ["GET /pro", "GET /", "GET /"].map(|line| status(&weir, line, &fields));
        assert_eq!(found, expected, "{seller:?}");
    }
}

#[test]
fn a_route_requires_an_identity() {
    let service = Upstream::start();
    let routes =
        [route("path = \"/public/{*rest}\"", "api", ""), route("path = \"/{*rest}\"", "api", "require = [\"seller\"]")];
    let weir = start(&format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{}{}{}{NEVER}",
        identities("anonymous"),
        upstream("api", &[&service], ""),
        routes.concat()
    ));
    let seller = bearer(&json!({ "sellerId": 7 }));
    for (line, fields, expected) in [
        ("GET /public/a", "", 200),
        ("GET /a", "", 401),
        ("GET /public/../a", "", 401),
        ("GET /a", "Authorization: Bearer x\r\n", 401),
        ("GET /a", &seller, 200),
    ] {
        assert_eq!(status(&weir, line, fields), expected, "{line} {fields}");
    }
}

#[test]
fn an_exempt_path_of_a_limit_is_open_and_free() {
    let service = Upstream::start();
    let limit = "[[limit]]\nname = \"l\"\nkey = [\"seller\"]\nrate = \"1/h\"\nexcept = { path = [\"/login\", \"/css/{*f}\"] }\n";
    let weir = start(&Weir::config(&service, "", &format!("{}{limit}", identities("reject"))));
    let seller = bearer(&json!({ "sellerId": 7 }));
    for (line, fields, expected) in [
        ("GET /a", "", 401),
        ("GET /login", "", 200),
        ("GET /login", &seller, 200),
        ("GET /css/a/b", "", 200),
        ("GET /css", "", 401),
        ("GET /a", &seller, 200),
        ("GET /a", &seller, 429),
        ("GET /login", &seller, 200),
    ] {
        assert_eq!(status(&weir, line, fields), expected, "{line} {fields}");
    }
}

const FORWARD_AS: &str = "forward_as = { \"X-Seller-Id\" = \"seller\", x-plan = \"plan\", x-device-id = \"device\" }\nunderscores = \"keep\"";

#[test]
fn services_get_verified_identities_and_nothing_of_clients() {
    let service = Upstream::start();
    let weir = start(&Weir::config(&service, FORWARD_AS, &format!("{}{NEVER}", identities("reject"))));
    let gold = bearer(&json!({ "sellerId": 7, "plan": "gold" }));
    let broken = bearer(&json!({ "sellerId": "7\r\nx-admin: 1", "plan": " gold" }));
    let forged =
        "X-Seller-ID: 1\r\nx_seller_id: 1\r\nX.Seller!Id: 1\r\nX-Plan: gold\r\nX_PLAN: gold\r\nx-device-id: 1\r\n";
    let expected = [("x-seller-id", "7"), ("x-plan", "gold"), ("x-device-id", "d")];
    for (fields, found) in [
        (String::new(), &[][..]),
        (forged.to_owned(), &[]),
        (format!("Authorization: Bearer x\r\n{forged}"), &[]),
        (format!("{broken}{forged}"), &[]),
        (format!("{gold}{forged}X-Device: d\r\n"), &expected),
        (format!("Connection: x-seller-id, x-plan\r\n{gold}X-Device: d\r\n"), &expected),
    ] {
        assert_eq!(status(&weir, "GET /", &fields), 200, "{fields}");
        let received = service.received().pop().unwrap();
        let lines = received.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let is_ours = |name: &str| {
            let name = name.to_ascii_lowercase().replace(['_', '.', '!'], "-");
            ["x-seller-id", "x-plan", "x-device-id", "x-admin"].contains(&&*name)
        };
        assert_eq!(lines.filter(|(name, _)| is_ours(name)).collect::<Vec<_>>(), found, "{fields}");
    }
}

/// A client can send any plan in a header.
#[test]
fn services_get_a_plan_in_a_header_from_trusted_proxies_only() {
    for (proxies, expected) in [("[]", None), ("[\"127.0.0.1\"]", Some("gold"))] {
        let service = Upstream::start();
        let server = format!("trusted_proxies = {proxies}\nforward_as = {{ x-plan = \"plan\" }}");
        let rest = format!("[plans]\nfrom = \"header:x-tier\"\n{NEVER}");
        let weir = start(&Weir::config(&service, &server, &rest));
        assert_eq!(status(&weir, "GET /", "X-Tier: gold\r\n"), 200);
        let received = service.received().pop().unwrap();
        assert_eq!((received.header("x-plan").as_deref(), received.header("x-tier")), (expected, Some("gold".into())));
    }
}

/// Weir decides by these fields, so the service gets them as Weir has read them.
#[test]
fn no_option_and_no_trailer_changes_a_field_that_weir_reads() {
    let plain = identities("reject").replace("[plans]\nfrom = \"seller.plan\"", "[plans]\nfrom = \"header:x-tier\"");
    let only_seller = plain.split("[identity.device]").next().unwrap();
    for (identities, reads_all) in [(&*plain, true), (only_seller, false)] {
        let service = Upstream::start();
        let weir = start(&Weir::config(&service, "", &format!("{identities}{NEVER}")));
        let seller = bearer(&json!({ "sellerId": 7 }));
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-device, x-tier, x-sum\r\n\
             Connection: authorization, X-Device, x-tier, x-other, te\r\nTE: trailers\r\n\
             X-Device: d\r\nX-Tier: gold\r\nX-Other: o\r\n{seller}\r\n"
        );
        let body = "1\r\na\r\n0\r\nX-Device: e\r\nX-Tier: free\r\nX-Sum: 1\r\n\r\n";
        assert_eq!(Client::connect(weir.address()).send(format!("{head}{body}")).answer().status, 200);
        let received = service.received().pop().unwrap();
        let found = ["authorization", "x-device", "x-tier", "x-other"].map(|name| received.header(name).is_some());
        assert_eq!(found, [true, reads_all, reads_all, false]);
        assert_eq!(received.trailers.contains("X-Sum"), !reads_all, "{}", received.trailers);
    }
}

#[test]
fn a_trailer_or_http2_field_is_no_identity() {
    let service = Upstream::start();
    let weir = start(&Weir::config(&service, FORWARD_AS, &format!("{}{NEVER}", identities("reject"))));
    let head =
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-seller-id\r\nTE: trailers\r\n\r\n";
    let answer = Client::connect(weir.address()).send(format!("{head}1\r\na\r\n0\r\nX-Seller-Id: 1\r\n\r\n")).answer();
    assert_eq!(answer.status, 200);
    assert_eq!(service.received().pop().unwrap().trailers.trim(), "");
    over_h2(weir.address(), async |mut client, _socket| {
        let head = http::Request::get("http://weir.test/").header("x-seller-id", "1").header("x-device", "d");
        assert_eq!(client.ask(head).await.unwrap().status, 200);
    });
    let received = service.received().pop().unwrap();
    assert_eq!((received.header("x-seller-id"), received.header("x-device-id")), (None, Some("d".to_owned())));
}

#[test]
fn a_trailer_is_no_identity_for_a_service_that_speaks_http2() {
    let (tell, told) = std::sync::mpsc::channel();
    let service = H2Service::start(move |mut call: Call| {
        let tell = tell.clone();
        async move {
            tell.send(call.read().await).unwrap();
            call.say("");
        }
    });
    let text = Weir::text(&format!("{}{}{NEVER}", service.upstream(""), identities("reject")));
    let weir = start(&text.replace("workers = 2", &format!("workers = 2\n{FORWARD_AS}")));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: x-seller-id, x_seller_id\r\n\r\n";
    let body = "3\r\nabc\r\n0\r\nX-Seller-Id: 1\r\nX_Seller_Id: 1\r\n\r\n";
    assert_eq!(Client::connect(weir.address()).send(format!("{head}{body}")).answer().status, 200);
    assert_eq!(told.recv().unwrap(), (b"abc".to_vec(), None));
    over_h2(weir.address(), async |mut client, _| {
        assert_eq!(client.ask_with_trailer(http::Request::post("http://weir.test/")).await.status, 200);
    });
    assert_eq!(told.recv().unwrap(), (b"abc".to_vec(), None));
}
