//! An operator with a browser.

use super::browser::Browser;
use super::{READER, WRITER, sell, start};
use crate::support::{Cert, NEVER, Upstream, Weir};

fn url(weir: &Weir, path: &str) -> String {
    format!("http://{}{path}", weir.admin())
}

fn log_in(browser: &Browser, weir: &Weir, token: &str) {
    browser.go(&url(weir, "/"));
    browser.fill("#token", token);
    browser.click("main button");
}

/// Everything that an operator does works without scripts.
#[test]
fn an_operator_reads_and_changes_keys() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let browser = Browser::start(false);
    log_in(&browser, &weir, "0123456789abcdef-wrong");
    browser.wait_for("This is not a token of this listener.");
    browser.fill("#token", WRITER);
    browser.click("main button");
    browser.wait_for("night-shift");
    assert_eq!(browser.path(), "/");

    for _ in 0..4 {
        sell(&weir, "abc");
    }
    browser.go(&url(&weir, "/"));
    browser.click("a[href='/limit?name=sellers']");
    browser.wait_for("/api/{*rest}");
    browser.wait_for("1 to 1 of 1");
    browser.fill("#key", "abc");
    browser.click("form[role=search] button");
    browser.wait_for("Refused by 3/h, token bucket");

    open(&browser, "/key/override");
    browser.fill("#to", "20 a fortnight");
    browser.click("button[value=set]");
    browser.wait_for("Nothing was changed.");
    // The form is open, with the entered text.
    assert_eq!(browser.value("#to"), "20 a fortnight");
    browser.fill("#to", "20/h");
    browser.fill("#override-reason", "asked by support");
    browser.click("button[value=set]");
    browser.wait_for("The override is in force.");
    browser.wait_for("override set at run time");
    assert_eq!(sell(&weir, "abc").status, 200);

    open(&browser, "/key/ban");
    browser.fill("#ban-for", "soon");
    browser.click("form[action='/key/ban'] button");
    browser.wait_for("expected a duration");
    browser.fill("#ban-for", "1h");
    browser.click("form[action='/key/ban'] button");
    browser.wait_for("for 1h?");
    assert_eq!(sell(&weir, "abc").status, 200);
    browser.click("main button.danger");
    browser.wait_for("The ban is in force.");
    browser.wait_for("Banned until");
    assert_eq!(sell(&weir, "abc").status, 403);
    browser.go(&url(&weir, "/bans"));
    browser.click("form[action='/bans/lift'] button");
    browser.wait_for("Lift the ban of seller a");
    browser.click("main button.danger");
    browser.wait_for("The ban was lifted.");
    browser.wait_for("There are no bans.");

    leave(&weir, &browser);
}

/// Opens the form of an action.
fn open(browser: &Browser, action: &str) {
    browser.click(&format!("details:has(form[action='{action}']) summary"));
}

/// Removes the override, resets the key, explains a request, reads the audit log, and logs out.
fn leave(weir: &Weir, browser: &Browser) {
    browser.go(&url(weir, "/overrides"));
    browser.click("form[action='/overrides/remove'] button");
    browser.wait_for("The override was removed.");

    browser.go(&url(weir, "/key?limit=sellers&key=abc"));
    open(browser, "/key/reset");
    browser.click("form[action='/key/reset'] button");
    browser.wait_for("Reset the key seller a");
    browser.click("main button.danger");
    browser.wait_for("The key has all its units again.");
    assert_eq!(sell(weir, "abc").status, 200);

    browser.go(&url(weir, "/explain"));
    browser.fill("#path", "/api/x");
    browser.fill("#host", "shop");
    browser.fill("#ip", "192.0.2.1");
    browser.fill("#headers", "x-seller: abc");
    browser.click("main form button");
    browser.wait_for("no limit refuses it");
    browser.fill("#headers", "");
    browser.fill("#identities", "seller: xyz");
    browser.click("main form button");
    browser.wait_for("seller x..");

    browser.go(&url(weir, "/audit"));
    browser.wait_for("asked by support");
    browser.wait_for("night-shift");
    browser.click("form[action='/logout'] button");
    browser.wait_for("You have logged out.");
    browser.go(&url(weir, "/bans"));
    browser.wait_for("Log in to Weir");
}

