//! `weir explain`: explains a request with a configuration file, or with the state of a running Weir; or a refusal that a
//! running Weir keeps.

use std::error::Error;
use std::net::IpAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::{Request, header};

use super::ask::{AdminAddress, Credentials, ask, json_of};
use super::output::{Exit, complain, failed, invalid, say, unusable};
use super::source::{RemoteArgs, address};
use crate::admin::{
    BudgetBody, ExplanationBody, LimitBody, NEEDS_BODY, QuestionBody, RefusalBody, RefusalsBody, RouteBody,
    parse_rfc3339, units_in_words,
};
use crate::app;
use crate::app::remote::{self, ConfigAddress, RemoteOptions};
use crate::base::telemetry::Metrics;
use crate::base::time::{Clock, Timestamp, system_now};
use crate::config;
use crate::engine::gate::Gate;

#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The id of a refusal, as a client got it in `refusal_id` or `request_id`; a running Weir explains it.
    #[arg(conflicts_with_all = [
        "config", "method", "path", "host", "ip", "header", "token", "identity", "plan", "at",
    ])]
    id: Option<String>,
    /// A configuration to explain offline, with full buckets: a file, `etcd://HOST:PORT/KEY` or an https URL. Not read
    /// with --admin.
    #[arg(long, value_name = "CONFIG", value_parser = address())]
    config: Option<ConfigAddress>,
    /// The admin listener of a running Weir: a host and a port, a URL, or `unix:` and a path. The answer has the current
    /// state of its buckets. The default, without --config, is the environment variable `WEIR_ADMIN`, then 127.0.0.1:9901.
    #[arg(long, value_name = "URL")]
    admin: Option<AdminAddress>,
    #[command(flatten)]
    credentials: Credentials,
    /// The method of the request.
    #[arg(long, default_value = "GET")]
    method: String,
    /// The path, with the query if the request has one.
    #[arg(long, default_value = "/")]
    path: String,
    /// The host.
    #[arg(long, default_value = "localhost")]
    host: String,
    /// The address of the client, as trusted proxies would report it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    ip: IpAddr,
    /// A header; may be repeated.
    #[arg(long, value_name = "NAME: VALUE", value_parser = header_line)]
    header: Vec<(String, String)>,
    /// A token; a short form of --header 'authorization: Bearer TOKEN'.
    #[arg(long)]
    token: Option<String>,
    /// The text of an identity, in place of that of the headers; no token is needed then. May be repeated.
    #[arg(long, value_name = "NAME=TEXT", value_parser = identity)]
    identity: Vec<(String, String)>,
    /// The plan, in place of that of the headers.
    #[arg(long)]
    plan: Option<String>,
    /// The time at which ramps are looked at, as RFC 3339; the default is now. Only with --config.
    #[arg(long, value_name = "TIME", requires = "config", conflicts_with = "admin", value_parser = time)]
    at: Option<Timestamp>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

fn header_line(line: &str) -> Result<(String, String), &'static str> {
    let (name, value) = line.split_once(':').ok_or("write a header as `name: value`")?;
    Ok((name.trim_ascii().to_owned(), value.trim_ascii().to_owned()))
}

fn time(text: &str) -> Result<Timestamp, &'static str> {
    parse_rfc3339(text).ok_or("write a time as `2027-01-31T18:00:00Z`")
}

fn identity(text: &str) -> Result<(String, String), &'static str> {
    let (name, text) = text.split_once('=').ok_or("write an identity as `name=text`")?;
    Ok((name.to_owned(), text.to_owned()))
}

/// The bound on the time of the admin listener.
const AT_MOST: Duration = Duration::from_secs(10);

