//! The requests of the ACME client, each on a connection of its own. Time and length are bounded.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{HeaderMap, RETRY_AFTER, USER_AGENT};
use http::uri::Scheme;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use tokio::time::timeout;

use crate::app::fetch::send;
use crate::base::time::{Timestamp, system_now};
use crate::transport::net::tls::ClientTls;

/// The bound on the time of a request, from the lookup of the name to the last byte.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The bound on the length of an answer. A chain of certificates has a few KB.
const BYTES_MAX: usize = 1 << 20;

/// The delay that the authority has asked for in its last refusal.
#[derive(Clone, Debug, Default)]
pub(super) struct RetryDelay(Arc<Mutex<Option<Duration>>>);

impl RetryDelay {
    pub(super) fn take(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The client of one order.
pub(super) struct Client {
    /// `None` for a directory without TLS.
    pub(super) tls: Option<ClientTls>,
    pub(super) asked: RetryDelay,
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let (tls, asked) = (self.tls.clone(), self.asked.clone());
        Box::pin(async move {
            let answer = ask(tls.as_ref(), request).await.map_err(|error| Error::Other(error.into()))?;
            if !answer.status().is_success() {
                let delay = delay_of(answer.headers(), system_now());
                *asked.0.lock().unwrap_or_else(PoisonError::into_inner) = delay;
            }
            Ok(answer.map(Full::new).into())
        })
    }
}

async fn ask(tls: Option<&ClientTls>, request: Request<BodyWrapper<Bytes>>) -> Result<Response<Bytes>, String> {
    let (mut head, body) = request.into_parts();
    if tls.is_some() && head.uri.scheme() != Some(&Scheme::HTTPS) {
        return Err("the directory names a URL without TLS".to_owned());
    }
    let Ok(body) = body.collect().await;
    head.headers.remove(USER_AGENT); // `send` has its own
    let sent = send(&head.uri, tls, (head.method, head.headers, body.to_bytes()), BYTES_MAX);
    timeout(TIMEOUT, sent).await.map_err(|_| "the directory does not answer in time".to_owned())?
}

/// The delay of `Retry-After`: seconds, or a date.
fn delay_of(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(date.saturating_sub(Duration::from_nanos(now.as_ns())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_seconds_or_dates() {
        let now = Timestamp::from_ns(784_111_777_000_000_000);
        for (text, delay) in [
            ("120", Some(120)),
            (" 0", Some(0)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("18446744073709551615", Some(u64::MAX)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            assert_eq!(delay_of(&headers, now), delay.map(Duration::from_secs), "{text}");
        }
        assert_eq!(delay_of(&HeaderMap::new(), now), None);
    }
}
