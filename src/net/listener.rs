//! Sockets to accept on, all from one process: for each address one for every worker (`SO_REUSEPORT`), for each path
//! one that all workers share.

use std::fs::Permissions;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fmt, fs, io};

use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

/// Connections that the kernel completes before they are accepted.
pub(crate) const BACKLOG: i32 = 4096;

/// Bytes of a path that the kernel takes for a socket, without the zero behind it.
pub const SOCKET_PATH_MAX: usize = 107;

/// Who is at the other end of a Unix socket, which has no address: somebody on this host.
pub(crate) const LOCAL_PEER: SocketAddr = SocketAddr::V4(std::net::SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

/// Where connections come in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Listen {
    /// Address and port.
    Tcp(SocketAddr),
    /// The file that stands for a Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that listens.
#[derive(Debug)]
pub enum Listener {
    /// On an address.
    Tcp(TcpListener),
    /// On a path.
    Unix(UnixListener),
}

impl Listener {
    /// One that another process has bound, and what it is bound to. One that does not listen is an error.
    pub fn of_other(socket: OwnedFd) -> io::Result<(Listen, Self)> {
        let about = SockRef::from(&socket);
        if !about.is_listener()? {
            return Err(io::Error::other("a socket that does not listen"));
        }
        about.set_nonblocking(true)?;
        let address = about.local_addr()?;
        if let Some(address) = address.as_socket() {
            return Ok((Listen::Tcp(address), Self::Tcp(socket.into())));
        }
        let path = address.as_pathname().ok_or_else(|| io::Error::other("a Unix socket without a file"))?;
        Ok((Listen::Unix(path.to_owned()), Self::Unix(socket.into())))
    }

    /// Another handle of the same socket.
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

/// The file of a Unix socket. Removed when this is dropped, if it is still the same one and was not left to another.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
    is_left: AtomicBool,
}

impl SocketFile {
    /// That of a socket which another process has bound and may leave to this one; it gets `mode`. Until it is its
    /// [own](Self::own) it stays.
    pub fn of_other(path: &Path, mode: u32) -> io::Result<Self> {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
        let file = Self::at(path)?;
        file.leave();
        Ok(file)
    }

    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)?, is_left: AtomicBool::new(false) })
    }

    /// Whether it is still the same one.
    pub fn is_there(&self) -> bool {
        identity(&self.path).is_ok_and(|now| now == self.identity)
    }

    /// Leaves it to whoever has the socket.
    pub fn leave(&self) {
        self.is_left.store(true, Ordering::Release);
    }

    /// Leaves it to nobody.
    pub fn own(&self) {
        self.is_left.store(false, Ordering::Release);
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_left.load(Ordering::Acquire) && self.is_there() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Device, number, and when it was made: numbers are used again.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
}

/// Sockets on `address` for `workers` workers, the first of which says which port it is if `address` says 0.
///
/// The first is bound alone and only then opened to the others, so that an address that another process
/// listens on is an error, even if that process would share it.
pub fn bind(address: SocketAddr, workers: usize) -> io::Result<Vec<TcpListener>> {
    let first = socket(address)?;
    first.bind(&address.into())?;
    first.set_reuse_port(true)?;
    let bound = first.local_addr()?;
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(beside(&bound, address)?);
    }
    sockets.into_iter().map(listen).collect()
}

/// So many more sockets on `address`, where this user has some that share it.
pub fn bind_beside(address: SocketAddr, more: usize) -> io::Result<Vec<TcpListener>> {
    let bound = address.into();
    let sockets = (0..more).map(|_| beside(&bound, address)).collect::<io::Result<Vec<_>>>()?;
    sockets.into_iter().map(listen).collect()
}

fn beside(bound: &SockAddr, address: SocketAddr) -> io::Result<Socket> {
    let socket = socket(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(bound)?;
    Ok(socket)
}

fn listen(socket: Socket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for old connections to time out.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// A socket on `path`, whose file has `mode`. A file that a process left behind makes way; one
/// on which somebody listens, or that is no socket, is an error.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile::at(path)?;
    // Before anybody can connect.
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((socket.into(), file))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // It listens, or nobody can tell.
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_nobody_listens_on_makes_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.sock");
        drop(UnixListener::bind(&path).unwrap()); // leaves its file
        let (socket, file) = bind_unix(&path, 0o640).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o640);
        let kind = bind_unix(&path, 0o640).map_err(|error| error.kind()).err();
        assert_eq!(kind, Some(io::ErrorKind::AddrInUse), "somebody listens");
        assert!(UnixStream::connect(&path).is_ok());
        drop((socket, file));
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_left_stays_until_it_is_owned() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weir.sock");
        let (socket, file) = bind_unix(&path, 0o640).unwrap();
        let (place, other) = Listener::of_other(socket.try_clone().unwrap().into()).unwrap();
        assert_eq!(place, Listen::Unix(path.clone()));
        let taken = SocketFile::of_other(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        drop(SocketFile::of_other(&path, 0o600).unwrap());
        assert!(taken.is_there() && path.exists(), "who was given it and fails leaves it");
        file.leave();
        drop((socket, file));
        assert!(UnixStream::connect(&path).is_ok() && path.exists());
        taken.own();
        drop((other, taken));
        assert!(!path.exists());
    }

    #[test]
    fn only_what_listens_is_taken() {
        let stream = UnixStream::pair().unwrap().0;
        assert!(Listener::of_other(stream.into()).is_err());
        let sockets = bind((Ipv4Addr::LOCALHOST, 0).into(), 2).unwrap();
        let first = sockets.first().unwrap();
        let address = first.local_addr().unwrap();
        let (place, _) = Listener::of_other(first.try_clone().unwrap().into()).unwrap();
        assert_eq!(place, Listen::Tcp(address));
        assert_eq!(bind_beside(address, 3).unwrap().len(), 3);
    }

    #[test]
    fn nothing_but_a_socket_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(bind_unix(&path, 0o600).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"data");
        // Nor what a link points to, or the link.
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(bind_unix(&link, 0o600).is_err());
        assert!(link.exists() && path.exists());
    }

    #[test]
    fn a_file_that_took_its_place_stays() {
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