pub(super) fn explain(asked: ExplainArgs) -> Exit {
    if let Some(id) = &asked.id {
        return explain_refusal(id, &asked);
    }
    let ExplainArgs { config, admin, credentials, method, path, host, ip, header: mut headers, token, .. } = asked;
    let ExplainArgs { identity, plan, at, json, remote, .. } = asked;
    let identities = identity.into_iter().map(|(name, text)| (name, text.into())).collect();
    headers.extend(token.map(|token| ("authorization".to_owned(), format!("Bearer {token}"))));
    let question = QuestionBody { method, path, host, ip, headers, identities, plan };
    let mut offline = None;
    let explained = match (admin, config) {
        (Some(admin), _) => ask_running(&admin, &credentials, &question),
        (None, Some(address)) => {
            offline = Some(format!("offline: {address} with full buckets and without bans; no running Weir was asked"));
            by_config(address, &remote.options(), &question, at)?
        }
        (None, None) => ask_running(&AdminAddress::of_environment().map_err(failed)?, &credentials, &question),
    };
    let explained = explained.map_err(failed)?;
    if !json {
        let lines = offline.into_iter().chain([in_words(&explained)]).collect::<Vec<_>>();
        return say(&lines.join("\n"));
    }
    if let Some(offline) = offline {
        complain(&offline, 0);
    }
    say(&serde_json::to_string_pretty(&explained).map_err(failed)?)
}

fn explain_refusal(id: &str, asked: &ExplainArgs) -> Exit {
    let admin = asked.admin.clone().map_or_else(AdminAddress::of_environment, Ok).map_err(failed)?;
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("id", id).finish();
    let head = Request::get(format!("/v1/refusals?{query}"));
    let answer = ask(&admin, &asked.credentials, head, Vec::new(), AT_MOST).map_err(failed)?;
    let found = json_of(&admin, &answer).map_err(failed)?;
    if asked.json {
        return say(&String::from_utf8_lossy(answer.body()).trim_end());
    }
    let found = serde_json::from_value::<RefusalsBody>(found).map_err(failed)?;
    let refusals: Vec<_> = found.refusals.iter().map(refusal_in_words).collect();
    say(&format_args!("refusal {id}\n{}", refusals.join("\n")))
}

fn refusal_in_words(refusal: &RefusalBody) -> String {
    let RefusalBody { limit, key, key_id, at, cause, capacity, remaining, reset_after_ms, .. } = refusal;
    let limit = limit.as_ref().map_or_else(|| "ban of an address".to_owned(), |limit| format!("limit {limit}"));
    let mut says = vec![format!("at {at}"), format!("cause {cause}")];
    says.extend(remaining.zip(*capacity).map(|(left, all)| format!("remaining {left} of {all}")));
    says.extend(reset_after_ms.map(|ms| format!("reset after {}", duration(ms))));
    says.extend(refusal.retry_after_s.map(|s| format!("retry after {s}s")));
    let key = key.as_deref().filter(|key| !key.is_empty()).unwrap_or("-");
    let mut lines = vec![limit, format!("  key: {key} (id {key_id})"), format!("  {}", says.join(", "))];
    if !refusal.charges.is_empty() {
        lines.push("  charges of the key:".to_owned());
        lines.extend(refusal.charges.iter().map(|charge| format!("    {} {:+}", charge.at, charge.units)));
    }
    lines.push(format!("  other refusals of the key: {}", refusal.others_count));
    let left = |left: u64| format!("; remaining {left}");
    let others = refusal.others.iter();
    lines.extend(others.map(|one| format!("    {} {}{}", one.at, one.id, one.remaining.map(left).unwrap_or_default())));
    lines.join("\n")
}

type Explained = Result<ExplanationBody, Box<dyn Error>>;

fn by_config(
    address: ConfigAddress,
    options: &RemoteOptions,
    question: &QuestionBody,
    at: Option<Timestamp>,
) -> Result<Explained, ExitCode> {
    let origin = remote::origin(address, options).map_err(|error| unusable(&error))?;
    let config = config::load(&origin).map_err(|diagnostics| invalid(&diagnostics))?;
    let explain = || {
        let mut secret = [0; 16];
        match &config.fleet_secret {
            Some(fleet) => secret = fleet.key_secret(),
            None => getrandom::fill(&mut secret)?,
        }
        let gate = Gate::new(Clock::start(), secret, Arc::new(Metrics::new("", "")?));
        let routing = app::routing(&config);
        let policy = config.policy.ramped(at.unwrap_or(system_now())).unwrap_or(config.policy);
        let live = gate.install(policy, config.hold, config.max_tokens);
        let explained = gate.explain(&live, &question.clone().try_into()?, &routing, gate.clock().now())?;
        Ok(ExplanationBody::of(explained, &live.policy))
    };
    Ok(explain())
}

