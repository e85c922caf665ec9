//! Listening sockets of one process: one for each worker and address (`SO_REUSEPORT`), one for each Unix path.

use std::fs::Permissions;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, fs, io};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// Length of the queue of connections that the kernel completed and no worker accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// Bytes of the path of a Unix socket, without the terminating zero.
pub const SOCKET_PATH_MAX: usize = 107;

/// The peer address of every Unix connection: a process on this host.
pub(crate) const LOCAL_PEER: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// Address and port.
    Tcp(SocketAddr),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl ListenAddress {
    /// The port of `[::]`, whose sockets can have the port of IPv4, too; `None` if the system chooses it.
    pub fn port_of_all_v6(&self) -> Option<u16> {
        let Self::Tcp(SocketAddr::V6(address)) = self else { return None };
        (address.ip().is_unspecified() && address.port() > 0).then(|| address.port())
    }

    /// Whether [`bind`], which binds exclusively first, cannot bind both: `0.0.0.0` has each IPv4 address of its port, and
    /// `[::]` each IPv6 address.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (Self::Tcp(one), Self::Tcp(other)) = (self, other) else { return self == other };
        let has_all = one.ip().is_unspecified() || other.ip().is_unspecified();
        one.port() == other.port() && one.is_ipv4() == other.is_ipv4() && (has_all || one == other)
    }

    /// Whether a connection of this machine to `address` comes to this listener.
    pub fn takes(&self, address: SocketAddr) -> bool {
        let Self::Tcp(own) = self else { return false };
        let is_all = own.ip().is_unspecified() && (own.is_ipv6() || address.is_ipv4());
        own.port() == address.port() && (own.ip() == address.ip() || is_all && address.ip().is_loopback())
    }

    /// Whether it is an address of IPv4 with this port.
    pub fn is_v4(&self, port: u16) -> bool {
        matches!(self, Self::Tcp(SocketAddr::V4(address)) if address.port() == port)
    }

    /// The address that a client on this machine connects to; `None` for a Unix socket. The address to listen on may stand
    /// for all addresses.
    pub fn reachable(&self) -> Option<SocketAddr> {
        let Self::Tcp(address) = self else { return None };
        let ip = match address.ip() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        Some(SocketAddr::new(ip, address.port()))
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// On an IP address.
    Tcp(TcpListener),
    /// On a Unix path.
    Unix(UnixListener),
}

impl Listener {
    /// Adopts a socket that another process has bound, and returns its address.
    ///
    /// # Errors
    ///
    /// If it does not listen, or is a Unix socket without a path.
    pub fn from_fd(socket: OwnedFd) -> io::Result<(ListenAddress, Self)> {
        let about = SockRef::from(&socket);
        if !about.is_listener()? {
            return Err(io::Error::other("the socket does not listen"));
        }
        about.set_nonblocking(true)?;
        let address = about.local_addr()?;
        if let Some(address) = address.as_socket() {
            return Ok((ListenAddress::Tcp(address), Self::Tcp(socket.into())));
        }
        let path = address.as_pathname().ok_or_else(|| io::Error::other("the Unix socket has no path"))?;
        Ok((ListenAddress::Unix(path.to_owned()), Self::Unix(socket.into())))
    }

    /// A second handle of the socket.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// The file of a Unix socket. Removed on drop, unless it was replaced or belongs to another process.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: FileIdentity,
    is_disowned: AtomicBool,
}

impl SocketFile {
    /// The file of a socket that another process has bound. It gets `mode`, and is removed on drop only after
    /// [`take_ownership`](Self::take_ownership).
    pub fn inherited(path: &Path, mode: u32) -> io::Result<Self> {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        let file = Self::at(path)?;
        file.disown();
        Ok(file)
    }

    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)?, is_disowned: AtomicBool::new(false) })
    }

    /// Whether the file at the path is still the one that was bound.
    pub fn is_unchanged(&self) -> bool {
        identity(&self.path).is_ok_and(|now| now == self.identity)
    }

    /// Leaves the file to another process: it is not removed on drop.
    pub fn disown(&self) {
        self.is_disowned.store(true, Ordering::Release);
    }

    /// Takes the file over: it is removed on drop.
    pub fn take_ownership(&self) {
        self.is_disowned.store(false, Ordering::Release);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_disowned.load(Ordering::Acquire) && self.is_unchanged() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device, inode and time of change. Inodes are reused, so the time is needed.
type FileIdentity = (u64, u64, i64, i64);

fn identity(path: &Path) -> io::Result<FileIdentity> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

/// Binds `workers` sockets on `address`. The first one has the actual port if `address` has port 0.
///
/// The first socket is bound exclusively, and shares its address afterwards. So an address on which another process
/// listens is an error, even if that process would share it. With `is_only_v6`, sockets of `[::]` leave the port of IPv4
/// to others.
pub fn bind(address: SocketAddr, is_only_v6: bool, workers: usize) -> io::Result<Vec<TcpListener>> {
    let first = socket(address, is_only_v6)?;
    first.bind(&address.into())?;
    first.set_reuse_port(true)?;
    let bound = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(shared_socket(&bound, address, is_only_v6)?);
    }
    sockets.into_iter().map(listen).collect()
}