#[test]
fn a_session_ends_with_its_token_and_a_reader_changes_nothing() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let browser = Browser::start(true);
    log_in(&browser, &weir, READER);
    browser.wait_for("read only");
    for path in ["/key?limit=sellers&key=abc", "/bans", "/overrides"] {
        browser.go(&url(&weir, path));
        browser.wait_for("read only");
        assert!(!browser.has("main form[method=post]"), "{path}");
    }
    browser.go(&url(&weir, "/explain"));
    std::fs::write(weir.folder().join("read.token"), "0123456789abcdef-newer").unwrap();
    weir.wait_for_line("reloaded");
    browser.fill("#host", "shop");
    browser.fill("#ip", "192.0.2.1");
    browser.click("main form button");
    browser.wait_for("The session has ended. Nothing was changed.");
}

#[test]
fn an_operator_checks_and_reloads_the_configuration() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let browser = Browser::start(false);
    log_in(&browser, &weir, WRITER);
    browser.wait_for("night-shift");
    browser.click("nav a[href='/configuration']");
    browser.wait_for("Not reloaded since the start.");
    browser.click("button[value=file]");
    browser.wait_for("1 limit. Nothing was put in force.");
    browser.fill("#text", "[server]\nlisten = 7\n");
    browser.click("button[value=text]");
    browser.wait_for("text:2:10");
    let config = std::fs::read_to_string(weir.config_file()).unwrap();
    std::fs::write(weir.config_file(), config.replace("3/h", "three an hour")).unwrap();
    browser.click("button[value=file]");
    browser.wait_for("| rate = \"three an hour\"");
    browser.fill("#reason", "asked by support");
    browser.click("form[action='/configuration/reload'] button");
    browser.wait_for("Nothing was changed. The earlier configuration stays in force.");
    assert_eq!(browser.value("#reason"), "asked by support");
    std::fs::write(weir.config_file(), config).unwrap();
    browser.click("form[action='/configuration/reload'] button");
    browser.wait_for("The configuration was read, and is in force.");
    browser.fill("#path", "limit.sellers.rate");
    browser.click("form[role=search] button");
    browser.wait_for("weir.toml:");
    browser.go(&url(&weir, "/audit"));
    browser.wait_for("asked by support");
}

/// With scripts the requests of a key come by themselves, without them when the page is loaded anew.
#[test]
fn the_page_of_a_key_shows_its_requests_as_they_end() {
    let browser = Browser::start(true);
    for runs_scripts in [true, false] {
        browser.run_scripts(runs_scripts);
        let upstream = Upstream::start();
        let weir = start(&upstream);
        log_in(&browser, &weir, READER);
        browser.wait_for("grafana");
        browser.go(&url(&weir, "/key?limit=sellers&key=abc"));
        browser.wait_for("0 requests of this key ended since");
        sell(&weir, "abc");
        if runs_scripts {
            browser.wait_for("1 request of this key ended since");
        } else {
            weir.wait_for("the request on the page", || {
                browser.click("#requests a[href^='/key']");
                browser.text().contains("1 request of this key ended since").then_some(())
            });
        }
        browser.wait_for("GET shop/api/x");
        assert_eq!(browser.run(FAULTS), serde_json::json!([]));
    }
}

/// A page on another port is the same site, so the browser sends the cookie with its form.
#[test]
fn a_form_of_another_page_changes_nothing() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let form = format!(
        "<form method=post action='http://{}/bans/add'><input name=address value=203.0.113.7><button>Win</button></form>",
        weir.admin()
    );
    let answer = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{form}", form.len());
    let foreign = Upstream::saying(&answer);
    let browser = Browser::start(true);
    log_in(&browser, &weir, WRITER);
    browser.wait_for("night-shift");
    browser.go(&format!("http://{}/", foreign.address()));
    browser.click("button");
    browser.wait_for("This form is not of this page, so it was refused.");
    browser.go(&url(&weir, "/bans"));
    browser.wait_for("There are no bans.");
}

