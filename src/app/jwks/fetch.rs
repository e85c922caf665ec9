//! Fetches one key set. TLS uses the root certificates of the system. Time and length are bounded. A redirect is an
//! error.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{HeaderMap, Method, StatusCode, Uri};
use tokio::time::timeout;

use crate::app::fetch::{Trust, send};

/// The bound on the time from the DNS lookup to the last byte.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The bound on the length. A set of 64 keys has about 50 KB.
const BYTES_MAX: usize = 1 << 20;

/// Fetches `url`. Error messages do not contain the URL.
pub(super) async fn fetch(url: &Uri, trust: &Trust) -> Result<Vec<u8>, String> {
    let accept = HeaderValue::from_static("application/jwk-set+json, application/json");
    let request = (Method::GET, HeaderMap::from_iter([(ACCEPT, accept)]), Bytes::new());
    let response = timeout(TIMEOUT, send(url, trust.tls_for(url)?, request, BYTES_MAX)).await;
    let response = response.map_err(|_| "the fetch takes too long".to_owned())??;
    match response.status() {
        StatusCode::OK => Ok(response.into_body().to_vec()),
        status => Err(format!("the status of the response is {status}")),
    }
}
