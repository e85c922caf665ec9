//! A request to explain, as JSON.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::engine::gate::Question;

/// The body of a request: a request to explain.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename = "Question")]
#[schema(as = Question)]
pub struct QuestionBody {
    /// The method.
    pub method: String,
    /// The path, with the query if there is one.
    pub path: String,
    /// The host, with the port if there is one.
    pub host: String,
    /// The client's address, as trusted proxies would report it.
    #[schema(value_type = String)]
    pub ip: IpAddr,
    /// Names and values of the headers.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// Texts of identities by name, in place of those that the headers show. No token is needed then.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub identities: Map<String, Value>,
    /// The plan, in place of that of the headers.
    #[serde(default)]
    pub plan: Option<String>,
}

impl TryFrom<QuestionBody> for Question {
    type Error = String;

    fn try_from(body: QuestionBody) -> Result<Self, String> {
        let QuestionBody { method, path, host, ip, headers, identities, plan } = body;
        let text = |(name, value): (String, Value)| match value {
            Value::String(text) => Ok((name, text)),
            Value::Number(number) if !number.is_f64() => Ok((name, number.to_string())),
            _ => Err(format!("identities: `{name}`: expected a text or a whole number")),
        };
        let identities = identities.into_iter().map(text).collect::<Result<_, _>>()?;
        Ok(Self { method, path, host, ip, headers, identities, plan })
    }
}