/// Over TLS the cookie is of this host alone, and never sent in clear.
#[test]
fn over_tls_the_cookie_is_secure() {
    let upstream = Upstream::start();
    let folder = tempfile::tempdir().unwrap();
    Cert::of_hosts(&["localhost"]).write(folder.path(), "own");
    std::fs::write(folder.path().join("write.token"), WRITER).unwrap();
    let tls = "[admin.tls]\ncertificates = [{ cert = \"own.pem\", key = \"own.key\" }]\n";
    let config = Weir::config(&upstream, "", &format!("{tls}{NEVER}"));
    let config = config.replacen("[admin]\n", "[admin]\ntoken = { file = \"write.token\" }\n", 1);
    std::fs::write(folder.path().join("weir.toml"), config).unwrap();
    let weir = Weir::start_in(folder);
    let port = weir.admin().port();
    let browser = Browser::start(true);
    browser.go(&format!("https://localhost:{port}/bans"));
    browser.fill("#token", WRITER);
    browser.click("main button");
    browser.wait_for("There are no bans.");
    let cookies = browser.cookies();
    let of_session = &cookies[0];
    assert_eq!(of_session["name"], format!("__Host-weir-{port}"), "{cookies}");
    assert_eq!((&of_session["secure"], &of_session["httpOnly"]), (&true.into(), &true.into()), "{cookies}");
    assert_eq!((&of_session["sameSite"], &of_session["path"]), (&"Strict".into(), &"/".into()), "{cookies}");
    assert_eq!(cookies.as_array().map(Vec::len), Some(1));
    browser.fill("#address", "203.0.113.7");
    browser.click("form[action='/bans/add'] button");
    browser.wait_for("For how long is 203.0.113.7 banned?");
    browser.click("button[name=forever]");
    browser.wait_for("The ban is in force.");
    browser.wait_for("for good");
}

/// The bounds of an element within the window, in pixels.
const EDGES: &str = "const edges = (selector) => document.querySelector(selector).getBoundingClientRect();";

/// The sentence about a key is first, then the actions, and then its requests. The actions are on the first screen.
#[test]
fn the_actions_of_a_key_are_on_the_first_screen() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let browser = Browser::start(true);
    browser.go(&url(&weir, "/login"));
    log_in(&browser, &weir, WRITER);
    for size in [(1280, 800), (390, 844)] {
        browser.resize(size);
        browser.go(&url(&weir, "/key?limit=sellers&key=abc"));
        for _ in 0..10 {
            sell(&weir, "abc");
        }
        browser.wait_for("Refused by 3/h, token bucket");
        browser.wait_for("refused");
        let script = format!(
            "{EDGES} window.scrollTo(0, 0);
             return [edges('#verdict').bottom <= edges('.actions').top, edges('.actions').bottom <= {},
                     edges('.actions').bottom <= edges('#requests').top];",
            size.1
        );
        assert_eq!(browser.run(&script), serde_json::json!([true, true, true]), "{size:?}");
        // The requests of one second are below its instant, each with its milliseconds.
        let grouped = "return [...document.querySelectorAll('#requests tbody')].every((second) =>
            /:\\d\\d UTC/.test(second.rows[0].textContent) && /^\\.\\d{3}$/.test(second.rows[1].cells[0].textContent))";
        assert_eq!(browser.run(grouped), true, "{}", browser.text());
    }
}

/// The pages with their content.
const PAGES: &[(&str, &str)] = &[
    ("/", "Most refused keys"),
    ("/limits", "/api/{*rest}"),
    ("/limit?name=sellers", "Limited now"),
    ("/key?limit=sellers&key=abc", "Recent decisions"),
    ("/bans", "There are no bans."),
    ("/overrides", "Overrides and plans"),
    ("/apikeys", "API keys"),
    ("/upstreams", "requests wait for a connection"),
    ("/configuration", "Options in force"),
    ("/explain", "What Weir would decide"),
    ("/audit", "There is no change yet."),
];

/// Records the waits that a page asks for, in milliseconds, because a busy machine makes them longer. A page then has to
/// wait only for a part of them.
const RECORD_WAITS: &str = "
    [window.ticks, window.timeouts] = [[], []];
    const [later, timeout] = [window.setTimeout, AbortSignal.timeout];
    window.setTimeout = (run, ms) => { window.ticks.push(ms); return later(run, ms / 5); };
    AbortSignal.timeout = (ms) => { window.timeouts.push(ms); return timeout.call(AbortSignal, ms / 2); };";

