//! Who is at the other end of a connection: hellos, and the proofs that both sides know the secret of the fleet.

use http::uri::Authority;

use crate::engine::policy::{PROOF_BYTES, ProofKey};
use crate::fleet::grpc::proto::weir::v1::Hello;

/// The version of the protocol.
const PROTOCOL: u32 = 1;

/// The length of a nonce.
pub(super) const NONCE_BYTES: usize = 32;

/// The longest address of a replica: a name of the DNS and a port.
const ADDRESS_BYTES_MAX: usize = 260;

/// A process of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ProcessId {
    /// A random number, which a process inherits if it takes over from another.
    pub(super) instance: u64,
    /// The instant of its start in unix nanoseconds.
    pub(super) epoch: u64,
}

/// One side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// It has opened the connection.
    Caller,
    /// It has accepted the connection.
    Listener,
}

/// The hellos of both sides, and the session that they were sent in.
#[derive(Clone, Debug)]
pub(super) struct Greetings {
    pub(super) caller: Hello,
    pub(super) listener: Hello,
    /// The channel binding of TLS; empty without TLS.
    pub(super) binding: Box<[u8]>,
}

/// Why a hello cannot be accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHello {
    /// Another version of the protocol.
    Protocol(u32),
    /// Something that no replica sends.
    Malformed,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Refusal {
    /// It has no valid certificate.
    Certificate,
    /// Another version of the protocol.
    Protocol,
    /// Another secret.
    Secret,
    /// The fleet has `max_replicas` replicas.
    Full,
}

/// The hello of a process that others reach at `address`.
pub(super) fn hello(process: ProcessId, address: Option<&str>, nonce: [u8; NONCE_BYTES]) -> Hello {
    let ProcessId { instance, epoch } = process;
    let (nonce, address) = (nonce.to_vec(), address.unwrap_or_default().to_owned());
    Hello { protocol: PROTOCOL, nonce, instance, epoch, address }
}

/// The process and the address in a hello.
///
/// # Errors
/// If the hello cannot be accepted.
pub(super) fn process_of(hello: &Hello) -> Result<(ProcessId, Option<Box<str>>), BadHello> {
    if hello.protocol != PROTOCOL {
        return Err(BadHello::Protocol(hello.protocol));
    }
    let is_address = hello.address.len() <= ADDRESS_BYTES_MAX && hello.address.parse::<Authority>().is_ok();
    if hello.nonce.len() != NONCE_BYTES || hello.epoch == 0 || !(hello.address.is_empty() || is_address) {
        return Err(BadHello::Malformed);
    }
    let process = ProcessId { instance: hello.instance, epoch: hello.epoch };
    Ok((process, is_address.then(|| hello.address.to_ascii_lowercase().into())))
}

impl Greetings {
    /// The proof of `side`.
    pub(super) fn prove(&self, side: Side, key: &ProofKey) -> [u8; PROOF_BYTES] {
        key.prove(&self.message(side))
    }

    /// Whether `proof` shows that `side` knows the secret.
    pub(super) fn is_proof(&self, side: Side, proof: &[u8], key: &ProofKey) -> bool {
        key.is_proof(&self.message(side), proof)
    }

    fn message(&self, side: Side) -> Vec<u8> {
        let mut message = vec![if side == Side::Caller { 1 } else { 2 }];
        for Hello { protocol, nonce, instance, epoch, address } in [&self.caller, &self.listener] {
            message.extend(protocol.to_be_bytes());
            message.extend(nonce);
            message.extend(instance.to_be_bytes());
            message.extend(epoch.to_be_bytes());
            message.extend(u32::try_from(address.len()).unwrap_or(u32::MAX).to_be_bytes());
            message.extend(address.as_bytes());
        }
        message.extend(&*self.binding);
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::FleetSecret;

    const CALLER: ProcessId = ProcessId { instance: 1, epoch: 2 };
    const LISTENER: ProcessId = ProcessId { instance: 3, epoch: 4 };

    /// A change of a value, with its name or result.
    type Change<N, T> = (N, fn(&mut T));

    fn greetings() -> Greetings {
        let caller = hello(CALLER, Some("10.0.0.1:8082"), [5; NONCE_BYTES]);
        Greetings { caller, listener: hello(LISTENER, None, [6; NONCE_BYTES]), binding: [7; 32].into() }
    }

    fn key(secret: &[u8]) -> ProofKey {
        FleetSecret::new(secret).unwrap().proof_key()
    }

    #[test]
    fn a_proof_is_of_one_side_secret_and_connection() {
        let (all, known) = (greetings(), key(b"0123456789abcdef0123456789abcdeX"));
        let proof = all.prove(Side::Caller, &known);
        assert!(all.is_proof(Side::Caller, &proof, &known));
        assert!(!all.is_proof(Side::Listener, &proof, &known), "a proof that is sent back");
        assert!(!all.is_proof(Side::Caller, &proof, &key(b"0123456789abcdef0123456789abcdeY")));
        assert!(!all.is_proof(Side::Caller, b"", &known));
        let changes: [Change<&str, Greetings>; 7] = [
            ("the nonce of the caller", |all| all.caller.nonce[0] ^= 1),
            ("the nonce of the listener", |all| all.listener.nonce[31] ^= 1),
            ("the instance", |all| all.caller.instance += 1),
            ("the epoch", |all| all.listener.epoch += 1),
            ("the address", |all| all.caller.address = "10.0.0.2:8082".into()),
            ("the session", |all| all.binding[0] ^= 1),
            ("no session", |all| all.binding = [].into()),
        ];
        for (what, change) in changes {
            let mut changed = greetings();
            change(&mut changed);
            assert!(!changed.is_proof(Side::Caller, &proof, &known), "{what}");
        }
    }

    #[test]
    fn hellos_that_no_replica_sends_are_refused() {
        let usual = || hello(CALLER, Some("Weir.internal:8082"), [5; NONCE_BYTES]);
        assert_eq!(process_of(&usual()), Ok((CALLER, Some("weir.internal:8082".into()))));
        assert_eq!(process_of(&hello(CALLER, None, [5; NONCE_BYTES])), Ok((CALLER, None)));
        let rows: [Change<BadHello, Hello>; 6] = [
            (BadHello::Protocol(2), |hello| hello.protocol = 2),
            (BadHello::Protocol(0), |hello| *hello = Hello::default()),
            (BadHello::Malformed, |hello| hello.nonce.truncate(31)),
            (BadHello::Malformed, |hello| hello.epoch = 0),
            (BadHello::Malformed, |hello| hello.address = "a b".into()),
            (BadHello::Malformed, |hello| hello.address = "a".repeat(261)),
        ];
        for (expected, change) in rows {
            let mut changed = usual();
            change(&mut changed);
            assert_eq!(process_of(&changed), Err(expected), "{changed:?}");
        }
    }
}
