//! The calls of one connection: reads, writes, watches and leases.

use std::error::Error as _;
use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use http::Uri;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};

use super::link::{EtcdServers, Link};
use super::proto::etcdserverpb::auth_client::AuthClient;
use super::proto::etcdserverpb::kv_client::KvClient;
use super::proto::etcdserverpb::lease_client::LeaseClient;
use super::proto::etcdserverpb::watch_client::WatchClient;
use crate::fleet::stores::driver::{Login, is_token_refused};
use crate::fleet::stores::etcd::proto::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::fleet::stores::etcd::proto::etcdserverpb::watch_request::RequestUnion;
use crate::fleet::stores::etcd::proto::etcdserverpb::{
    AuthenticateRequest, Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, PutRequest,
    RangeRequest, RequestOp, TxnRequest, WatchCreateRequest, WatchRequest, WatchResponse, request_op,
};
use crate::fleet::stores::etcd::proto::mvccpb::event::EventType;
use crate::fleet::stores::etcd::proto::mvccpb::{Event, KeyValue};

/// The bound on the time of a call, from the request to the head of its answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest message that is read. A server accepts values of 1.5 MiB unless it is configured otherwise.
const MESSAGE_BYTES_MAX: usize = 32 << 20;

/// A connection that has logged in.
#[derive(Debug)]
pub struct Session {
    link: Link,
    origin: Uri,
    login: Login,
    token: Option<MetadataValue<Ascii>>,
}

/// The keys that a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRange {
    /// One key.
    Key(String),
    /// All keys that begin with a text.
    Prefix(String),
}

/// A key at a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// The value; `None` if the key was deleted.
    pub value: Option<Vec<u8>>,
    /// The revision of its last change.
    pub revision: i64,
}

/// The keys of a range at one revision of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The keys that exist.
    pub entries: Vec<Entry>,
    /// The revision of etcd. A watch from the next one misses no change.
    pub revision: i64,
}

/// Why a key is not set, or is not known to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutError {
    /// etcd refuses to set it, so it is not set.
    Refused(String),
    /// The answer of etcd is lost, so it may be set, now or later.
    Unanswered(String),
}

/// The changes of a range of keys, as they happen.
#[derive(Debug)]
pub struct Watch {
    responses: Streaming<WatchResponse>,
}

impl Session {
    /// Connects to the servers in turn, from number `first` on, and logs in.
    ///
    /// # Errors
    /// Why there is no session.
    pub async fn open(servers: &EtcdServers, first: usize) -> Result<Self, String> {
        let (link, origin) = Link::open(servers, first).await?;
        let mut session = Self { link, origin, login: servers.login.clone(), token: None };
        session.log_in().await?;
        Ok(session)
    }

