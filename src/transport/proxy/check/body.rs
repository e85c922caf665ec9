//! The request that a check describes, in JSON.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::described::{BadDescription, DescribedRequest, Texts};
use crate::base::fields::FieldBuf;
use crate::engine::gate::UNITS_MAX;
use crate::engine::policy::client_ip::unmap;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    method: String,
    path: String,
    host: String,
    address: IpAddr,
    #[serde(default)]
    headers: Map<String, Value>,
    cost: Option<u64>,
}

/// The body of a check in JSON.
pub(in crate::transport::proxy) struct CheckBody {
    description: Description,
    fields: FieldBuf,
}

impl CheckBody {
    /// Reads a body.
    pub(in crate::transport::proxy) fn read(bytes: &[u8]) -> Result<Self, BadDescription> {
        // `serde` would read an array as the fields in their order.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err("the body: expected a JSON object".into());
        }
        let read = serde_json::from_slice(bytes);
        let description: Description = read.map_err(|error| format!("the body: {error}"))?;
        if description.cost.is_some_and(|cost| cost > UNITS_MAX) {
            return Err(format!("cost: expected a whole number from 0 to {UNITS_MAX}").into());
        }
        let mut fields = FieldBuf::default();
        for (name, value) in &description.headers {
            push(&mut fields, name, value)?;
        }
        Ok(Self { description, fields })
    }

    /// The request of the body.
    pub(in crate::transport::proxy) fn described(&self) -> Result<DescribedRequest<'_>, BadDescription> {
        let Description { method, path, host, address, cost, .. } = &self.description;
        let texts = Texts {
            method: ("method", method.as_bytes()),
            target: ("path", path.as_bytes()),
            authority: ("host", host.as_bytes()),
        };
        texts.request(unmap(*address), self.fields.fields(), *cost)
    }
}

/// Adds the header `name` with its value or its values.
fn push(fields: &mut FieldBuf, name: &str, value: &Value) -> Result<(), BadDescription> {
    let wrong = || BadDescription::from("headers: expected names with a text or a list of texts each");
    let name = HeaderName::try_from(name).map_err(|_| wrong())?;
    let values = match value {
        Value::Array(values) => values,
        one => std::slice::from_ref(one),
    };
    for value in values {
        let value = value.as_str().and_then(|text| HeaderValue::from_bytes(text.as_bytes()).ok()).ok_or_else(wrong)?;
        fields.push(name.as_str().as_bytes(), value.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `body` describes, or what is wrong with it, without the place.
    fn described(body: &str) -> String {
        let read = |body: &CheckBody| {
            let DescribedRequest { method, target, authority, client, fields, cost } = body.described()?;
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| [name, value].map(String::from_utf8_lossy)).collect();
            let fields: Vec<_> = fields.iter().map(|pair| pair.join("=")).collect();
            Ok(format!("{method} {authority} {} {:?} {client} {fields:?} {cost:?}", target.path, target.query))
        };
        let described = CheckBody::read(body.as_bytes()).and_then(|body| read(&body));
        described.unwrap_or_else(|wrong| wrong.split(" at line").next().unwrap_or_default().to_owned())
    }

    #[test]
    fn bodies() {
        let good = r#"{"method":"GET","path":"/a?b","host":"h","address":"192.0.2.7"}"#;
        let with = |more: &str| good.replace('}', &format!(",{more}}}"));
        let headers = "headers: expected names with a text or a list of texts each";
        for (body, expected) in [
            (good.to_owned(), r#"GET h /a Some("b") 192.0.2.7 [] None"#),
            (with(r#""cost":0"#), r#"GET h /a Some("b") 192.0.2.7 [] Some(0)"#),
            (with(r#""cost":null"#), r#"GET h /a Some("b") 192.0.2.7 [] None"#),
            (
                with(r#""headers":{"A-Key":" a ","x-b":["c","é"]}"#),
                r#"GET h /a Some("b") 192.0.2.7 ["a-key=a", "x-b=c", "x-b=é"] None"#,
            ),
            (good.replace("192.0.2.7", "::ffff:192.0.2.7"), r#"GET h /a Some("b") 192.0.2.7 [] None"#),
            (good.replace("\"h\"", "\"\""), r#"GET  /a Some("b") 192.0.2.7 [] None"#),
            (format!(" \n{good} "), r#"GET h /a Some("b") 192.0.2.7 [] None"#),
            (String::new(), "the body: expected a JSON object"),
            ("null".into(), "the body: expected a JSON object"),
            (format!("[{good}]"), "the body: expected a JSON object"),
            (r#"["GET","/","h","192.0.2.7",{},1]"#.into(), "the body: expected a JSON object"),
            ("{".into(), "the body: EOF while parsing an object"),
            (format!("{good}x"), "the body: trailing characters"),
            ("{}".into(), "the body: missing field `method`"),
            (
                with(r#""x":1"#),
                "the body: unknown field `x`, expected one of `method`, `path`, `host`, `address`, `headers`, `cost`",
            ),
            (with(r#""host":"i""#), "the body: duplicate field `host`"),
            (with(r#""cost":-1"#), "the body: invalid value: integer `-1`, expected u64"),
            (with(r#""cost":9007199254740992"#), "cost: expected a whole number from 0 to 9007199254740991"),
            (good.replace("192.0.2.7", "h"), "the body: invalid IP address syntax"),
            (good.replace("GET", "get"), "method: expected a method in upper-case letters"),
            (good.replace("/a", "a"), "path: expected a path, with the query if there is one"),
            (good.replace("\"h\"", "\"a/b\""), "host: expected a host, with the port if there is one"),
            (with(r#""headers":{"a b":"c"}"#), headers),
            (with(r#""headers":{"":"c"}"#), headers),
            (with(r#""headers":{"a":"b\nc"}"#), headers),
            (with(r#""headers":{"a":1}"#), headers),
            (with(r#""headers":{"a":["b",null]}"#), headers),
            (with(r#""headers":[["a","b"]]"#), "the body: invalid type: sequence, expected a map"),
        ] {
            assert_eq!(described(&body), expected, "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_body_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = CheckBody::read(&bytes).map(|body| body.described().is_ok());
        }
    }
}
