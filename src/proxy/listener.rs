//! Sockets to accept on: for each address one for every worker (`SO_REUSEPORT`), all from one process.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

/// Connections that the kernel completes before they are accepted.
const BACKLOG: i32 = 4096;

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
        let socket = socket(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&bound)?;
        sockets.push(socket);
    }
    sockets
        .into_iter()
        .map(|socket| {
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        })
        .collect()
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for old connections to time out.
    socket.set_reuse_address(true)?;
    Ok(socket)
}
