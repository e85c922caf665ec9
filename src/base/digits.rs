//! Numbers and addresses as text, for lines that are written for each request: `fmt` takes several times as long.

use std::net::IpAddr;

/// The two hexadecimal digits of each byte.
static HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 0xf]];
        byte += 1;
    }
    pairs
};

/// The last `N` hexadecimal digits of a number. `N` is even.
pub fn hex<const N: usize>(number: u64) -> [u8; N] {
    let mut digits = [0; N];
    let mut rest = number;
    for pair in digits.as_chunks_mut().0.iter_mut().rev() {
        *pair = HEX[(rest & 0xff) as usize];
        rest >>= 8;
    }
    digits
}

/// Calls `push` with the pieces of an address.
pub fn push_address(address: IpAddr, mut push: impl FnMut(&str)) {
    let IpAddr::V4(address) = address else { return push(&address.to_string()) };
    let mut digits = itoa::Buffer::new();
    for (index, octet) in address.octets().into_iter().enumerate() {
        push(if index > 0 { "." } else { "" });
        push(digits.format(octet));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_fmt() {
        for number in [0, 1, 0xf0, 0x0123_4567_89ab_cdef, u64::MAX] {
            assert_eq!(&hex::<16>(number), format!("{number:016x}").as_bytes());
            assert_eq!(&hex::<8>(number), format!("{:08x}", number & 0xffff_ffff).as_bytes());
        }
        for address in ["0.0.0.0", "192.0.2.7", "255.255.255.255", "2001:db8::1", "::ffff:1.2.3.4"] {
            let mut out = "a ".to_owned();
            push_address(address.parse().unwrap(), |piece| out.push_str(piece));
            assert_eq!(out, format!("a {address}"));
        }
    }
}
