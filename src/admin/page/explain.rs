//! The decision about a request, and its reasons.

use std::net::IpAddr;

use askama::Template;
use http::{StatusCode, Uri};
use serde_json::Value;

use super::fields::{FormFields, link};
use super::pages::PageRequest;
use super::shell::{Shell, page};
use super::words;
use crate::admin::answer::{Answer, Refused};
use crate::admin::explain::{BudgetBody, ExplanationBody, LimitBody};
use crate::admin::rates::units_in_words;
use crate::admin::refusals::{RefusalBody, RefusalsBody};

#[derive(Template)]
#[template(path = "explain.html", config = "src/admin/page/askama.toml")]
struct ExplainPage {
    shell: Shell,
    entered: FormFields,
    /// Why there is no explanation.
    missing: Option<String>,
    explained: Option<ExplanationBody>,
    /// Milliseconds in words.
    retry: String,
    limits: Vec<ExplainedRow>,
    /// The refusal with the id that was asked for.
    refusals: Vec<RefusalRow>,
}

struct RefusalRow {
    body: RefusalBody,
    /// The page of the key; `None` for the ban of an address.
    link: Option<String>,
    reset: String,
    /// The instant and the units of each charge.
    charges: Vec<(String, String)>,
    /// The page of each other refusal.
    others: Vec<(String, String)>,
}

struct ExplainedRow {
    body: LimitBody,
    key: String,
    cost: String,
    remaining: String,
    retry: String,
}

/// The form, and the refusal whose id the query has.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest, uri: Uri) -> Answer {
    let (mut status, mut missing, mut refusals) = (StatusCode::OK, None, Vec::new());
    if let Some(id) = query.filled("id") {
        match pages.api.get::<RefusalsBody>(&visitor.operator, "/v1/refusals", &[("id", id)]).await {
            Ok(found) => refusals = found.refusals.into_iter().map(RefusalRow::of).collect(),
            Err(Refused(refused, detail)) => (status, missing) = (refused, Some(words::sentence(detail))),
        }
    }
    let mut entered = String::from("method=GET&path=/&");
    entered.push_str(uri.query().unwrap_or_default());
    let entered = FormFields::parse(entered.as_bytes());
    let shell = Shell::new(&visitor, "Explain", &entered);
    let (retry, limits) = (String::new(), Vec::new());
    page(status, &ExplainPage { shell, entered, missing, explained: None, retry, limits, refusals })
}

impl RefusalRow {
    fn of(body: RefusalBody) -> Self {
        let key = |limit: &String| link("/key", &[("limit", limit), ("id", &body.key_id)]);
        let other = |id: &str, at: &str| (link("/explain", &[("id", id)]), words::instant(at));
        Self {
            link: body.limit.as_ref().map(key),
            reset: words::wait(body.reset_after_ms, "–"),
            charges: body.charges.iter().map(|one| (words::instant(&one.at), format!("{:+}", one.units))).collect(),
            others: body.others.iter().map(|one| other(&one.id, &one.at)).collect(),
            body: RefusalBody { at: words::instant(&body.at), ..body },
        }
    }
}

/// The form and the explanation.
pub(super) async fn explain(PageRequest { pages, visitor, fields: entered }: PageRequest) -> Answer {
    let mut question = entered.object(&["method", "path", "host", "ip", "plan"]);
    let pairs = |name: &str| -> Vec<(String, String)> {
        let lines = entered.get(name).lines().filter(|line| !line.trim().is_empty());
        let pair = |line: &str| line.split_once(':').map(|(name, value)| (name.trim().into(), value.trim().into()));
        lines.map(|line| pair(line).unwrap_or_else(|| (line.trim().to_owned(), String::new()))).collect()
    };
    if let Some(question) = question.as_object_mut() {
        let headers = pairs("headers").into_iter().map(|(name, value)| Value::from(vec![name, value]));
        question.insert("headers".to_owned(), headers.collect());
        let identities = pairs("identities").into_iter().map(|(name, text)| (name, Value::from(text)));
        question.insert("identities".to_owned(), Value::Object(identities.collect()));
    }
    let asked = match entered.get("ip") {
        ip if ip.parse::<IpAddr>().is_ok() => {
            pages.api.post::<ExplanationBody>(&visitor.operator, "/v1/explain", &question).await
        }
        ip => Err(format!("The client: `{ip}` is not an address.").into()),
    };
    let (status, explained, missing) = match asked {
        Ok(explained) => (StatusCode::OK, Some(explained), None),
        Err(Refused(status, detail)) => (status, None, Some(detail)),
    };
    let row = |body: &LimitBody| {
        let budget = body.budget.as_ref();
        let units = |of: fn(&BudgetBody) -> u64| {
            let shown = budget.map(|budget| units_in_words(of(budget), budget.unit.as_deref()));
            shown.unwrap_or_default()
        };
        let pairs = budget.map(|budget| budget.key.iter().map(|(name, text)| format!("{name} {text}")));
        ExplainedRow {
            key: pairs.map(|pairs| pairs.collect::<Vec<_>>().join(", ")).unwrap_or_default(),
            cost: units(|budget| budget.cost),
            remaining: units(|budget| budget.remaining),
            retry: budget.map(|budget| words::wait(budget.retry_after_ms, "–")).unwrap_or_default(),
            body: body.clone(),
        }
    };
    let limits = explained.iter().flat_map(|explained| explained.limits.iter().map(row)).collect();
    let retry = words::wait(explained.as_ref().and_then(|explained| explained.retry_after_ms), "–");
    let shell = Shell::new(&visitor, "Explain", &entered);
    page(status, &ExplainPage { shell, entered, missing, explained, retry, limits, refusals: Vec::new() })
}
