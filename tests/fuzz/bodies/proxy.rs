//! The header of the PROXY protocol, versions 1 and 2, and what comes behind it.

use weir::transport::net::proxy_protocol::{V1_BYTES_MAX, V2_BYTES_MAX, parse};

pub fn run(bytes: &[u8]) {
    let outcome = parse(bytes);
    // However it is cut: nothing is decided too soon, and what is decided stays.
    for len in 0..bytes.len().min(V2_BYTES_MAX + 1) {
        let sooner = parse(&bytes[..len]);
        assert!(matches!(sooner, Ok(None)) || sooner == outcome, "{sooner:?} of {len} bytes became {outcome:?}");
    }
    if bytes.len() >= V2_BYTES_MAX {
        assert!(!matches!(outcome, Ok(None)), "nobody has to wait for more");
    }
    let Ok(Some(header)) = outcome else { return };
    let is_v1 = bytes.starts_with(b"PROXY ");
    assert!(header.len <= bytes.len() && header.len <= if is_v1 { V1_BYTES_MAX } else { V2_BYTES_MAX });
    // What comes behind it has no part in it.
    assert_eq!(parse(&bytes[..header.len]), outcome);
    assert_eq!(parse(&[&bytes[..header.len], b"GET / HTTP/1.1\r\n"].concat()), outcome);
}
