//! The encoder of response heads: literals without indexing, and names of the static table.
//!
//! Strings stay plain: the Huffman code saves a fifth of the bytes and costs more than the rest of the head.

use super::table::static_name;

/// A dynamic table of no bytes (RFC 7541, section 6.3). At the front of the first block it holds for all blocks, whatever
/// size the peer allows.
pub(in crate::transport::http2) const NO_TABLE: u8 = 0x20;

/// The index of `:status` in the static table.
const STATUS: u8 = 8;

/// Writes `:status`.
pub(in crate::transport::http2) fn status(out: &mut Vec<u8>, status: u16) {
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            out.push(STATUS);
            return string(out, itoa::Buffer::new().format(status).as_bytes());
        }
    };
    out.push(0x80 | index);
}

/// Writes a field, its name in lower case.
pub(in crate::transport::http2) fn field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    let start = out.len();
    out.push(0);
    string(out, name);
    let name_at = out.len() - name.len();
    out[name_at..].make_ascii_lowercase();
    let index = static_name(&out[name_at..]);
    if index != 0 {
        out.truncate(start);
        integer(out, 0, 4, index.into());
    }
    string(out, value);
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    integer(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// RFC 7541, section 5.1: `number` in `bits` bits, with `pattern` above them, and in further bytes.
fn integer(out: &mut Vec<u8>, pattern: u8, bits: u8, mut number: usize) {
    let most = (1_u8 << bits) - 1;
    if let Some(small) = u8::try_from(number).ok().filter(|small| *small < most) {
        out.push(pattern | small);
        return;
    }
    out.push(pattern | most);
    number -= usize::from(most);
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(low & 0x7f);
        }
        out.push(low | 0x80);
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode::Decoder;
    use super::*;

    #[test]
    fn heads_are_decoded_as_they_are_encoded() {
        let long = vec![b'v'; 100_000];
        let fields: [(&[u8], &[u8]); 5] = [
            (b"Content-Type", b"text/plain"),
            (b"X-Long", &long),
            (b"x", b""),
            (b"set-cookie", b"a"),
            (b"via", b"\xff"),
        ];
        for code in [100, 200, 204, 206, 304, 400, 404, 429, 500, 599] {
            let mut block = vec![NO_TABLE];
            status(&mut block, code);
            for (name, value) in fields {
                field(&mut block, name, value);
            }
            let mut found = Vec::new();
            let decoded = Decoder::default().decode(&block, |name, value| found.push((name.to_vec(), value.to_vec())));
            assert_eq!(decoded, Ok(()));
            let mut expected = vec![(b":status".to_vec(), code.to_string().into_bytes())];
            expected.extend(fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec())));
            assert_eq!(found, expected);
        }
    }

    /// RFC 7541, appendix C.1.
    #[test]
    fn integers_are_those_of_the_rfc() {
        for (number, bits, expected) in [(10, 5, &[10][..]), (1337, 5, &[31, 154, 10]), (42, 7, &[42])] {
            let mut out = Vec::new();
            integer(&mut out, 0, bits, number);
            assert_eq!(out, expected);
        }
    }
}
