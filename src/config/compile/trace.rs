//! `[trace]`: the collector of traces.

use http::Uri;

use crate::config::reader::Table;
use crate::config::reader::units::Fault;
use crate::transport::proxy::settings::TraceSettings;

/// The path of OTLP over HTTP, for a URL without one.
const PATH: &str = "/v1/traces";

#[expect(clippy::option_option, reason = "the outer option is `None` after an error, as in all of `compile`")]
pub(super) fn trace(table: &Table<'_>) -> Option<Option<TraceSettings>> {
    if !table.is_present() {
        return Some(None);
    }
    let endpoint = table.parsed("endpoint", collector);
    let service_name = table.text("service_name");
    let sample = table.count("sample");
    Some(Some(TraceSettings {
        endpoint: endpoint?.into_inner(),
        service_name: service_name?.into_inner().into(),
        sample: sample?.into_inner(),
    }))
}

/// The URL of a collector; OTLP's path is added if it has none.
fn collector(text: &str) -> Result<Uri, Fault> {
    let fault = |what: &str| Err(Fault::new(what).help(Some("write a URL such as `http://127.0.0.1:4318`".to_owned())));
    let Ok(url) = text.parse::<Uri>() else { return fault("is not a URL") };
    let (Some("http" | "https"), Some(authority)) = (url.scheme_str(), url.authority()) else {
        return fault("must begin with `http://` or `https://`, and a host");
    };
    if authority.as_str().contains('@') || text.contains(['#', '?']) {
        return fault("must not contain a user, a password, a query or a fragment");
    }
    if url.path() != "/" {
        return Ok(url);
    }
    format!("{}{PATH}", text.trim_end_matches('/')).parse().map_err(|_| Fault::new("is not a URL"))
}
