//! `server.forward_as`: the headers in which services get identities and the plan.

use http::HeaderName;

use super::access::{self, PlanSources};
use super::identity::header_name;
use crate::config::reader::{Fault, Located, Table};
use crate::engine::policy::identity_header::{IdentityHeader, IdentityValue};
use crate::transport::http1::hop;

/// Compiles the headers. `identities` are the names of all identities. Notes and leaves out invalid entries; the
/// configuration is invalid then.
pub(super) fn identity_headers(root: &Table<'_>, server: &Table<'_>, identities: &[String]) -> Vec<IdentityHeader> {
    let mut headers: Vec<IdentityHeader> = Vec::new();
    for (name, value) in server.pairs("forward_as") {
        let source = source(value.get_ref(), identities, root.has("plans"));
        if matches!(source, Ok(IdentityValue::Plan)) {
            PlanSources::of(root).warn_of_unproven(server, "forward_as", value.span());
        }
        let header = header(&name).and_then(|name| Ok(IdentityHeader { name, value: source? }));
        match header {
            Ok(header) if headers.iter().any(|known| known.is_read_from(header.name.as_str().as_bytes())) => {
                let what = format!("services may read `{}` as a header before it", header.name);
                server.fault("forward_as", name.span(), what);
            }
            Ok(header) => headers.push(header),
            Err(fault) => server.fault("forward_as", name.span(), fault),
        }
    }
    headers
}

fn header(name: &Located<String>) -> Result<HeaderName, Fault> {
    let header = header_name(name.get_ref())?;
    let bytes = header.as_str().as_bytes();
    if hop::is_hop_by_hop(bytes) || !hop::may_trail(bytes) {
        return Err(format!("`{header}` has a meaning of its own; choose another name").into());
    }
    Ok(header)
}

fn source(text: &str, identities: &[String], has_plans: bool) -> Result<IdentityValue, Fault> {
    if text != "plan" || identities.iter().any(|name| name == text) {
        return access::identity(text, identities).map(IdentityValue::Identity);
    }
    if has_plans {
        return Ok(IdentityValue::Plan);
    }
    let help = "set the source of plans, as in `[plans] from = \"seller.plan\"`";
    Err(Fault::new("without `[plans]` no request has a plan").help(help).absence())
}
