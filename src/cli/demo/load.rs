//! The load of `weir demo --load`: a bounded number of requests from several clients, the same in every run.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, HOST};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpSocket;
use tokio::time::sleep;

use crate::base::split_mix::{STEP, mix};

/// Clients, each with an address and a connection of its own.
const CLIENTS: u8 = 6;
/// Requests of one client: about ten minutes.
const REQUESTS: u64 = 3000;
/// The longest pause of a client between two requests; the mean is half of it.
const PAUSE_MS_MAX: u64 = 400;
/// The first address of the clients. The commands of the guide come from 127.0.0.1, so their units are their own.
const FIRST_ADDRESS: u8 = 11;
/// Pages of the shop. The first ones get most requests.
const PAGES: u64 = 8;

/// Sends requests to the demo at `address`, with the tokens of sellers. Ends with the last request.
pub(super) async fn send(address: SocketAddr, tokens: Vec<String>) {
    let tokens: Arc<[String]> = tokens.into();
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| tokio::spawn(run_client(address, client, Arc::clone(&tokens)))).collect();
    for client in clients {
        if let Ok(Err(error)) = client.await {
            tracing::debug!(%error, "a client of the demo ended");
        }
    }
}

async fn run_client(
    address: SocketAddr,
    client: u8,
    tokens: Arc<[String]>,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Some systems have no further addresses of this host. Then the limit of /ip is left to the guide.
    let own = SocketAddr::from((Ipv4Addr::new(127, 0, 0, FIRST_ADDRESS + client), 0));
    let has_address = address.ip() == Ipv4Addr::LOCALHOST && socket.bind(own).is_ok();
    let stream = socket.connect(address).await?;
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    for sent in 0..REQUESTS {
        let number = mix(STEP.wrapping_mul(u64::from(client) * REQUESTS + sent + 1));
        let (path, seller) = target(number, has_address);
        let mut request = Request::get(path).header(HOST, address.to_string());
        if let Some(token) = seller.and_then(|seller| tokens.get(seller % tokens.len().max(1))) {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let answer = requests.send_request(request.body(Empty::<Bytes>::new())?).await?;
        answer.into_body().collect().await?;
        sleep(Duration::from_millis(number % PAUSE_MS_MAX)).await;
    }
    Ok(())
}

/// The path of a request, and the seller who sends it, by a pseudo-random number.
#[expect(clippy::cast_possible_truncation)] // a choice of few
fn target(number: u64, has_address: bool) -> (String, Option<usize>) {
    let (kind, choice) = (number >> 32 & 15, number >> 40);
    match kind {
        0..3 if has_address => ("/ip".to_owned(), None),
        0..8 => ("/seller".to_owned(), Some(choice as usize & 0xff)),
        // The least of two choices: low numbers are more frequent.
        _ => (format!("/shop/{}", (choice % PAGES).min(choice / PAGES % PAGES)), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_of_three_kinds() {
        let all: Vec<_> = (0..1000).map(|step| target(mix(STEP.wrapping_mul(step)), true)).collect();
        let count = |start: &str| all.iter().filter(|(path, _)| path.starts_with(start)).count();
        let [ip, seller, shop] = ["/ip", "/seller", "/shop/"].map(count);
        assert!(ip > 100 && seller > 200 && shop > 400 && ip + seller + shop == 1000, "{ip} {seller} {shop}");
        assert!(count("/shop/0") > 2 * count("/shop/6"));
        assert!(all.iter().all(|(path, seller)| (path == "/seller") == seller.is_some()));
        assert!((0..1000).all(|step| target(mix(STEP.wrapping_mul(step)), false).0 != "/ip"));
    }
}
