//! The requests of the page: sessions, forms of this page only, roles, and header fields.

use super::{READER, WRITER, sell, start};
use crate::support::{Answer, Client, NEVER, Upstream, Weir};

/// A request of a browser: further header lines, and the fields of a form.
pub(super) fn ask(weir: &Weir, method: &str, target: &str, lines: &[&str], form: &str) -> Answer {
    let lines = lines.iter().flat_map(|line| [line, "\r\n"]).collect::<String>();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Type: application/x-www-form-urlencoded\r\n\
         Content-Length: {}\r\n\r\n",
        form.len()
    );
    Client::connect(weir.admin()).send(head).send(form).answer()
}

pub(super) const ORIGIN: &str = "Origin: http://localhost";

/// The value of the first CSRF token of a page.
pub(super) fn csrf(page: &Answer) -> String {
    let text = page.text();
    let (_, rest) = text.split_once("name=\"csrf\" value=\"").unwrap_or_else(|| panic!("no form in {text}"));
    rest.split('"').next().unwrap().to_owned()
}

/// Logs in, and returns the header line of the cookie.
pub(super) fn log_in(weir: &Weir, token: &str) -> String {
    let csrf = csrf(&ask(weir, "GET", "/login", &[], ""));
    let answer = ask(weir, "POST", "/login", &[ORIGIN], &format!("csrf={csrf}&token={token}&to=/bans"));
    assert_eq!((answer.status, answer.header("location")), (303, Some("/bans")), "{}", answer.text());
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.starts_with(&format!("weir-{}=", weir.admin().port())), "{cookie}");
    assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
    format!("Cookie: other=1; {}", cookie.split(';').next().unwrap())
}

#[test]
fn pages_need_a_session() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    for path in [
        "/",
        "/limits",
        "/limit?name=sellers",
        "/key",
        "/bans",
        "/overrides",
        "/apikeys",
        "/upstreams",
        "/configuration",
        "/explain",
        "/audit",
    ] {
        let answer = ask(&weir, "GET", path, &[], "");
        let to: String = form_urlencoded::byte_serialize(path.as_bytes()).collect();
        assert_eq!((answer.status, answer.header("location")), (303, Some(&*format!("/login?to={to}"))), "{path}");
    }
    for path in ["/login", "/static/weir.css", "/static/weir.js"] {
        assert_eq!(ask(&weir, "GET", path, &[], "").status, 200, "{path}");
    }
    // The token of the API is no session, and the session is no token of the API.
    let bearer = format!("Authorization: Bearer {WRITER}");
    assert_eq!(ask(&weir, "GET", "/", &[&bearer], "").status, 303);
    let cookie = log_in(&weir, WRITER);
    assert_eq!(ask(&weir, "GET", "/", &[&cookie], "").status, 200);
    assert_eq!(ask(&weir, "GET", "/v1/bans", &[&cookie], "").status, 401);
    assert_eq!(ask(&weir, "GET", "/", &["Cookie: weir=1"], "").status, 303);

    let page = ask(&weir, "GET", "/", &[&cookie], "");
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(page.header(name), Some(value));
    }
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    // A session ends at the logout.
    let form = format!("csrf={}", csrf(&page));
    let answer = ask(&weir, "POST", "/logout", &[ORIGIN, &cookie], &form);
    assert_eq!((answer.status, answer.header("location")), (303, Some("/login?done=out")));
    assert!(answer.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(ask(&weir, "GET", "/", &[&cookie], "").status, 303);
}

