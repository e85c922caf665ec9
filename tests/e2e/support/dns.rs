//! A name server with given records.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub const A: u16 = 1;
pub const AAAA: u16 = 28;
const SOA: u16 = 6;
const SRV: u16 = 33;
pub const SERVFAIL: u8 = 2;
pub const REFUSED: u8 = 5;
const NXDOMAIN: u8 = 3;

/// A record without its name.
#[derive(Clone)]
pub enum Record {
    A { ttl_s: u32, address: Ipv4Addr },
    Aaaa { ttl_s: u32, address: Ipv6Addr },
    Srv { ttl_s: u32, priority: u16, weight: u16, port: u16, target: &'static str },
}

/// The response for a name.
#[derive(Clone)]
pub enum DnsAnswer {
    Records(Vec<Record>),
    /// The server has this code for this type, and records of others.
    Failing(u16, u8, Vec<Record>),
    /// No response: the query times out.
    Silent,
}

/// The name server. Its thread ends with the process.
pub struct Dns {
    address: SocketAddr,
    names: Arc<Mutex<HashMap<&'static str, DnsAnswer>>>,
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
}

impl Dns {
    pub fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let names = Arc::<Mutex<HashMap<&'static str, DnsAnswer>>>::default();
        let asked = Arc::<Mutex<Vec<(String, Instant)>>>::default();
        let (known, noted) = (Arc::clone(&names), Arc::clone(&asked));
        std::thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut packet) {
                let Some((name, kind, end)) = question(&packet[..len]) else { continue };
                noted.lock().unwrap().push((name.clone(), Instant::now()));
                let said = known.lock().unwrap().get(&*name).cloned();
                if let Some(answer) = answer(&packet[..end], kind, said) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { address, names, asked }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets the response for a name.
    pub fn tell(&self, name: &'static str, known: DnsAnswer) {
        self.names.lock().unwrap().insert(name, known);
    }

    /// Sets the addresses of a name.
    pub fn addresses(&self, name: &'static str, ttl_s: u32, addresses: &[Ipv4Addr]) {
        let records = addresses.iter().map(|address| Record::A { ttl_s, address: *address });
        self.tell(name, DnsAnswer::Records(records.collect()));
    }

    /// The instants of all queries for a name.
    pub fn asked(&self, name: &str) -> Vec<Instant> {
        self.asked.lock().unwrap().iter().filter(|(asked, _)| asked == name).map(|(_, at)| *at).collect()
    }
}

/// The name, the type, and the offset after them.
fn question(packet: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let len = usize::from(*packet.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(packet.get(at..at + len)?).to_lowercase());
        at += len;
    }
    let kind = u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]);
    Some((labels.join("."), kind, at + 4))
}

/// The response to a query; none for silence.
fn answer(asked: &[u8], kind: u16, known: Option<DnsAnswer>) -> Option<Vec<u8>> {
    let (code, records) = match known {
        Some(DnsAnswer::Silent) => return None,
        Some(DnsAnswer::Failing(failing, code, _)) if failing == kind => (code, Vec::new()),
        Some(DnsAnswer::Records(records) | DnsAnswer::Failing(_, _, records)) => (0, records),
        None => (NXDOMAIN, Vec::new()),
    };
    let data: Vec<_> = records.iter().filter(|record| record.kind() == kind).map(Record::data).collect();
    let is_empty = data.is_empty();
    let mut packet = asked.to_vec();
    packet[2] = 0x84 | asked[2] & 1; // a response, with authority
    packet[3] = 0x80 | code;
    packet[6..8].copy_from_slice(&u16::try_from(data.len()).unwrap().to_be_bytes());
    packet[8..10].copy_from_slice(&u16::from(is_empty).to_be_bytes());
    packet[10..12].fill(0);
    let mut put = |kind: u16, ttl_s: u32, data: &[u8]| {
        packet.extend([0xc0, 12]); // a pointer to the name in the query
        for half in [kind, 1] {
            packet.extend(half.to_be_bytes());
        }
        packet.extend(ttl_s.to_be_bytes());
        packet.extend(u16::try_from(data.len()).unwrap().to_be_bytes());
        packet.extend(data);
    };
    for (ttl_s, data) in &data {
        put(kind, *ttl_s, data);
    }
    if is_empty {
        let numbers = [1_u32, 2, 3, 4, 1].map(u32::to_be_bytes).concat();
        put(SOA, 1, &[&[0, 0][..], &numbers].concat());
    }
    Some(packet)
}

impl Record {
    fn kind(&self) -> u16 {
        match self {
            Self::A { .. } => A,
            Self::Aaaa { .. } => AAAA,
            Self::Srv { .. } => SRV,
        }
    }

    fn data(&self) -> (u32, Vec<u8>) {
        match self {
            Self::A { ttl_s, address } => (*ttl_s, address.octets().to_vec()),
            Self::Aaaa { ttl_s, address } => (*ttl_s, address.octets().to_vec()),
            Self::Srv { ttl_s, priority, weight, port, target } => {
                let mut data: Vec<u8> = [*priority, *weight, *port].map(u16::to_be_bytes).concat();
                for label in target.split('.').filter(|label| !label.is_empty()) {
                    data.push(u8::try_from(label.len()).unwrap());
                    data.extend(label.bytes());
                }
                data.push(0);
                (*ttl_s, data)
            }
        }
    }
}
