//! Interim answers (1xx) of the upstream.
//!
//! A 100 lets the body of a request go that says `Expect: 100-continue` ([`Continuation`]); the client gets one
//! from hyper when its body is first read. All others but 101 are passed on to HTTP/1.1 clients (RFC 9110,
//! section 15.2), past hyper, which cannot send them: [`Interim`] collects them, [`super::wire::Wire`] writes them.
//! They are dropped if the client is not reading, and on HTTP/2.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Request, StatusCode, Version};

use super::body::RequestBody;
use super::continuation::{Asked, Continuation};
use super::hop;

/// The most that is kept for a client, in bytes.
const BYTES_MAX: usize = 16 * 1024;

/// Interim answers that have come for one connection and are not written yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Interim(Arc<Queue>);

/// hyper wants what hears of interim answers to be fit for threads, though all of it stays on one.
#[derive(Debug, Default)]
struct Queue {
    has_any: AtomicBool,
    bytes: Mutex<Vec<u8>>,
}

impl Interim {
    /// What has come, as it goes over the wire.
    pub(super) fn take(&self) -> Option<Vec<u8>> {
        if !self.0.has_any.swap(false, Ordering::Relaxed) {
            return None;
        }
        Some(std::mem::take(&mut *self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn push(&self, status: StatusCode, headers: &HeaderMap) {
        let mut text = format!("HTTP/1.1 {} {}\r\n", status.as_str(), status.canonical_reason().unwrap_or(""));
        let mut headers = headers.clone();
        hop::strip(&mut headers);
        for (name, value) in &headers {
            if let Ok(value) = value.to_str() {
                let _ = write!(text, "{name}: {value}\r\n");
            }
        }
        text.push_str("\r\n");
        let mut bytes = self.0.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() + text.len() <= BYTES_MAX {
            bytes.extend_from_slice(text.as_bytes());
            self.0.has_any.store(true, Ordering::Relaxed);
        }
    }
}

/// Listens for interim answers to `request`, for its client if that is given.
pub(super) fn listen(request: &mut Request<RequestBody>, client: Option<&Interim>) {
    let client = client.filter(|_| request.version() == Version::HTTP_11).cloned();
    let continuation = Continuation::wanted_by(request.headers());
    let asked = continuation.as_ref().map(Continuation::asked);
    if let Some(continuation) = continuation {
        request.body_mut().wait_for(continuation);
    }
    if client.is_none() && asked.is_none() {
        return;
    }
    hyper::ext::on_informational(request, move |response| match response.status() {
        StatusCode::CONTINUE => asked.iter().for_each(|asked| Asked::answer(asked)),
        StatusCode::SWITCHING_PROTOCOLS => {}
        status => client.iter().for_each(|client| client.push(status, response.headers())),
    });
}