#[test]
fn a_form_must_be_of_this_page() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let (cookie, reader) = (log_in(&weir, WRITER), log_in(&weir, READER));
    let csrf_of = |cookie: &str| csrf(&ask(&weir, "GET", "/", &[cookie], ""));
    let (own, of_reader) = (csrf_of(&cookie), csrf_of(&reader));
    let fetch = |site| format!("Sec-Fetch-Site: {site}");
    let (same, cross) = (fetch("same-origin"), fetch("cross-site"));
    let ban = |csrf: &str| format!("csrf={csrf}&address=203.0.113.7&for=forever&reason=row&confirmed=yes");
    for (name, lines, form, status) in [
        ("no origin", &[&*cookie][..], ban(&own), 403),
        ("another origin", &[&cookie, "Origin: http://evil.example"], ban(&own), 403),
        ("another port", &[&cookie, "Origin: http://localhost:1"], ban(&own), 403),
        ("an opaque origin", &[&cookie, "Origin: null"], ban(&own), 403),
        ("another site", &[&cookie, ORIGIN, &cross], ban(&own), 403),
        ("another name of the listener", &[&cookie, ORIGIN, "Host: evil.example"], ban(&own), 403),
        ("no CSRF token", &[&cookie, ORIGIN], ban(""), 403),
        ("the CSRF token of another session", &[&cookie, ORIGIN], ban(&of_reader), 403),
        ("no session", &[ORIGIN], ban(&own), 303),
        ("the role read", &[&reader, ORIGIN], ban(&of_reader), 403),
        ("wrong input", &[&cookie, ORIGIN], ban(&own).replace("203.0.113.7", "203.0.113"), 400),
        ("its own form", &[&cookie, ORIGIN, &same], ban(&own), 303),
    ] {
        let answer = ask(&weir, "POST", "/bans/add", lines, &form);
        assert_eq!(answer.status, status, "{name}: {}", answer.text());
        let location = answer.header("location");
        assert!(status != 303 || ["/login?done=ended", "/bans?done=banned"].contains(&location.unwrap()), "{name}");
        let audit = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap_or_default();
        assert_eq!(audit.lines().count(), usize::from(name == "its own form"), "{name}: {audit}");
    }
    let audit = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap();
    assert!(audit.contains("night-shift") && audit.contains("203.0.113.7") && audit.contains("row"), "{audit}");
    // Texts of clients and operators are escaped.
    for confirmed in ["yes", "no"] {
        let form = format!("csrf={own}&address=%3Cscript%3E&for=1h&confirmed={confirmed}");
        let page = ask(&weir, "POST", "/bans/add", &[&cookie, ORIGIN], &form).text();
        assert!(page.contains("value=\"&#60;script&#62;\"") && !page.contains("<script>"), "{page}");
    }
}

/// Each form of the page, and the action of its line in the audit log; none if it changes nothing.
const FORMS: &[(&str, &str, Option<&str>)] = &[
    ("/key/override", "limit=sellers&key=a&to=20/h&for=1h", Some("override")),
    ("/key/override", "limit=sellers&key=a&action=remove", Some("override")),
    ("/key/charge", "limit=sellers&key=a&units=1", Some("charge")),
    ("/key/charge", "limit=sellers&key=a&units=-1", Some("give_back")),
    ("/key/reset", "limit=sellers&key=a&confirmed=yes", Some("reset")),
    ("/key/ban", "limit=sellers&key=a&for=1h&confirmed=yes", Some("ban")),
    ("/key/lift", "limit=sellers&key=a&confirmed=yes", Some("lift_ban")),
    ("/bans/add", "address=203.0.113.7&forever=yes&confirmed=yes", Some("ban")),
    ("/bans/lift", "address=203.0.113.7&confirmed=yes", Some("lift_ban")),
    ("/bans/lift-all", "limit=sellers&address=&confirmed=yes", Some("lift_bans")),
    ("/bans/lift-all", "limit=&address=203.0.113.0/24&confirmed=yes", Some("lift_bans")),
    ("/limit/reset", "name=sellers&confirmed=yes", Some("reset")),
    ("/overrides/set", "limit=sellers&key=b&to=20/h", Some("override")),
    ("/overrides/remove", "", Some("override")),
    ("/upstreams/weight", "upstream=upstream&endpoint=ENDPOINT&weight=5", Some("weight")),
    ("/upstreams/drain", "upstream=upstream&endpoint=ENDPOINT&force=yes&confirmed=yes", Some("drain")),
    ("/upstreams/undrain", "upstream=upstream&endpoint=ENDPOINT", Some("undrain")),
    ("/configuration/reload", "", Some("reload")),
    // A question before the change.
    ("/upstreams/drain", "upstream=upstream&endpoint=ENDPOINT&force=yes", None),
    ("/key/reset", "limit=sellers&key=a", None),
    ("/key/ban", "limit=sellers&key=a&for=1h", None),
    ("/key/ban", "limit=sellers&key=a&confirmed=yes", None),
    ("/key/lift", "limit=sellers&key=a", None),
    ("/bans/add", "address=203.0.113.7&for=forever", None),
    ("/bans/add", "address=203.0.113.7&for=&confirmed=yes", None),
    ("/bans/lift", "address=203.0.113.7", None),
    ("/bans/lift-all", "limit=sellers&address=", None),
    ("/limit/reset", "name=sellers", None),
    ("/configuration/check", "action=text&text=[", None),
    ("/configuration/check", "action=stored", None),
    ("/explain", "method=GET&path=/api/x&host=shop&ip=203.0.113.7", None),
];