    /// Opens a session and reads keys, over the servers in turn, from number `first` on, until one of them answers. A
    /// server that hangs still accepts connections.
    ///
    /// # Errors
    /// Why each server cannot be used.
    pub async fn open_and_get(
        servers: &EtcdServers,
        first: usize,
        keys: &KeyRange,
    ) -> Result<(Self, Snapshot), String> {
        let mut reasons: Vec<String> = Vec::new();
        let count = servers.addresses.len();
        for address in servers.addresses.iter().cycle().skip(first % count.max(1)).take(count) {
            let server = EtcdServers { addresses: vec![address.clone()], ..servers.clone() };
            let read = async {
                let session = Self::open(&server, 0).await?;
                let found = session.get(keys).await?;
                Ok((session, found))
            };
            match read.await {
                Ok(read) => return Ok(read),
                Err(reason) if reasons.contains(&reason) => {}
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    async fn log_in(&mut self) -> Result<(), String> {
        let (Some(user), Some(password)) = (&self.login.user, &self.login.password) else { return Ok(()) };
        let credentials = AuthenticateRequest { name: user.to_string(), password: password.reveal().to_owned() };
        let mut client = AuthClient::with_origin(self.link.sender.clone(), self.origin.clone());
        let token = answer(client.authenticate(Request::new(credentials))).await?.token;
        let mut token: MetadataValue<Ascii> = token.parse().map_err(|_| "the token of etcd is invalid")?;
        token.set_sensitive(true);
        self.token = Some(token);
        Ok(())
    }

    /// Logs in again if a call failed for this reason because its token has ended. Returns whether there is a new token.
    pub async fn renew_token(&mut self, reason: &str) -> bool {
        self.token.is_some() && is_token_refused(reason) && self.log_in().await.is_ok()
    }

    /// The address from which this process reaches the server.
    pub fn local_ip(&self) -> IpAddr {
        self.link.local
    }

    /// Reads keys.
    pub async fn get(&self, keys: &KeyRange) -> Result<Snapshot, String> {
        let (key, range_end) = keys.bounds();
        let mut client = KvClient::with_origin(self.link.sender.clone(), self.origin.clone());
        client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
        let found = answer(client.range(self.request(RangeRequest { key, range_end }))).await?;
        let entry = |KeyValue { key, mod_revision, value }| Entry { key, value: Some(value), revision: mod_revision };
        let revision = found.header.map_or(0, |header| header.revision);
        Ok(Snapshot { entries: found.kvs.into_iter().map(entry).collect(), revision })
    }

    /// Sets a key. It is deleted when `lease` ends, if there is one.
    pub async fn put(&self, key: &str, value: Vec<u8>, lease: Option<i64>) -> Result<(), String> {
        let mut client = KvClient::with_origin(self.link.sender.clone(), self.origin.clone());
        let put = PutRequest { key: key.into(), value, lease: lease.unwrap_or(0) };
        answer(client.put(self.request(put))).await.map(|_| ())
    }

    /// Deletes keys.
    pub async fn delete(&self, keys: &KeyRange) -> Result<(), String> {
        let (key, range_end) = keys.bounds();
        let mut client = KvClient::with_origin(self.link.sender.clone(), self.origin.clone());
        answer(client.delete_range(self.request(DeleteRangeRequest { key, range_end }))).await.map(|_| ())
    }

    /// Sets a key if the revision of its last change is still `revision`, which is 0 for a key that does not exist.
    /// Returns whether it did.
    pub async fn put_if(&self, key: &str, value: Vec<u8>, revision: i64) -> Result<bool, PutError> {
        let target_union = Some(TargetUnion::ModRevision(revision));
        let (result, target) = (CompareResult::Equal.into(), CompareTarget::Mod.into());
        let compare = vec![Compare { result, target, key: key.into(), target_union }];
        let put = PutRequest { key: key.into(), value, lease: 0 };
        let success = vec![RequestOp { request: Some(request_op::Request::RequestPut(put)) }];
        let mut client = KvClient::with_origin(self.link.sender.clone(), self.origin.clone());
        let call = client.txn(self.request(TxnRequest { compare, success, failure: Vec::new() }));
        let done = timeout(CALL_TIMEOUT, call).await.map_err(|_| PutError::Unanswered(LATE.to_owned()))?;
        done.map(|done| done.into_inner().succeeded).map_err(|status| PutError::of(&status))
    }

    /// Watches keys, from the changes of revision `from` on.
    pub async fn watch(&self, keys: &KeyRange, from: i64) -> Result<Watch, String> {
        let (key, range_end) = keys.bounds();
        let create = WatchCreateRequest { key, range_end, start_revision: from };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        // The watch lasts as long as its requests do.
        let requests = tokio_stream::once(create).chain(tokio_stream::pending());
        let mut client = WatchClient::with_origin(self.link.sender.clone(), self.origin.clone());
        client = client.max_decoding_message_size(MESSAGE_BYTES_MAX);
        Ok(Watch { responses: answer(client.watch(self.request(requests))).await? })
    }

    /// Begins a lease of `ttl`, in whole seconds, and returns its number.
    pub async fn grant(&self, ttl: Duration) -> Result<i64, String> {
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX);
        let mut client = LeaseClient::with_origin(self.link.sender.clone(), self.origin.clone());
        let granted = answer(client.lease_grant(self.request(LeaseGrantRequest { ttl: seconds, id: 0 }))).await?;
        if granted.error.is_empty() { Ok(granted.id) } else { Err(granted.error) }
    }

    /// Prolongs a lease by its whole time. Returns whether it still existed.
    pub async fn keep_alive(&self, lease: i64) -> Result<bool, String> {
        let requests = tokio_stream::once(LeaseKeepAliveRequest { id: lease });
        let mut client = LeaseClient::with_origin(self.link.sender.clone(), self.origin.clone());
        let mut answers = answer(client.lease_keep_alive(self.request(requests))).await?;
        let first = timeout(CALL_TIMEOUT, answers.message()).await.map_err(|_| LATE)?;
        let first = first.map_err(|status| reason(&status))?;
        Ok(first.is_some_and(|answer| answer.ttl > 0))
    }

    /// A request for a server that has a leader: another one could answer with old values.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

impl KeyRange {
    /// The first key, and the end of the range; no end for one key.
    fn bounds(&self) -> (Vec<u8>, Vec<u8>) {
        match self {
            Self::Key(key) => (key.clone().into_bytes(), Vec::new()),
            Self::Prefix(prefix) => (prefix.clone().into_bytes(), after(prefix.as_bytes())),
        }
    }
}

/// The first key after all keys with this prefix. Text has no byte 0xff, so there is one.
fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    match end.last_mut() {
        Some(last) => *last = last.saturating_add(1),
        // A single zero byte stands for the end of all keys.
        None => end.push(0),
    }
    end
}

impl Watch {
    /// Waits for the next changes. They belong to whole revisions, in their order.
    ///
    /// # Errors
    /// Why the watch has ended.
    pub async fn changes(&mut self) -> Result<Vec<Entry>, String> {
        loop {
            let message = self.responses.message().await.map_err(|status| reason(&status))?;
            let message = message.ok_or("etcd has ended the watch")?;
            if message.canceled || message.compact_revision > 0 {
                return Err(match (message.compact_revision, message.cancel_reason) {
                    (1.., _) => "the history was compacted while the watch was away".to_owned(),
                    (_, reason) if reason.is_empty() => "etcd has ended the watch".to_owned(),
                    (_, reason) => format!("etcd has ended the watch: {reason}"),
                });
            }
            if !message.events.is_empty() {
                return Ok(message.events.into_iter().filter_map(entry).collect());
            }
        }
    }
}

fn entry(event: Event) -> Option<Entry> {
    let is_deletion = event.r#type == i32::from(EventType::Delete);
    let KeyValue { key, mod_revision, value } = event.kv?;
    Some(Entry { key, value: (!is_deletion).then_some(value), revision: mod_revision })
}

const LATE: &str = "etcd does not answer in time";

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, String> {
    match timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(reason(&status)),
        Err(_) => Err(LATE.to_owned()),
    }
}

impl PutError {
    fn of(status: &Status) -> Self {
        use Code::{FailedPrecondition, InvalidArgument, PermissionDenied, ResourceExhausted, Unauthenticated};
        let is_refusal = matches!(
            status.code(),
            FailedPrecondition | InvalidArgument | PermissionDenied | ResourceExhausted | Unauthenticated
        );
        // A status with a source is of the connection, not of etcd.
        let is_refused = is_refusal && status.source().is_none();
        if is_refused { Self::Refused(reason(status)) } else { Self::Unanswered(reason(status)) }
    }
}

/// The message of a failed call, or the cause of its failure.
fn reason(status: &Status) -> String {
    let mut cause = status.source();
    while let Some(next) = cause.and_then(std::error::Error::source) {
        cause = Some(next);
    }
    cause.map_or_else(|| status.message().to_owned(), |cause| format!("{}: {cause}", status.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Statuses of etcd (`rpctypes/error.go`), and of a connection.
    #[test]
    fn a_put_without_an_answer_may_be_made() {
        let lost = Status::from_error(Box::new(std::io::Error::other("reset")));
        for (status, is_refused) in [
            (Status::invalid_argument("etcdserver: request is too large"), true),
            (Status::permission_denied("etcdserver: permission denied"), true),
            (Status::unauthenticated("etcdserver: invalid auth token"), true),
            (Status::resource_exhausted("etcdserver: mvcc: database space exceeded"), true),
            (Status::unavailable("etcdserver: request timed out"), false),
            (Status::unavailable("etcdserver: leader changed"), false),
            (Status::deadline_exceeded("context deadline exceeded"), false),
            (Status::unknown("raft proposal dropped"), false),
            (lost, false),
        ] {
            let error = PutError::of(&status);
            assert_eq!(matches!(error, PutError::Refused(_)), is_refused, "{error:?}");
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        for (prefix, end) in [("/weir/", &b"/weir0"[..]), ("a", b"b"), ("é", b"\xc3\xaa"), ("", b"\0")] {
            assert_eq!(after(prefix.as_bytes()), end, "{prefix:?}");
        }
        assert_eq!(KeyRange::Key("a".to_owned()).bounds(), (b"a".to_vec(), Vec::new()));
    }
}
