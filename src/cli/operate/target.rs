//! The Weir that a command asks, a request of its API, and the texts of its answer.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use http::{Method, Request, StatusCode, header};
use serde_json::Value;

use crate::app::exchange::Streamed;
use crate::cli::ask::{AdminAddress, Credentials, ask, body_of, follow, json_of, refusal};
use crate::cli::output::{Exit, fail, failed, invalid, say};
use crate::config::{self, Origin};
use crate::transport::net::ListenAddress;

/// The Weir that is asked, and the form of its answer.
#[derive(Debug, Args)]
pub(in crate::cli) struct Target {
    /// The admin listener: a host and a port, a URL, or `unix:` and a path. The default is that of --config, then the
    /// environment variable `WEIR_ADMIN`, then 127.0.0.1:9901.
    #[arg(long, value_name = "URL")]
    pub(super) admin: Option<AdminAddress>,
    /// The configuration file that names the admin listener.
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) credentials: Credentials,
    /// Print JSON, also on a terminal.
    #[arg(long)]
    pub(super) json: bool,
}

/// The terms of an override or a plan.
#[derive(Debug, Args)]
pub(super) struct TermArgs {
    /// The length, such as `10min` or `24h`, after which it ends by itself; without it, it holds until it is removed.
    #[arg(long = "for", value_name = "TIME")]
    pub(super) length: Option<String>,
    /// Let it drop windows of a limit with several rates.
    #[arg(long)]
    pub(super) replace: bool,
}

/// A request of the API.
pub(super) struct ApiRequest {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) query: Vec<(&'static str, String)>,
    /// The media type and the bytes; `None` for a request without a body.
    pub(super) body: Option<(&'static str, Vec<u8>)>,
}

impl ApiRequest {
    pub(super) fn query(method: Method, path: &'static str, query: Vec<(&'static str, Option<String>)>) -> Self {
        let query = query.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        Self { method, path, query, body: None }
    }

    pub(super) fn post(path: &'static str, body: &Value) -> Self {
        let body = Some(("application/json", body.to_string().into_bytes()));
        Self { method: Method::POST, path, query: Vec::new(), body }
    }

    /// Posts a configuration, with one parameter.
    pub(super) fn toml(path: &'static str, parameter: (&'static str, String), text: String) -> Self {
        let body = Some(("application/toml", text.into_bytes()));
        Self { method: Method::POST, path, query: vec![parameter], body }
    }
}

/// A key as JSON: an object if the text is one, else the text.
pub(super) fn key_of(text: &str) -> Value {
    json_or_text(text, Value::is_object)
}

pub(super) fn json_or_text(text: &str, is_json: impl Fn(&Value) -> bool) -> Value {
    serde_json::from_str(text).ok().filter(is_json).unwrap_or_else(|| Value::from(text))
}

/// The bound on the time of the admin listener.
const AT_MOST: Duration = Duration::from_secs(15);

impl Target {
    /// Sends a request, and prints the answer: with `show` on a terminal, else as JSON.
    pub(super) fn run(self, asked: ApiRequest, show: impl Fn(&Value) -> String) -> Exit {
        self.run_with_code(asked, show, |_| ExitCode::SUCCESS)
    }

    /// Sends a request, and prints the answer, which has an exit code.
    pub(super) fn run_with_code(
        self,
        asked: ApiRequest,
        show: impl Fn(&Value) -> String,
        code: impl Fn(&Value) -> ExitCode,
    ) -> Exit {
        let admin = self.address()?;
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(&asked.query).finish();
        let target = if query.is_empty() { asked.path.to_owned() } else { format!("{}?{query}", asked.path) };
        let head = Request::builder().method(asked.method).uri(target);
        let (head, body) = match asked.body {
            None => (head, Vec::new()),
            Some((kind, body)) => (head.header(header::CONTENT_TYPE, kind), body),
        };
        let answer = ask(&admin, &self.credentials, head, body, AT_MOST).map_err(failed)?;
        let answer = json_of(&admin, &answer).map_err(failed)?;
        let said = if self.wants_json() { say(&format_args!("{answer:#}")) } else { say(&show(&answer)) };
        said?;
        Ok(code(&answer))
    }