#[test]
fn each_change_of_the_page_has_its_line() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let cookie = log_in(&weir, WRITER);
    let own = csrf(&ask(&weir, "GET", "/", &[&cookie], ""));
    let mut known = 0;
    for (path, fields, action) in FORMS {
        // The page of overrides refers to each by a word.
        let page = ask(&weir, "GET", "/overrides", &[&cookie], "").text();
        let reference = page.split_once("name=\"reference\" value=\"").and_then(|(_, rest)| rest.split('"').next());
        let reference = reference.unwrap_or_default();
        let fields = fields.replace("ENDPOINT", &upstream.address().to_string());
        let form = format!("csrf={own}&reason=night&reference={reference}&{fields}");
        let answer = ask(&weir, "POST", path, &[&cookie, ORIGIN], &form);
        assert_eq!(answer.status, if action.is_some() { 303 } else { 200 }, "{path} {fields}: {}", answer.text());
        let audit = std::fs::read_to_string(weir.folder().join("audit.jsonl")).unwrap_or_default();
        let lines: Vec<serde_json::Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let new: Vec<_> =
            lines[known..].iter().map(|line| [&line["action"], &line["token"], &line["reason"]]).collect();
        let expected: Vec<_> = action.iter().map(|action| [*action, "night-shift", "night"]).collect();
        assert_eq!(new, expected, "{path} {fields}");
        known = lines.len();
    }
}

#[test]
fn the_question_before_many_bans_end_has_their_number() {
    let weir = start(&Upstream::start());
    let cookie = log_in(&weir, WRITER);
    let own = csrf(&ask(&weir, "GET", "/", &[&cookie], ""));
    let send = |path: &str, fields: &str| ask(&weir, "POST", path, &[&cookie, ORIGIN], &format!("csrf={own}&{fields}"));
    for target in ["address=203.0.113.7", "address=203.0.113.128/25", "address=198.51.100.1", "limit=sellers&key=a"] {
        assert_eq!(send("/bans/add", &format!("{target}&for=1h&confirmed=yes")).status, 303, "{target}");
    }
    for (fields, title) in [
        ("limit=&address=203.0.113.0/24", "Lift all 2 bans of addresses within 203.0.113.0/24?"),
        ("limit=&address=192.0.2.0/24", "Lift all 0 bans of addresses within 192.0.2.0/24?"),
        ("limit=sellers&address=", "Lift the one ban of the limit sellers?"),
    ] {
        let page = send("/bans/lift-all", fields).text();
        assert!(page.contains(title), "{fields}: {page}");
    }
}

#[test]
fn failed_logins_are_bounded() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let csrf = csrf(&ask(&weir, "GET", "/login", &[], ""));
    let try_token = |token: &str| ask(&weir, "POST", "/login", &[ORIGIN], &format!("csrf={csrf}&token={token}")).status;
    assert_eq!(try_token(WRITER), 303);
    let statuses: Vec<_> = (0..12).map(|_| try_token("0123456789abcdef-wrong")).collect();
    assert_eq!(statuses, [[403; 10].as_slice(), &[429; 2]].concat());
    weir.wait_for_line("a login of the web page failed");
    // Behind a proxy all operators have one address, so failures of one must not keep the others out.
    assert_eq!(try_token(WRITER), 303);
    assert_eq!(try_token("0123456789abcdef-wrong"), 429);
}

