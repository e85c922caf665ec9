//! NTLM: a login by several requests on one connection to the service.

use std::collections::HashMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Mutex;

use crate::support::{Client, NEVER, Received, Upstream, Weir, over_h2};

/// The state of a login on one connection of the service.
#[derive(Clone, Copy, Default)]
enum Login {
    #[default]
    None,
    Challenged,
    Complete,
}

/// A service that authenticates connections by a handshake of three requests, as NTLM does: no credentials, `NTLM type1`,
/// `NTLM type3`. After that it takes each request on the connection for one of the user.
fn service() -> Upstream {
    let logins = Mutex::new(HashMap::<SocketAddr, Login>::new());
    Upstream::answering(move |request, stream| answer(&logins, request, stream))
}

fn answer(logins: &Mutex<HashMap<SocketAddr, Login>>, request: &Received, stream: &mut TcpStream) -> bool {
    let mut logins = logins.lock().unwrap();
    let login = logins.entry(stream.peer_addr().unwrap()).or_default();
    let credentials = request.header("authorization");
    let (next, head) = match (*login, credentials.as_deref()) {
        (_, Some("NTLM type1")) => (Login::Challenged, "401 Unauthorized\r\nwww-authenticate: NTLM type2"),
        (Login::Challenged, Some("NTLM type3")) | (Login::Complete, _) => (Login::Complete, "200 OK\r\nx-user: alice"),
        _ => (Login::None, "401 Unauthorized\r\nwww-authenticate: NTLM"),
    };
    *login = next;
    write!(stream, "HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n").is_ok()
}

/// Sends a GET with these credentials; empty for none. Returns the status.
fn get(client: &mut Client, credentials: &str) -> u16 {
    let line = if credentials.is_empty() { String::new() } else { format!("authorization: {credentials}\r\n") };
    client.send(format!("GET / HTTP/1.1\r\nhost: a\r\n{line}\r\n"));
    client.answer().status
}

const LOGIN: [(&str, u16); 5] = [("", 401), ("NTLM type1", 401), ("NTLM type3", 200), ("", 200), ("", 200)];

#[test]
fn a_login_completes_and_no_other_client_gets_its_connection() {
    let service = service();
    let weir = Weir::start(&service, NEVER);
    let mut clients = [(); 2].map(|()| Client::connect(weir.address()));
    for (credentials, expected) in LOGIN {
        assert_eq!(get(&mut clients[0], credentials), expected, "{credentials}");
        let mut stranger = Client::connect(weir.address());
        assert_eq!(get(&mut stranger, ""), 401, "a stranger after {credentials}");
    }
    // Each client connection has a connection of its own to the service.
    for (credentials, expected) in LOGIN {
        assert_eq!(get(&mut clients[1], credentials), expected, "{credentials}");
        assert!(get(&mut clients[0], "") == 200);
    }
    drop(clients);
    service.wait_until(|service| service.connections() == 0);
}

/// Answers on an authenticated connection are those of its user, whatever the request says: none is stored.
#[test]
fn an_answer_on_an_authenticated_connection_is_not_stored() {
    let service = service();
    let weir = Weir::start(&service, "[[limit]]\nname = 'l'\nkey = []\nrate = '5/h'\nstale = {}\n");
    let mut client = Client::connect(weir.address());
    for (credentials, expected) in LOGIN {
        assert_eq!(get(&mut client, credentials), expected, "{credentials}");
    }
    assert_eq!(get(&mut Client::connect(weir.address()), ""), 429);
    assert_eq!(weir.metric("weir_stale_stored_total{limit=\"l\"}"), 0.0);
}

#[test]
fn a_pinned_connection_without_a_request_makes_way_for_a_request_that_waits() {
    for from in [1, 2].map(|last| Ipv4Addr::new(127, 0, 0, last)) {
        let service = service();
        let config = Weir::config(&service, "", NEVER).replace("[upstream]", "[upstream]\nmax_connections = 1");
        let weir = Weir::start_as(&config);
        let mut client = Client::connect(weir.address());
        for (credentials, expected) in LOGIN {
            assert_eq!(get(&mut client, credentials), expected, "{credentials}");
        }
        let mut other = Client::connect_from(from, weir.address());
        assert_eq!(get(&mut other, ""), 401, "{from}");
        assert_eq!(get(&mut client, ""), 401, "it has to log in again");
        for (credentials, expected) in LOGIN {
            assert_eq!(get(&mut client, credentials), expected, "{credentials}");
        }
    }
}

#[test]
fn a_login_through_a_trusted_proxy_pins_nothing() {
    let service = service();
    let weir = Weir::start_with(&service, "trusted_proxies = [\"127.0.0.1\"]", NEVER);
    let mut proxy = Client::connect(weir.address());
    for (credentials, expected) in [("NTLM type1", 401), ("NTLM type3", 401), ("", 401)] {
        assert_eq!(get(&mut proxy, credentials), expected, "{credentials}");
        service.wait_until(|service| service.connections() == 0);
    }
}

#[test]
fn a_login_over_http2_pins_nothing() {
    let service = service();
    let weir = Weir::start(&service, NEVER);
    over_h2(weir.address(), async |mut client, _| {
        for credentials in ["NTLM type1", "NTLM type3"] {
            let head = http::Request::get("http://a/").header("authorization", credentials);
            assert_eq!(client.ask(head).await.unwrap().status, 401, "{credentials}");
        }
    });
    service.wait_until(|service| service.connections() == 0);
}
