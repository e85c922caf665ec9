//! `[client_api]`: the path under which clients see their own limits.

use crate::config::reader::{Optional, Table, time_units};
use crate::engine::limit::{Algorithm, Quota};
use crate::engine::policy::{ClientApi, Policy};

/// Compiles the path and its rate.
pub(super) fn client_api(table: &Table<'_>, policy: Option<&Policy>) -> Optional<ClientApi> {
    table.if_present(|table| {
        let paths = table.context.paths.get();
        let path = table.parsed("path", |text| match paths.matched(text) {
            Ok(path) if path == text && path.starts_with('/') && !text.contains(['?', '#']) => Ok(path),
            _ => Err("expected a path in its normal form, such as `/.well-known/ratelimit`".into()),
        });
        let rate = table.parsed("rate", |text| {
            let rate = time_units::rate(text)?.rate()?;
            let quota = Quota::new(rate, rate.count).map_err(|error| error.to_string())?;
            Ok(Algorithm::TokenBucket(quota))
        });
        if policy.is_some_and(|policy| !policy.identities.iter().any(|identity| identity.source.is_verified())) {
            let help = "add an `[identity.NAME]` with `jwt`, `api_keys` or `tls`; a plain header proves nothing";
            table.fault_at("path", ("no identity is verified, so no client could see its limits", help));
        }
        Some(ClientApi { path: path?.into(), rate: rate? })
    })
}
