//! A headless Chromium, driven by chromedriver over `WebDriver` (JSON over HTTP).

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Client, PATIENCE, installed};

/// The start of a browser takes far longer than any request.
const START_PATIENCE: Duration = Duration::from_mins(2);
/// Attempts to start the driver.
const STARTS_MAX: u32 = 5;
/// The name of an element's id (`WebDriver`, section 12).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser; ended on drop with all its processes.
pub(super) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

impl Browser {
    /// Starts a browser that runs scripts, or does not.
    pub(super) fn start(runs_scripts: bool) -> Self {
        let (driver, port) = (0..STARTS_MAX).find_map(|_| start_driver()).expect("chromedriver ends at its start");
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut browser = Self { driver, address, session: String::new() };
        let args =
            ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--window-size=1280,900"];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome", "acceptInsecureCerts": true,
            "goog:chromeOptions": { "args": args, "binary": installed("chromium-headless-shell") },
        } } });
        let session = browser.ask("POST", "/session", &wanted);
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        browser.run_scripts(runs_scripts);
        browser
    }

    /// Runs the scripts of later pages, or does not.
    pub(super) fn run_scripts(&self, runs_scripts: bool) {
        let command = json!({ "cmd": "Emulation.setScriptExecutionDisabled", "params": { "value": !runs_scripts } });
        self.tell("/goog/cdp/execute", &command);
    }

    /// Loads a page.
    pub(super) fn go(&self, url: &str) {
        self.tell("/url", &json!({ "url": url }));
    }

    /// The path and the query of the page.
    pub(super) fn path(&self) -> String {
        let url = self.ask("GET", &format!("{}/url", self.session), &Value::Null);
        let url = url.as_str().unwrap();
        url.splitn(4, '/').nth(3).map_or_else(|| url.to_owned(), |rest| format!("/{rest}"))
    }

    /// The visible text of the page.
    pub(super) fn text(&self) -> String {
        self.element("body").map(|body| self.of(&body, "text")).unwrap_or_default()
    }

    /// Waits until the visible text of the page contains `words`.
    #[track_caller]
    pub(super) fn wait_for(&self, words: &str) {
        let began = Instant::now();
        while !self.text().contains(words) {
            let waited = began.elapsed();
            assert!(waited < PATIENCE, "no {words:?} at {}: {}", self.path(), self.text());
            std::thread::park_timeout((waited / 4).clamp(Duration::from_millis(20), Duration::from_millis(250)));
        }
    }

    /// The cookies that the browser sends with the page.
    pub(super) fn cookies(&self) -> Value {
        self.ask("GET", &format!("{}/cookie", self.session), &Value::Null)
    }

    /// Whether the page has an element of this CSS selector.
    pub(super) fn has(&self, selector: &str) -> bool {
        self.element(selector).is_some()
    }

    /// The value of an input.
    #[track_caller]
    pub(super) fn value(&self, selector: &str) -> String {
        let element = self.element(selector).unwrap_or_else(|| panic!("no {selector}"));
        self.of(&element, "property/value")
    }

    /// Replaces the text of an input.
    #[track_caller]
    pub(super) fn fill(&self, selector: &str, text: &str) {
        let element = self.element(selector).unwrap_or_else(|| panic!("no {selector} in {}", self.text()));
        self.tell(&format!("/element/{element}/clear"), &json!({}));
        self.tell(&format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Clicks an element.
    #[track_caller]
    pub(super) fn click(&self, selector: &str) {
        let element = self.element(selector).unwrap_or_else(|| panic!("no {selector} in {}", self.text()));
        self.tell(&format!("/element/{element}/click"), &json!({}));
    }

    /// The result of a script.
    pub(super) fn run(&self, script: &str) -> Value {
        self.tell("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script in each page that is loaded from now on, before the page's own.
    pub(super) fn prepend(&self, script: &str) {
        let command = json!({ "cmd": "Page.addScriptToEvaluateOnNewDocument", "params": { "source": script } });
        self.tell("/goog/cdp/execute", &command);
    }

    /// Sets the width and the height of the window.
    pub(super) fn resize(&self, (width, height): (u32, u32)) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.tell("/goog/cdp/execute", &json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": metrics }));
    }

    /// Sends keys to the focused element.
    pub(super) fn press(&self, keys: &[&str]) {
        let down_up =
            |key: &&str| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })];
        let actions: Vec<_> = keys.iter().flat_map(down_up).collect();
        self.tell("/actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    fn element(&self, selector: &str) -> Option<String> {
        let wanted = json!({ "using": "css selector", "value": selector });
        let found = self.try_ask("POST", &format!("{}/elements", self.session), &wanted).ok()?;
        Some(found.get(0)?[ELEMENT].as_str()?.to_owned())
    }

    /// A property of an element; empty if the page has changed in between.
    fn of(&self, element: &str, property: &str) -> String {
        let answer = self.try_ask("GET", &format!("{}/element/{element}/{property}", self.session), &Value::Null);
        answer.ok().and_then(|value| value.as_str().map(ToOwned::to_owned)).unwrap_or_default()
    }

    fn tell(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("{}{path}", self.session), body)
    }

    /// Sends a command, and returns its value.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Sends a command. Errs with the driver's description of the problem.
    fn try_ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut client = Client::connect(self.address);
        client.stream().set_read_timeout(Some(START_PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = client.send(head).send(body).answer();
        let mut answered: Value = serde_json::from_slice(&answer.body).unwrap();
        let value = answered["value"].take();
        if answer.status == 200 { Ok(value) } else { Err(value) }
    }
}

/// Starts the driver. Returns its port; `None` if it ended, because another process took the port that it chose.
fn start_driver() -> Option<(Child, u16)> {
    let mut command = Command::new(installed("chromedriver"));
    command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let mut driver = command.spawn().unwrap();
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim().trim_end_matches('.').parse().ok()
    });
    if port.is_none() {
        let _ = driver.wait();
    }
    // The driver must not wait for a reader of its output.
    std::thread::spawn(move || lines.for_each(drop));
    Some((driver, port?))
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver leads a group of its own, with the browser in it.
        let group = format!("-{}", self.driver.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.driver.wait();
    }
}
