//! Fetches one key set. TLS uses the root certificates of the system. Time and length are bounded. A redirect is an
//! error.

use std::sync::OnceLock;
use std::time::Duration;

use http::header::{ACCEPT, HeaderValue};
use http::uri::Scheme;
use http::{HeaderMap, StatusCode, Uri};
use tokio::time::timeout;

use crate::app::fetch::get;
use crate::net::Protocol;
use crate::net::tls::ClientTls;

/// The bound on the time from the DNS lookup to the last byte.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The bound on the length. A set of 64 keys has about 50 KB.
const BYTES_MAX: usize = 1 << 20;

/// The root certificates of the system. The first TLS connection loads them.
#[derive(Default)]
pub(super) struct Trust(OnceLock<Result<ClientTls, String>>);

impl Trust {
    fn tls(&self) -> Result<&ClientTls, String> {
        self.0.get_or_init(|| ClientTls::new(None, None, Protocol::Http1)).as_ref().map_err(Clone::clone)
    }
}

/// Fetches `url`. Error messages do not contain the URL.
pub(super) async fn fetch(url: &Uri, trust: &Trust) -> Result<Vec<u8>, String> {
    let tls = if url.scheme() == Some(&Scheme::HTTPS) { Some(trust.tls()?) } else { None };
    let accept = HeaderValue::from_static("application/jwk-set+json, application/json");
    let headers = HeaderMap::from_iter([(ACCEPT, accept)]);
    let response = timeout(TIMEOUT, get(url, tls, headers, BYTES_MAX)).await;
    let response = response.map_err(|_| "the fetch takes too long".to_owned())??;
    match response.status() {
        StatusCode::OK => Ok(response.into_body().to_vec()),
        status => Err(format!("the status of the response is {status}")),
    }
}
