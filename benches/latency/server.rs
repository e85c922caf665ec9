//! A server that answers everything alike, so that the generator can be tried without anything else.

use std::io;
use std::net::SocketAddr;
use std::thread;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n";

/// Starts it on a thread of its own, which ends with the process; gives where it listens.
///
/// # Errors
///
/// If it cannot listen.
pub fn start() -> io::Result<SocketAddr> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        runtime.block_on(async {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream));
            }
        });
    });
    Ok(address)
}

/// The generator has one request on a connection at a time, so its end is the end of what was read.
async fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut read = Vec::new();
    while stream.read_buf(&mut read).await? > 0 {
        if read.ends_with(b"\r\n\r\n") {
            read.clear();
            stream.write_all(ANSWER).await?;
        }
    }
    Ok(())
}
