//! The decision about a request, and its reasons.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use http::StatusCode;
use serde_json::Value;

use super::fields::FormFields;
use super::pages::Pages;
use super::shell::{Shell, Visitor, page};
use super::words;
use crate::admin::answer::Answer;
use crate::admin::explain::{ExplanationBody, LimitBody};

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
}

struct ExplainedRow {
    body: LimitBody,
    key: String,
    retry: String,
}

/// The form.
pub(super) async fn show(Extension(visitor): Extension<Visitor>) -> Answer {
    let entered = FormFields::parse(b"method=GET&path=/");
    let shell = Shell::new(&visitor, "Explain", &entered);
    let template =
        ExplainPage { shell, entered, missing: None, explained: None, retry: String::new(), limits: Vec::new() };
    page(StatusCode::OK, &template)
}

/// The form and the explanation.
pub(super) async fn explain(
    State(pages): State<Arc<Pages>>,
    Extension(visitor): Extension<Visitor>,
    Extension(entered): Extension<FormFields>,
) -> Answer {
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
        ip => Err((StatusCode::BAD_REQUEST, format!("The client: `{ip}` is not an address."))),
    };
    let (status, explained, missing) = match asked {
        Ok(explained) => (StatusCode::OK, Some(explained), None),
        Err((status, detail)) => (status, None, Some(detail)),
    };
    let row = |body: &LimitBody| {
        let budget = body.budget.as_ref();
        let pairs = budget.map(|budget| budget.key.iter().map(|(name, text)| format!("{name} {text}")));
        ExplainedRow {
            key: pairs.map(|pairs| pairs.collect::<Vec<_>>().join(", ")).unwrap_or_default(),
            retry: budget.map(|budget| words::wait(budget.retry_after_ms, "–")).unwrap_or_default(),
            body: body.clone(),
        }
    };
    let limits = explained.iter().flat_map(|explained| explained.limits.iter().map(row)).collect();
    let retry = words::wait(explained.as_ref().and_then(|explained| explained.retry_after_ms), "–");
    let shell = Shell::new(&visitor, "Explain", &entered);
    page(status, &ExplainPage { shell, entered, missing, explained, retry, limits })
}