/// Binds `more` sockets on `address`, which this user already shares by `first`.
pub fn bind_additional(first: &TcpListener, address: SocketAddr, more: usize) -> io::Result<Vec<TcpListener>> {
    let bound = address.into();
    let is_only_v6 = has_only_v6(first);
    let sockets = (0..more).map(|_| shared_socket(&bound, address, is_only_v6)).collect::<io::Result<Vec<_>>>()?;
    sockets.into_iter().map(listen).collect()
}

/// Whether a socket of IPv6 leaves the port of IPv4 to others.
pub fn has_only_v6(socket: &TcpListener) -> bool {
    SockRef::from(socket).only_v6().unwrap_or(false)
}

fn shared_socket(bound: &SockAddr, address: SocketAddr, is_only_v6: bool) -> io::Result<Socket> {
    let socket = socket(address, is_only_v6)?;
    socket.set_reuse_port(true)?;
    socket.bind(bound)?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr, is_only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if is_only_v6 && address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // A restart must not wait until old connections time out.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Binds a socket on `path`, whose file gets `mode`. A stale socket file is replaced.
///
/// # Errors
///
/// If a process listens on `path`, or `path` is not a socket.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::at(path)?;
    // Before a client can connect.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), file))
}

/// Lets the kernel name this process as the peer of each new connection to `socket`, which another process may have
/// bound.
pub fn name_this_process(socket: &UnixListener) -> io::Result<()> {
    // Each call of `listen` replaces the credentials that the socket shows.
    SockRef::from(socket).listen(BACKLOG)
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file is not a socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // A process listens, or the result is unknown.
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.sock");
        drop(UnixListener::bind(&path).unwrap()); // the file stays
        let (socket, file) = bind_unix(&path, 0o640).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        let kind = bind_unix(&path, 0o640).map_err(|error| error.kind()).err();
        assert_eq!(kind, Some(io::ErrorKind::AddrInUse), "a process listens");
        assert!(UnixStream::connect(&path).is_ok());
        drop((socket, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_disowned_file_stays_until_it_is_owned_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.sock");
        let (socket, file) = bind_unix(&path, 0o640).unwrap();
        let (place, other) = Listener::from_fd(socket.try_clone().unwrap().into()).unwrap();
        assert_eq!(place, ListenAddress::Unix(path.clone()));
        let taken = SocketFile::inherited(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        drop(SocketFile::inherited(&path, 0o600).unwrap());
        assert!(taken.is_unchanged() && path.exists(), "a failed takeover leaves the file");
        file.disown();
        drop((socket, file));
        assert!(UnixStream::connect(&path).is_ok() && path.exists());
        taken.take_ownership();
        drop((other, taken));
        assert!(!path.exists());
    }

    /// Also though the sockets of an address share it.
    #[test]
    fn addresses_in_common_cannot_be_bound() {
        const ALL: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
        const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
        for (one, other, overlap) in [
            (ALL, Ipv4Addr::LOCALHOST, true),
            (Ipv4Addr::LOCALHOST, ALL, true),
            (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST, true),
            (Ipv4Addr::LOCALHOST, OTHER, false),
        ] {
            let sockets = bind((one, 0).into(), false, 2).unwrap();
            let bound = sockets.first().unwrap().local_addr().unwrap();
            let other = (other, bound.port()).into();
            assert_eq!(bind(other, false, 2).is_err(), overlap, "{bound} {other}");
            assert_eq!(ListenAddress::Tcp(bound).overlaps(&ListenAddress::Tcp(other)), overlap, "{bound} {other}");
        }
    }

    #[test]
    fn only_listening_sockets_are_adopted() {
        let stream = UnixStream::pair().unwrap().0;
        assert!(Listener::from_fd(stream.into()).is_err());
        let sockets = bind((Ipv4Addr::LOCALHOST, 0).into(), false, 2).unwrap();
        let first = sockets.first().unwrap();
        let address = first.local_addr().unwrap();
        let (place, _) = Listener::from_fd(first.try_clone().unwrap().into()).unwrap();
        assert_eq!(place, ListenAddress::Tcp(address));
        assert_eq!(bind_additional(first, address, 3).unwrap().len(), 3);
    }

    #[test]
    fn only_sockets_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(bind_unix(&path, 0o600).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"data");
        // A symbolic link and its target stay, too.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(bind_unix(&link, 0o600).is_err());
        assert!(link.exists() && path.exists());
    }

    #[test]
    fn a_replaced_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.sock");
        let (first, file) = bind_unix(&path, 0o600).unwrap();
        fs::rename(&path, folder.path().join("old")).unwrap();
        let (second, other) = bind_unix(&path, 0o600).unwrap();
        drop((first, file));
        assert!(path.exists());
        drop((second, other));
        assert!(!path.exists());
    }
}
