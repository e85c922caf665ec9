//! Reads a remote configuration once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, ETAG, IF_NONE_MATCH};
use http::uri::Scheme;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::address::RemoteAddress;
use super::credentials::RemoteOptions;
use super::version::Version;
use crate::app::fetch::send;
use crate::fleet::etcd::{Entry, EtcdServers, KeyRange, Session, Snapshot};
use crate::transport::net::Protocol;
use crate::transport::net::tls::ClientTls;

/// The bound on the time of one reading, with the attempts at all servers.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest body; a configuration has at most 16 MiB.
const BYTES_MAX: usize = (16 << 20) + 1;

/// The place of a configuration, with the credentials for it.
#[derive(Clone, Debug)]
pub(super) enum Client {
    Etcd(EtcdKey),
    Http(Page),
}

/// A key of etcd.
#[derive(Clone, Debug)]
pub(super) struct EtcdKey {
    pub(super) servers: EtcdServers,
    pub(super) key: Arc<str>,
    source: Arc<Source>,
}

/// A document behind a URL.
#[derive(Clone, Debug)]
pub(super) struct Page {
    url: Uri,
    /// `None` without TLS.
    tls: Option<ClientTls>,
    authorization: Option<HeaderValue>,
    source: Arc<Source>,
}

/// An address, and the files with the credentials for it.
#[derive(Debug)]
struct Source {
    address: RemoteAddress,
    options: RemoteOptions,
}

impl Client {
    /// Reads the files of `options`.
    ///
    /// # Errors
    /// The file or variable that cannot be used.
    pub(super) fn new(address: &RemoteAddress, options: &RemoteOptions) -> Result<Self, String> {
        Self::of(&Arc::new(Source { address: address.clone(), options: options.clone() }))
    }

    /// Reads the files of `source`.
    fn of(source: &Arc<Source>) -> Result<Self, String> {
        let (Source { address, options }, of) = (&**source, Arc::clone(source));
        let tls = |is_tls: bool, protocol| match (is_tls, options.tls.is_empty()) {
            (true, _) => options.tls.read(protocol).map(Some),
            (false, true) => Ok(None),
            (false, false) => Err(format!("{address} is without TLS, so certificates have no effect")),
        };
        Ok(match address {
            RemoteAddress::Etcd { servers, is_tls, key } => {
                let servers = EtcdServers {
                    addresses: servers.clone(),
                    tls: tls(*is_tls, Protocol::H2)?,
                    login: options.login()?,
                };
                Self::Etcd(EtcdKey { servers, key: key.as_str().into(), source: of })
            }
            RemoteAddress::Http(url) => {
                let tls = tls(url.scheme() == Some(&Scheme::HTTPS), Protocol::Http1)?;
                Self::Http(Page { url: url.clone(), tls, authorization: options.authorization()?, source: of })
            }
        })
    }

    /// Reads the files of `source` on another thread: they may be on a network.
    async fn read_again(source: &Arc<Source>) -> Result<Self, String> {
        let source = Arc::clone(source);
        spawn_blocking(move || Self::of(&source)).await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Reads the newest version, on a runtime of its own.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub(super) fn fetch(&self) -> Result<Version, String> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
        let fetched = runtime.block_on(async {
            timeout(TIMEOUT, async {
                match self {
                    Self::Etcd(place) => {
                        let read = Session::open_and_get(&place.servers, 0, &place.range()).await;
                        read.map(|(_, found)| newest(found).0)
                    }
                    Self::Http(page) => page.get(None).await.map(|read| read.unwrap_or_else(unchanged)),
                }
            })
            .await
        });
        fetched.map_err(|_| "the answer takes too long".to_owned())?
    }
}

/// A server may answer 304 only to a condition, and there was none.
fn unchanged() -> Version {
    Version { revision: "".into(), content: Err("the server answers 304 to a request without a condition".into()) }
}

impl EtcdKey {
    /// Reads the key, and the revision of etcd.
    pub(super) async fn get(&self, session: &Session) -> Result<(Version, i64), String> {
        session.get(&self.range()).await.map(newest)
    }

    pub(super) fn range(&self) -> KeyRange {
        KeyRange::Key(self.key.to_string())
    }

    /// Takes the credentials that the files have now.
    ///
    /// # Errors
    /// The file that cannot be used. The known credentials stay.
    pub(super) async fn renew(&mut self) -> Result<(), String> {
        if let Client::Etcd(new) = Client::read_again(&self.source).await? {
            *self = new;
        }
        Ok(())
    }
}

/// The version of a key that was read, and the revision of etcd.
fn newest(Snapshot { entries, revision }: Snapshot) -> (Version, i64) {
    let version = match entries.into_iter().next() {
        Some(entry) => version(entry),
        None => Version::absent(revision, "the key does not exist"),
    };
    (version, revision)
}

/// The version of a key.
pub(super) fn version(entry: Entry) -> Version {
    match entry.value {
        Some(value) => Version::of(&entry.revision.to_string(), &value),
        None => Version::absent(entry.revision, "the key was deleted"),
    }
}

impl Page {
    /// Reads the document. `None` if it is the version `known`, as the server says.
    pub(super) async fn get(&self, known: Option<&Version>) -> Result<Option<Version>, String> {
        timeout(TIMEOUT, self.ask(known)).await.map_err(|_| "the answer takes too long".to_owned())?
    }

    /// As [`Self::get`]. After a failure, asks again if the files have other credentials now.
    pub(super) async fn get_or_renew(&mut self, known: Option<&Version>) -> Result<Option<Version>, String> {
        let reason = match self.get(known).await {
            Err(reason) => reason,
            read => return read,
        };
        match self.renew().await {
            Ok(true) => self.get(known).await,
            Ok(false) => Err(reason),
            Err(unreadable) => Err(format!("{reason}; {unreadable}")),
        }
    }

    /// Takes the credentials that the files have now. Returns whether they are others.
    ///
    /// # Errors
    /// The file that cannot be used. The known credentials stay.
    pub(super) async fn renew(&mut self) -> Result<bool, String> {
        let Client::Http(new) = Client::read_again(&self.source).await? else { return Ok(false) };
        let is_other = (&new.tls, &new.authorization) != (&self.tls, &self.authorization);
        *self = new;
        Ok(is_other)
    }

    async fn ask(&self, known: Option<&Version>) -> Result<Option<Version>, String> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/toml, text/plain, */*;q=0.1"));
        headers.extend(self.authorization.clone().map(|value| (AUTHORIZATION, value)));
        let tag = known.filter(|known| known.revision.contains('"'));
        headers.extend(tag.and_then(|known| Some((IF_NONE_MATCH, HeaderValue::from_str(&known.revision).ok()?))));
        let request = (Method::GET, headers, Bytes::new());
        let response = send(&self.url, self.tls.as_ref(), request, BYTES_MAX).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED if tag.is_some() => return Ok(None),
            status => return Err(format!("the status of the response is {status}")),
        }
        let tag = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|tag| tag.contains('"'));
        let revision = tag.map_or_else(|| format!("crc32-{:08x}", crc32fast::hash(response.body())), str::to_owned);
        Ok(Some(Version::of(&revision, response.body())))
    }
}
