//! Texts in the bodies and fields of local replies: JSON strings, and messages of gRPC.

use std::fmt::Write as _;
use std::io::Write;

/// Writes JSON strings with commas between them.
pub(super) fn write_names(body: &mut Vec<u8>, names: &[impl AsRef<str>]) {
    for (index, name) in names.iter().enumerate() {
        body.extend_from_slice(if index == 0 { b"\"" } else { b",\"" });
        let name_at = body.len();
        body.extend_from_slice(name.as_ref().as_bytes());
        escape(body, name_at);
        body.push(b'"');
    }
}

/// Escapes the text from `from` on for a JSON string (RFC 8259, section 7). Most texts need no escape.
pub(super) fn escape(json: &mut Vec<u8>, from: usize) {
    let needs_it = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
    // Without an early end, so that many bytes are tested at once.
    if !json[from..].iter().fold(false, |needed, byte| needed | needs_it(byte)) {
        return;
    }
    let text = json.split_off(from);
    for byte in text {
        match byte {
            b'"' | b'\\' => json.extend([b'\\', byte]),
            0..b' ' => {
                let _ = write!(json, "\\u{byte:04x}");
            }
            _ => json.push(byte),
        }
    }
}

/// Percent-encodes all bytes but printable ASCII, and `%`, as the gRPC protocol requires.
pub(super) fn grpc_message(text: &[u8]) -> String {
    let mut encoded = String::with_capacity(text.len());
    for &byte in text {
        if (0x20..=0x7e).contains(&byte) && byte != b'%' {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