    /// Prints the text that answers a GET for `path`.
    pub(super) fn print(self, path: &'static str) -> Exit {
        let admin = self.address()?;
        let answered = ask(&admin, &self.credentials, Request::get(path), Vec::new(), AT_MOST);
        let answer = answered.map_err(failed)?;
        say(&String::from_utf8_lossy(body_of(&admin, &answer).map_err(failed)?).trim_end())
    }

    /// The JSON that answers a GET for `path` at `admin`; `None` if the path does not exist.
    ///
    /// # Errors
    /// The problem as a message for the user.
    pub(super) fn get(&self, admin: &AdminAddress, path: &str) -> Result<Option<Value>, String> {
        let answered = ask(admin, &self.credentials, Request::get(path), Vec::new(), AT_MOST);
        let answer = answered.map_err(|error| error.to_string())?;
        if answer.status() == StatusCode::NOT_FOUND { Ok(None) } else { json_of(admin, &answer).map(Some) }
    }

    /// Whether the answer is to be JSON.
    pub(super) fn wants_json(&self) -> bool {
        self.json || !io::stdout().is_terminal()
    }

    /// Gives the pieces of the stream that answers a GET for `target` to `take`, until `take` breaks or the user
    /// interrupts the command.
    pub(super) fn follow(&self, target: &str, take: impl FnMut(&[u8]) -> ControlFlow<()>) -> Exit {
        let admin = self.address()?;
        match follow(&admin, &self.credentials, target, take).map_err(failed)? {
            Streamed::Stopped => Ok(ExitCode::SUCCESS),
            Streamed::Ended => Err(failed(format_args!("{admin} has ended the stream"))),
            Streamed::Refused(answer) => Err(failed(refusal(&admin, &answer))),
        }
    }

    /// The admin listener. The error is the exit code.
    pub(super) fn address(&self) -> Result<AdminAddress, ExitCode> {
        self.admin.clone().map_or_else(|| address_in(self.config.as_deref()), Ok)
    }
}

/// The admin listener that the configuration in `file` names, or that of the environment. The error is the exit code.
pub(in crate::cli) fn address_in(file: Option<&Path>) -> Result<AdminAddress, ExitCode> {
    let Some(file) = file else { return AdminAddress::of_environment().map_err(failed) };
    let admin = config::load(&Origin::File(file.to_owned())).map_err(|diagnostics| invalid(&diagnostics))?.admin;
    let text = match &admin.listen {
        None => return Err(fail(&"the configuration has no admin listener")),
        Some(ListenAddress::Unix(path)) => format!("unix:{}", path.display()),
        Some(ListenAddress::Tcp(address)) => {
            let mut address = *address;
            if address.ip().is_unspecified() {
                address.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
            }
            format!("{}{address}", if admin.tls.is_some() { "https://" } else { "" })
        }
    };
    AdminAddress::of_text(&text).map_err(failed)
}

/// The end of an override or a plan: the time left in a list, else the date.
pub(super) fn ends(one: &Value) -> String {
    let left = one["left_s"].as_u64().map(|seconds| humantime::format_duration(Duration::from_secs(seconds)));
    left.map_or_else(|| text(&one["until"]), |left| format!("in {left}"))
}

/// The text of a value: without quotes, and `-` for none.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Object(parts) => {
            parts.iter().map(|(name, part)| format!("{name}={}", text(part))).collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

pub(super) fn duration(ms: &Value) -> String {
    let duration = ms.as_u64().map(|ms| humantime::format_duration(Duration::from_millis(ms)).to_string());
    duration.unwrap_or_else(|| "-".to_owned())
}

/// A line for each changed key that is banned, because an override or a plan does not lift a ban; and a line if the changes
/// are lost with the process.
pub(super) fn remarks(changes: &[Value]) -> String {
    let banned = changes.iter().filter_map(|one| Some((text(&one["key"]), one["banned_until"].as_str()?)));
    let banned = banned.map(|(key, until)| format!("\n{key} is still banned: {until}"));
    // All changes of one answer are kept, or none.
    let not_kept = changes.iter().find_map(|one| one["not_kept"].as_str());
    let ends = not_kept.map(|why| format!("\nends with the process: {why}"));
    banned.chain(ends).collect::<Vec<_>>().concat()
}