/// A value of `match.header` may be a credential. `/v1/config` masks it, too.
#[test]
fn values_of_headers_are_not_shown() {
    let upstream = Upstream::start();
    let matched = "match = { header = { x-internal-token = \"hunter2\", x-any = \"*\" } }";
    let weir = Weir::start(&upstream, &format!("[[limit]]\nname = \"inner\"\nkey = []\nrate = \"3/h\"\n{matched}\n"));
    for path in ["/", "/limits", "/limit?name=inner", "/v1/config"] {
        let page = ask(&weir, "GET", path, &[], "");
        assert!(page.status == 200 && !page.text().contains("hunter2"), "{path}: {}", page.text());
    }
    let page = ask(&weir, "GET", "/limits", &[], "").text();
    assert!(page.contains("x-any") && page.contains("x-internal-token: (a fixed value)"), "{page}");
}

/// A list of keys names some by their id only.
#[test]
fn a_key_is_changed_by_its_id() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let cookie = log_in(&weir, WRITER);
    let status = || sell(&weir, "abc").status;
    assert_eq!([status(), status(), status(), status()], [200, 200, 200, 429]);
    let page = ask(&weir, "GET", "/limit?name=sellers", &[&cookie], "").text();
    let id = page.split_once("sellers&#38;id=").unwrap().1.split_once('"').unwrap().0.to_owned();
    let csrf = csrf(&ask(&weir, "GET", "/", &[&cookie], ""));
    let change = |path: &str, fields: &str| {
        let form = format!("csrf={csrf}&limit=sellers&{fields}");
        let answer = ask(&weir, "POST", path, &[ORIGIN, &cookie], &form);
        (answer.status, answer.header("location").unwrap_or_default().to_owned())
    };
    let by_id = |done: &str| (303, format!("/key?limit=sellers&id={id}&done={done}"));
    assert_eq!(change("/key/override", &format!("id={id}&to=20/h&action=set")), by_id("override"));
    assert_eq!(status(), 200);
    let file = std::fs::read_to_string(weir.folder().join("overrides.toml")).unwrap();
    assert!(file.contains(&format!("\"#{id}\" = \"20/h\"")), "{file}");
    assert!(ask(&weir, "GET", "/overrides", &[&cookie], "").text().contains(&format!("#{id}")));
    // The text of the key names the same override.
    assert_eq!(change("/key/override", "key=abc&action=remove").0, 303);
    assert!(!std::fs::read_to_string(weir.folder().join("overrides.toml")).unwrap().contains(&id));
    assert_eq!(change("/key/ban", &format!("id={id}&for=1h&confirmed=yes")), by_id("banned_not_kept"));
    assert_eq!(status(), 403);
    assert_eq!(change("/key/lift", &format!("id={id}&confirmed=yes")), by_id("lifted"));
    assert_eq!(change("/key/reset", &format!("id={id}&confirmed=yes")), by_id("reset"));
    assert_eq!(change("/key/charge", "key=abc&units=3&reason=export").1, "/key?limit=sellers&key=abc&done=charged");
    assert_eq!(status(), 429);
    assert_eq!(change("/key/charge", "key=abc&units=-3").1, "/key?limit=sellers&key=abc&done=charged");
    assert_eq!((status(), change("/key/charge", "key=abc&units=some").0), (200, 400));
}

/// The first look at a key opens a tap. Four keys are followed at most.
#[test]
fn the_page_of_a_key_shows_requests_since_the_first_look() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let cookie = log_in(&weir, READER);
    let look = |seller: &str| ask(&weir, "GET", &format!("/key?limit=sellers&key={seller}"), &[&cookie], "").text();
    let bearer = format!("Authorization: Bearer {READER}");
    let has_taps = |count: usize| {
        let metrics = ask(&weir, "GET", "/metrics", &[&bearer], "").text();
        metrics.lines().any(|line| line == format!("weir_taps {count}"))
    };
    sell(&weir, "abc");
    assert!(has_taps(0));
    assert!(look("abc").contains("0 requests of this key ended"));
    weir.wait_for("a request of the key", || {
        sell(&weir, "abc");
        look("abc").contains("GET shop/api/x").then_some(())
    });
    weir.wait_for("at most four taps", || {
        let first = ["a", "b", "c", "d", "e"].map(look);
        assert!(first.iter().all(|page| page.contains("0 requests of this key ended")));
        has_taps(4).then_some(())
    });
}