/// Each page says that Weir does not answer, or that the session has ended. It waits for less than three seconds.
#[test]
fn each_page_says_that_the_connection_or_the_session_is_lost() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    let browser = Browser::start(true);
    browser.prepend(RECORD_WAITS);
    for (path, content) in PAGES {
        log_in(&browser, &weir, READER);
        browser.wait_for("grafana");
        browser.go(&url(&weir, path));
        browser.wait_for(content);
        let is_live = ["/", "/limit?name=sellers", "/key?limit=sellers&key=abc"].contains(path);
        let is_answered = || browser.wait_for(if is_live { "live" } else { "connected" });
        is_answered();
        weir.signal("STOP");
        browser.wait_for("Weir does not answer.");
        weir.signal("CONT");
        let waits = browser.run("return Math.max(...ticks) + Math.max(...timeouts)");
        assert!(waits.as_f64().is_some_and(|ms| (1000.0..3000.0).contains(&ms)), "{path}: {waits}");
        is_answered();
        browser.run(
            "const csrf = document.querySelector('[name=csrf]').value;
            return fetch('/logout', { method: 'POST', body: new URLSearchParams({ csrf }) }).then(() => null)",
        );
        browser.wait_for("The session has ended.");
    }
}

/// The names of inputs, the structure and the width of each page. An operator reaches the content by keys alone.
#[test]
fn pages_are_accessible() {
    let upstream = Upstream::start();
    let weir = start(&upstream);
    sell(&weir, "abc");
    let browser = Browser::start(true);
    browser.resize((360, 740));
    browser.go(&url(&weir, "/login"));
    for (path, ready) in [("/login", "Log in to Weir")].iter().chain(PAGES) {
        if *path != "/login" {
            browser.go(&url(&weir, path));
        }
        browser.wait_for(ready);
        for faults in [FAULTS, CUT] {
            assert_eq!(browser.run(faults), serde_json::json!([]), "{path}");
        }
        if *path == "/login" {
            browser.fill("#token", WRITER);
            browser.press(&["\u{E007}"]);
            browser.wait_for("night-shift");
        }
    }
    // The first stop of the tabulator key leads to the content.
    browser.go(&url(&weir, "/limits"));
    browser.press(&["\u{E004}", "\u{E007}"]);
    assert_eq!(browser.run("return document.activeElement.id"), "main");
    assert_eq!(browser.path(), "/limits#main");
}

/// Collects what a narrow window cuts: cells of tables beyond its edge. The menu has one line.
const CUT: &str = r#"
const cut = [...document.querySelectorAll("th, td")].filter((cell) =>
  cell.getBoundingClientRect().right > document.documentElement.clientWidth).map((cell) => cell.outerHTML);
const tops = [...document.querySelectorAll("header nav a")].map((link) => link.getBoundingClientRect().top);
return new Set(tops).size > 1 ? [...cut, "menu"] : cut;
"#;

/// Collects what is wrong with a page.
const FAULTS: &str = r#"
const faults = [];
const all = (selector) => [...document.querySelectorAll(selector)];
for (const input of all("input:not([type=hidden]), select, textarea")) {
  if (!input.labels.length) faults.push("no label: " + input.name);
}
for (const button of all("button, a")) {
  if (!button.textContent.trim() && !button.ariaLabel) faults.push("no name: " + button.outerHTML);
}
if (all("h1").length !== 1 || all("main").length !== 1) faults.push("not one h1 and one main");
for (const header of all("th")) if (!header.scope) faults.push("no scope: " + header.textContent);
const ids = all("[id]").map((element) => element.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push("twice: " + id);
for (const element of all("[aria-labelledby], [aria-describedby]")) {
  const names = [element.getAttribute("aria-labelledby"), element.getAttribute("aria-describedby")];
  for (const id of names.filter(Boolean).join(" ").split(" ")) if (!ids.includes(id)) faults.push("no id: " + id);
}
if (all("[style], style, script:not([src])").length) faults.push("inline");
const root = document.documentElement;
if (!root.lang) faults.push("no language");
if (root.scrollWidth > root.clientWidth) faults.push("wider than the window: " + root.scrollWidth);
return faults;
"#;
