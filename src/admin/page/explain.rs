//! The decision about a request, and its reasons.

use std::net::IpAddr;

use askama::Template;
use http::{StatusCode, Uri};
use serde_json::Value;

use super::fields::FormFields;
use super::pages::PageRequest;
use super::shell::{Shell, page};
use super::words;
use crate::admin::answer::{Answer, Refused};
use crate::admin::explain::ExplanationBody;
use crate::admin::refusals::{RefusalBody, RefusalsBody};

#[derive(Template)]
#[template(path = "explain.html", config = "src/admin/page/askama.toml")]
struct ExplainPage {
    shell: Shell,
    entered: FormFields,
    /// Why there is no explanation.
    missing: Option<String>,
    explained: Option<ExplanationBody>,
    /// The refusal with the id that was asked for.
    refusals: Vec<RefusalBody>,
}

/// The form, and the refusal whose id the query has.
pub(super) async fn show(PageRequest { pages, visitor, fields: query }: PageRequest, uri: Uri) -> Answer {
    let (mut status, mut missing, mut refusals) = (StatusCode::OK, None, Vec::new());
    if let Some(id) = query.filled("id") {
        match pages.api.get::<RefusalsBody>(&visitor.operator, "/v1/refusals", &[("id", id)]).await {
            Ok(found) => refusals = found.refusals,
            Err(Refused(refused, detail)) => (status, missing) = (refused, Some(words::sentence(detail))),
        }
    }
    let mut entered = String::from("method=GET&path=/&");
    entered.push_str(uri.query().unwrap_or_default());
    let entered = FormFields::parse(entered.as_bytes());
    let shell = Shell::new(&visitor, "Explain", &entered);
    page(status, &ExplainPage { shell, entered, missing, explained: None, refusals })
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
    let shell = Shell::new(&visitor, "Explain", &entered);
    page(status, &ExplainPage { shell, entered, missing, explained, refusals: Vec::new() })
}