fn ask_running(admin: &AdminAddress, credentials: &Credentials, question: &QuestionBody) -> Explained {
    let head = Request::post("/v1/explain").header(header::CONTENT_TYPE, "application/json");
    let answer = ask(admin, credentials, head, serde_json::to_vec(question)?, AT_MOST)?;
    Ok(serde_json::from_value(json_of(admin, &answer)?)?)
}

fn in_words(explained: &ExplanationBody) -> String {
    let ExplanationBody { request, ip, route, limits, decision, why, violated, retry_after_ms, remaining, .. } =
        explained;
    let mut lines = vec![format!("{request} from {ip}")];
    lines.extend(route.as_ref().and_then(route_in_words));
    for limit in limits {
        lines.extend(limit_in_words(limit));
    }
    let by = if violated.is_empty() { String::new() } else { format!(" ({})", violated.join(", ")) };
    let then = match (&**decision, retry_after_ms, remaining) {
        ("held", Some(ms), _) => format!("; for {}", duration(*ms)),
        (_, Some(ms), _) => format!("; retry after {}", duration(*ms)),
        ("admitted", None, Some(units)) => format!("; remaining {units}"),
        _ => String::new(),
    };
    lines.push(format!("decision: {decision}: {why}{by}{then}"));
    lines.join("\n")
}

/// The route and the upstream; `None` if all requests go to one upstream without a name.
fn route_in_words(RouteBody { number, paths, upstream }: &RouteBody) -> Option<String> {
    let route = number.map(|number| {
        let paths = if paths.is_empty() { "all paths".to_owned() } else { paths.join(", ") };
        format!("route {number} ({paths})")
    });
    let parts: Vec<_> = route.into_iter().chain(upstream.as_ref().map(|name| format!("upstream {name}"))).collect();
    (!parts.is_empty()).then(|| parts.join(" to "))
}

fn limit_in_words(explained: &LimitBody) -> Vec<String> {
    let LimitBody { limit, stage, mode, reason, adapted, why_not, budget, .. } = explained;
    let head = format!("limit {limit} ({stage}, {mode})");
    if !why_not.is_empty() && explained.needs_body() {
        return vec![format!("{head} {reason}")];
    }
    if !why_not.is_empty() {
        return vec![format!("{head} does not apply: {}", why_not.join("; "))];
    }
    let Some(budget) = budget else {
        return vec![format!("{head} applies, but the request does not get so far")];
    };
    let open = if explained.needs_body() { format!("; {NEEDS_BODY}") } else { String::new() };
    let BudgetBody { key, rule, from, cost, admits, remaining, debt, reset_after_ms, retry_after_ms, .. } = budget;
    let BudgetBody { waiting, decided_by, mirror_age_ms, unit, .. } = budget;
    let units = |units: &u64| units_in_words(*units, unit.as_deref());
    let key: Vec<String> = key.iter().map(|(part, text)| format!("{part} = {text}")).collect();
    let key = if key.is_empty() { "one for all".to_owned() } else { key.join(", ") };
    let Some(rule) = rule else {
        return vec![format!("{head} applies{open}"), format!("  key: {key}"), format!("  rule: none, by {from}")];
    };
    let mut says = vec![format!("{}; remaining {}", if *admits { "admits" } else { "refuses" }, units(remaining))];
    says.extend((*debt > 0).then(|| format!("debt {}", units(debt))));
    says.extend(reset_after_ms.map(|ms| format!("reset after {}", duration(ms))));
    says.extend(retry_after_ms.map(|ms| format!("retry after {}", duration(ms))));
    says.extend((*waiting > 0).then(|| format!("waiting {waiting}")));
    let why = reason.strip_prefix("refuses: ").and_then(|why| why.split("; ").next());
    says.extend(why.filter(|why| why.contains("is banned")).map(str::to_owned));
    let mut lines = vec![
        format!("{head} applies{open}"),
        format!("  key: {key}"),
        format!("  rule: {rule}, by {from}; cost {}", units(cost)),
    ];
    lines.extend(adapted.as_ref().map(|adapted| format!("  adapt: {adapted}")));
    lines.extend(decided_by.as_ref().map(|by| {
        let age = mirror_age_ms.map(|ms| format!("; last answer: {} old", duration(ms)));
        format!("  decided by: {by}{}", age.unwrap_or_default())
    }));
    lines.push(format!("  {}", says.join(", ")));
    lines
}

fn duration(ms: u64) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(ms))
}