/// Without tokens every program of this machine may use the API, and the page needs no login.
#[test]
fn without_tokens_there_is_no_login() {
    let upstream = Upstream::start();
    let weir = Weir::start(&upstream, NEVER);
    let page = ask(&weir, "GET", "/bans", &[], "");
    assert_eq!((page.status, page.text().contains("Log out")), (200, false));
    let form = format!("csrf={}&address=203.0.113.7&for=1h&confirmed=yes", csrf(&page));
    assert_eq!(ask(&weir, "POST", "/bans/add", &["Origin: http://evil.example"], &form).status, 403);
    assert_eq!(ask(&weir, "POST", "/bans/add", &[ORIGIN], "address=203.0.113.7").status, 403);
    assert_eq!(ask(&weir, "POST", "/bans/add", &[ORIGIN], &form).status, 303);
    assert!(ask(&weir, "GET", "/bans", &[], "").text().contains("203.0.113.7"));
    let answer = ask(&weir, "GET", "/login", &[], "");
    assert_eq!((answer.status, answer.header("location")), (303, Some("/")));
    assert_eq!(ask(&weir, "GET", "/", &["Host: evil.example"], "").status, 403);
    assert_eq!(ask(&weir, "GET", "/limit?name=none", &[], "").status, 404);
}

/// The page of a limit lists many keys by pages of 50, with a search; keys with a name are first.
#[test]
fn thousands_of_keys_are_listed_by_pages() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let cookie = log_in(&weir, WRITER);
    let charge = |seller: usize| {
        format!(r#"{{"limit":"sellers","key":{{"seller":"s{}"}},"units":{}}}"#, 1000 + seller, seller % 50 + 3)
    };
    for part in 0..3 {
        let charges = (part * 400..part * 400 + 400).map(charge).collect::<Vec<_>>().join(",");
        let head = format!(
            "POST /v1/spend HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {WRITER}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            charges.len() + 2
        );
        assert_eq!(Client::connect(weir.admin()).send(head).send(format!("[{charges}]")).answer().status, 200);
    }
    // A refused key has a name.
    assert_eq!(sell(&weir, "s1007").status, 429);
    let look = |query: &str| ask(&weir, "GET", &format!("/limit?name=sellers{query}"), &[&cookie], "").text();
    let first_row = |page: &str| {
        let (_, rest) = page.split_once("<tbody>").unwrap_or_else(|| panic!("no rows in {page}"));
        rest.split("</a>").next().unwrap().rsplit('>').next().unwrap().to_owned()
    };
    for (query, rows, links) in [
        ("", "1 to 50 of 1200", ["page=2", "-"]),
        ("&page=2&sort=wait", "51 to 100 of 1200", ["sort=wait&#38;page=3", "sort=wait&#38;page=1"]),
        ("&page=20", "951 to 1000 of 1200", ["page=19", "A search finds the others."]),
        ("&search=S1..", "1 to 1 of 1", ["s1..", "-"]),
    ] {
        let page = look(query);
        assert!(page.contains(rows), "{query}: {page}");
        assert!(links.iter().all(|link| *link == "-" || page.contains(link)), "{query}: {page}");
        let is_named = first_row(&page).starts_with("s1..");
        assert_eq!(is_named, !query.contains("page"), "{query}: {page}");
    }
    assert!(look("&search=none").contains("No such key is limited now."));
    // Bans and overrides have pages and a search, too.
    let csrf = csrf(&ask(&weir, "GET", "/bans", &[&cookie], ""));
    for number in 0..51 {
        let form = format!("csrf={csrf}&confirmed=yes&for=1h&address=203.0.113.{number}&reason=scraper");
        assert_eq!(ask(&weir, "POST", "/bans/add", &[ORIGIN, &cookie], &form).status, 303);
    }
    let bans = |query: &str| ask(&weir, "GET", &format!("/bans{query}"), &[&cookie], "").text();
    assert!(bans("").contains("1 to 50 of 51") && bans("?page=2").contains("51 to 51 of 51"));
    assert!(bans("?search=113.50").contains("1 to 1 of 1") && bans("?search=none").contains("No ban has this text."));
}
