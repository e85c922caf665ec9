//! Numbers and addresses as text, for lines that are written for each request: `fmt` takes several times as long.

use std::net::IpAddr;

/// The last `N` hexadecimal digits of a number.
pub fn hex<const N: usize>(number: u64) -> [u8; N] {
    let mut digits = [0; N];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 0xf) as usize];
        rest >>= 4;
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
