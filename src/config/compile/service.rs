//! Limiter services: the address of another Weir, in a store or in a strategy.

use std::sync::Arc;
use std::time::Duration;

use super::tls::server_name;
use super::upstream::authority;
use crate::config::reader::Table;
use crate::config::reader::units::Fault;
use crate::engine::store::backend::OnFailure;
use crate::fleet::stores::driver::NodeAddress;
use crate::fleet::stores::service::settings::LimiterSettings;
use crate::transport::net::tls::StoreTls;

/// Options of a store that only Redis has.
const OF_REDIS: [&str; 3] = ["user", "password", "prefix"];

/// The default of `store.NAME.timeout`, but for etcd.
pub(super) const TIMEOUT: Duration = Duration::from_millis(10);

/// The address of a limiter service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LimiterUrl {
    /// A name in lower case, or an address without brackets.
    pub(super) host: Box<str>,
    pub(super) port: u16,
    pub(super) has_tls: bool,
}

/// Parses `http[s]://host:port`.
pub(super) fn limiter_url(url: &str) -> Result<LimiterUrl, Fault> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        return Err(Fault::new("must begin with `http://` or `https://`"));
    }
    let authority = authority(scheme, rest)?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let Some(port) = authority.port_u16() else {
        let help = format!("add the port of its `grpc.listen`, as in `{scheme}://{host}:8081`");
        return Err(Fault::new("must have a port").help(help));
    };
    if scheme == "https" {
        server_name(&host)?;
    }
    Ok(LimiterUrl { host: host.into(), port, has_tls: scheme == "https" })
}

/// Notes options that only Redis has.
pub(super) fn note_redis_options(table: &Table<'_>) {
    for option in OF_REDIS {
        if let Some(value) = table.get(option) {
            table.fault(option, value.span(), Fault::new("has no effect with `service`"));
        }
    }
}

/// The settings of a limiter that is only an address. Its name is `host:port`, which no table of `[store]` can have.
pub(super) fn settings_of(url: LimiterUrl) -> LimiterSettings {
    let LimiterUrl { host, port, has_tls } = url;
    LimiterSettings {
        name: Arc::from(NodeAddress::tcp(&*host, port).to_string()),
        host,
        port,
        tls: has_tls.then(StoreTls::default),
        timeout: TIMEOUT,
        on_failure: OnFailure::default(),
    }
}
